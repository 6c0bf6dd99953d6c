"""Kills processes at random moments while they take, restore and collect snapshots, and looks
whether all that was acknowledged is there, and whether every file is whole."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kedge.snapshot import Snapshots
from kedge.snapshot.files.steps import is_own_name
from tests.snapshot import snapshot_process
from tests.snapshot.conformance.scene import DEFAULTS, Scene
from tests.snapshot.hostile_worktree import files_of, make_index_newer
from tests.snapshot.objects_git import git
from tests.snapshot.snapshot_process import States
from tests.snapshot.test_conformance import opener
from tests.torture.orders import ROOT, deadline

KILLS = {"track": 80, "restore": 60, "collect": 60}
"""How often a process is killed in the middle of which verb."""
KILLS_PER_WORKTREE = 5
MOST_VERBS = 12
LONGEST = {"track": 0.04, "restore": 0.12, "collect": 0.2}
"""Seconds that a verb takes the first time; later a quarter of it."""


@dataclass(slots=True)
class Ledger:
    """What the processes of one worktree said."""

    kept: dict[str, dict[str, States]] = field(default_factory=dict)
    """Per session, per snapshot, what it holds."""
    captured: dict[str, dict[str, str]] = field(default_factory=dict)
    restoring: tuple[States, States] | None = None
    acknowledged: int = 0
    doing: str = ""
    """The verb that had not ended when last heard of."""

    def take(self, said: str, *rest: object) -> None:
        """Note a line."""
        self.acknowledged += said in ("kept", "captured", "restored")
        match said, *rest:
            case "doing", str(verb):
                self.doing = verb
            case "kept", str(session), str(id), dict(states):
                self.kept.setdefault(session, {})[id] = states
                self.doing = ""
            case "captured", str(session), str(blob), str(state):
                self.captured.setdefault(session, {})[blob] = state
            case "released", str(session):
                self.kept.pop(session, None)
                self.captured.pop(session, None)
            case "restoring", dict(old), dict(new):
                self.restoring = old, new
            case "restored", *_:
                self.restoring = None
                self.doing = ""

    def assert_old_or_new(self, found: States) -> None:
        """If a restore was cut off, each path is as it was or as was wanted."""
        if self.restoring is not None:
            old, new = self.restoring
            wrong = {
                path: found.get(path)
                for path in old.keys() | new.keys() | found.keys()
                if found.get(path) not in (old.get(path), new.get(path))
            }
            assert wrong == {}
        self.restoring = None


@contextmanager
def worktree(folder: Path) -> Iterator[Path]:
    """A repository whose first snapshot is seeded; in the end it goes, and all is still there."""
    scene = Scene(folder, opener("inotify"))
    scene.repository()
    scene.write(".gitignore", b"*.log\n")
    for number, name in enumerate(snapshot_process.FILES):
        scene.write(name, snapshot_process.content(number))
    scene.commit()
    scene.git("repack", "-q", "-a", "-d")
    make_index_newer(scene)
    yield folder
    shutil.rmtree(scene.at(".git"))


def forget(folder: Path) -> None:
    """Let the next snapshot be seeded again: the user commits, what was remembered is gone."""
    scene = Scene(folder, opener("inotify"))
    scene.commit()
    scene.git("repack", "-q", "-a", "-d")
    make_index_newer(scene)
    shutil.rmtree(folder / "data/snapshots/prj/roots", ignore_errors=True)


def work_and_kill(folder: Path, verb: str, seed: int, ledger: Ledger) -> None:
    """Let a process work, kill it in the middle of a verb, and note what it said."""
    chance = random.Random(seed)
    command = [
        sys.executable,
        "-m",
        "tests.snapshot.snapshot_process",
        str(folder),
        verb,
        str(seed),
    ]
    with (
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process,
        deadline(process),
    ):
        assert process.stdout is not None
        # Most of them early: at the first time of the verb, when most is new, or right after the
        # first snapshot, which was just copied from the user's repository.
        moment, left = chance.choice(
            [
                (["kept"], 0),
                (["doing", verb], 0),
                (["doing", verb], 0),
                (["doing", verb], chance.randrange(MOST_VERBS)),
            ]
        )
        for line in process.stdout:
            said = json.loads(line)
            ledger.take(*said)
            if said[: len(moment)] == moment:
                left -= 1
            if left < 0:
                break
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(chance.random() ** 2 * LONGEST[verb])
        process.kill()
        for line in process.stdout:
            if line.endswith("\n"):
                ledger.take(*json.loads(line))


def judge(folder: Path, ledger: Ledger) -> None:
    """Open the snapshots again and hold them, the files and the store against what was said."""
    root, data = folder / "root", folder / "data"
    with Snapshots.open(root, data=data, project="prj", settings=DEFAULTS) as snapshots:
        taken = snapshots.track()
        assert [
            path for path in root.rglob(".kedge-*") if is_own_name(bytes(path.name, "ascii"))
        ] == []
        found = snapshot_process.states(root)
        assert "torn" not in found.values()
        ledger.assert_old_or_new(found)
        assert held(snapshots, taken.id) == found
        for session in ledger.kept.values():
            assert {id: held(snapshots, id) for id in session} == session
        for blobs in ledger.captured.values():
            for blob, state in blobs.items():
                assert snapshot_process.state(snapshot_process.PLAIN, snapshots.read(blob)) == state
        assert snapshots.status().trouble == ""
    git(data / "snapshots/prj", "fsck", "--full", "--no-dangling")


def held(snapshots: Snapshots, id: str) -> States:
    """What a snapshot says of every file."""
    files = files_of(snapshots, id)
    files.pop(b".gitignore")
    files.pop(snapshot_process.IGNORED.encode(), None)
    return {
        path.decode(): snapshot_process.state(mode, each) for path, (mode, each) in files.items()
    }


@pytest.mark.parametrize(
    "share", [20, pytest.param(1, marks=[pytest.mark.torture, pytest.mark.timeout(1800)])]
)
@pytest.mark.parametrize("verb", KILLS)
def test_snapshots_survive_kills(
    verb: str, share: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledged snapshots read back whole, git finds nothing wrong, files are old or new."""
    # Whoever looks afterwards is not killed.
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    kills = acknowledged = hits = 0
    while kills < KILLS[verb] // share:
        ledger = Ledger()
        with worktree(tmp_path / str(kills)) as folder:
            for _ in range(min(KILLS_PER_WORKTREE, KILLS[verb] // share - kills)):
                if kills % 2 == 0:
                    forget(folder)
                work_and_kill(folder, verb, kills + 1, ledger)
                hits += ledger.doing == verb
                judge(folder, ledger)
                kills += 1
        judge(folder, ledger)
        acknowledged += ledger.acknowledged
    # A few kills may come before anything is said; many may not.
    assert share > 1 or acknowledged > kills
    figures = (
        f"{kills} kills, {hits} of them in the middle, {acknowledged} acknowledgements, 0 lost"
    )
    sys.stdout.write(f"\nsnapshots, {verb}: {figures}\n")
