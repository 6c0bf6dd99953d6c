"""A process killed at every fail point while it applies steps, and what the next makes of it."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.snapshot import Absent, Outcome, Present, Snapshots
from tests.snapshot import crash_process
from tests.test_failpoints import SOURCE, reached_in

POINTS = sorted(reached_in(SOURCE / "snapshot"))
THEIRS = b"a day's work\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A worktree as it was before the steps, with all that they need in the store."""
    root = tmp_path / "root"
    root.mkdir()
    with Snapshots.open(root, data=tmp_path / "data", project="p") as snapshots:
        contents = (crash_process.OLD, crash_process.NEW)
        snapshots.put_blobs([*contents, *(content.strip() for content in contents)], session="s")
        for path, state in crash_process.BEFORE.items():
            lay(root / os.fsdecode(path), snapshots.read(state.blob), state.mode)
    return root


def lay(place: Path, content: bytes, mode: int) -> None:
    """Make a file or a link."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISLNK(mode):
        place.symlink_to(os.fsdecode(content))
    else:
        place.write_bytes(content)
        place.chmod(stat.S_IMODE(mode))


def die(root: Path, point: str, verb: str) -> None:
    """Have a process do something in the worktree and be killed at the point."""
    words = [
        sys.executable,
        "-m",
        "tests.snapshot.crash_process",
        str(root),
        str(root.parent / "data"),
    ]
    environment = {**os.environ, "KEDGE_FAILPOINT": point}
    here = Path(__file__).parents[2]
    ended = subprocess.run([*words, verb], env=environment, cwd=here, check=False)
    assert ended.returncode == -signal.SIGKILL


def leftovers(root: Path) -> list[Path]:
    """Files of kedge's own that are still in the worktree."""
    return list(root.rglob("*.kedge-*"))


@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_all_is_done_in_the_end(root: Path, point: str) -> None:
    """Each path is as wanted, what somebody saved since stays theirs, nothing is left behind."""
    if point.endswith("settle"):
        die(root, "after-exchange", "apply")
        die(root, point, "clean_up")
    else:
        die(root, point, "apply")
    edited = root / "edited"
    # As editors save: never into the file, which may be one that has no name any more.
    (root / "edited.tmp").write_bytes(THEIRS)
    (root / "edited.tmp").rename(edited)
    with (
        Snapshots.open(root, data=root.parent / "data", project="p") as snapshots,
        snapshots.ordered() as ordered,
    ):
        before = ordered.look([*crash_process.BEFORE, *crash_process.AFTER])
        for path in {*crash_process.BEFORE, *crash_process.AFTER} - {b"edited"}:
            states = {crash_process.BEFORE.get(path), crash_process.AFTER.get(path)}
            if isinstance(before[path], Present):
                assert before[path] in states
        troubles = ordered.clean_up(crash_process.steps(), tag=crash_process.TAG)
        assert {result.path for result in troubles} <= {b"edited"}
        results = ordered.apply(
            crash_process.steps(), tag=crash_process.TAG, folders=crash_process.FOLDERS
        )
        outcomes = {result.path: result.outcome for result in results}
        assert outcomes.pop(b"edited") is Outcome.CONFLICT
        assert not {Outcome.CONFLICT, Outcome.SKIPPED} & set(outcomes.values())
        after = ordered.look(crash_process.AFTER)
        assert after.pop(b"edited") == crash_process.file(THEIRS)
        assert after == {path: crash_process.AFTER[path] for path in after}
        assert ordered.look([b"gone"]) == {b"gone": Absent()}
    assert leftovers(root) == []
