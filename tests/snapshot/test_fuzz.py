"""The fuzzer tests snapshots in short here, and is tested itself: its oracle against git's own
`add -A`, its judges against snapshots that lie."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from kedge.domain.file_states import Absent, Outcome, Present, Reason, Uncovered
from kedge.snapshot import Snapshots
from kedge.snapshot.values import Change, Result
from tests.snapshot_fuzz import Fuzz, Kind, Mismatch, Way, open_limited, read_worktree
from tests.snapshot_fuzz.__main__ import main
from tests.snapshot_fuzz.disk import Leaf
from tests.snapshot_fuzz.git import ask_git
from tests.snapshot_fuzz.mutator import Burst, mutate
from tests.snapshot_fuzz.oracle import Listing, Standing, is_own, tree_id
from tests.snapshot_fuzz.verdicts import Restore, judge_changes
from tests.snapshot_fuzz.world import World

ROUNDS = 12
ONE = Leaf("1" * 40, 0o100644)
TWO = Leaf("2" * 40, 0o100644)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own, because the command line makes one."""
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nowhere"))
    return tmp_path


def run(fuzz: Fuzz, rounds: int) -> None:
    """So many rounds from the start."""
    with fuzz.running():
        for _ in range(rounds):
            fuzz.round()


@pytest.mark.parametrize("kind", ["git", "plain"])
@pytest.mark.parametrize("way", ["inotify", "scan"])
def test_snapshots_are_what_the_oracle_reads(way: Way, kind: Kind, tmp_path: Path) -> None:
    """A worktree is changed by another process; at every pause snapshot and oracle agree."""
    fuzz = Fuzz(folder=tmp_path, seed=1, way=way, kind=kind, opener=open_limited)
    run(fuzz, ROUNDS)
    assert fuzz.counts.rounds == ROUNDS
    assert bool(fuzz.counts.firsts) == (kind == "git")


def test_first_snapshots_take_blobs_from_packs(tmp_path: Path) -> None:
    """So that what is compared byte for byte is not only what was read from the files."""
    fuzz = Fuzz(folder=tmp_path, seed=1, way="scan", kind="git", opener=open_limited)
    run(fuzz, ROUNDS)
    assert fuzz.counts.seeded > 0


def test_the_same_seed_does_the_same(tmp_path: Path) -> None:
    """A run can be repeated: two worktrees with the same seed end with the same files."""
    ends = [
        [line.partition("tmp")[0] for line in _mutated(world, seed=7, rounds=8)]
        for world in (_world(tmp_path / "one"), _world(tmp_path / "two"))
    ]
    assert ends[0] == ends[1]
    trees = {
        read_worktree(bytes(tmp_path / each / "root"), 1 << 30).tree for each in ("one", "two")
    }
    assert len(trees) == 1


def test_the_oracle_agrees_with_git(tmp_path: Path) -> None:
    """Wherever git's `add -A` means the same, the tree that it writes is the oracle's."""
    world = _world(tmp_path)
    compared = 0
    for number in range(60):
        mutate(world, Burst(seed=f"git:{number}", operations=12))
        listing = read_worktree(world.root, 1 << 30)
        if _is_gits_too(listing):
            assert listing.tree == _added_by_git(world.root, tmp_path / "scratch")
            compared += 1
    assert compared >= 5


def _is_gits_too(listing: Listing) -> bool:
    """Nothing nested, nothing converted, no name that git refuses or kedge keeps to itself."""
    paths = listing.files.keys() | listing.uncovered.keys()
    odd = (b".gitattributes", b".gitmodules")
    nested = any(path.endswith(b"/.git") for path in paths)
    return not nested and not any(is_own(path) or any(n in path for n in odd) for path in paths)


def _added_by_git(root: bytes, scratch: Path) -> str:
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "objects").mkdir(parents=True)
    if os.path.exists(root + b"/.git/index"):
        # With its time, by which git knows what it has to look at again.
        shutil.copy2(os.fsdecode(root) + "/.git/index", scratch / "index")
    environment: dict[str, str | bytes] = {
        "GIT_INDEX_FILE": str(scratch / "index"),
        "GIT_OBJECT_DIRECTORY": str(scratch / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": root + b"/.git/objects",
    }
    words = [b"-c", b"core.autocrlf=false", b"-c", b"core.fileMode=true"]
    ask_git([*words, b"add", b"-A"], folder=root, environment=environment)
    return ask_git([*words, b"write-tree"], folder=root, environment=environment).decode().strip()


def test_what_is_not_on_disk_is_absent_or_hidden() -> None:
    """The oracle knows a path that is not there from one in a folder that nobody looks into."""
    listing = _listing({b"d/a": ONE}, {b"d/b": "large", b"build": "ignored folder"})
    assert listing.standing(b"d/a") is Standing.PRESENT
    assert listing.standing(b"d/b") is Standing.UNCOVERED
    assert listing.standing(b"d/c") is Standing.ABSENT
    assert listing.standing(b"build") is Standing.UNKNOWN
    assert listing.standing(b"build/x") is Standing.UNKNOWN
    assert listing.standing(b"d/.kedge-plan-1~") is Standing.UNKNOWN


PRESENT = Present(ONE.blob, ONE.mode)
IGNORED = Uncovered(Reason.IGNORED)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (Change(b"a", Present("2" * 40, ONE.mode), Absent()), "but it was Leaf"),
        (Change(b"a", Present(ONE.blob, 0o100600), Absent()), "but it was Leaf"),
        (Change(b"a", Absent(), Absent()), "but it was present"),
        (Change(b"ignored", Absent(), PRESENT), "but it was uncovered"),
        (Change(b"new", IGNORED, PRESENT), "but it was absent"),
        (Change(b"same", PRESENT, PRESENT), "to the same"),
    ],
)
def test_a_wrong_change_is_found(change: Change, complaint: str) -> None:
    """States that are not the oracle's, invented changes and creations of the uncovered."""
    before = _listing({b"a": ONE, b"same": ONE}, {b"ignored": "ignored"})
    after = _listing({b"new": ONE, b"ignored": ONE, b"same": ONE}, {})
    assert complaint in "\n".join(judge_changes([change], before, after))


def test_a_missing_change_is_found() -> None:
    """What changed and is not said is complained of; what is said rightly is not."""
    before, after = _listing({b"a": ONE}, {}), _listing({b"a": TWO}, {})
    assert list(judge_changes([], before, after)) != []
    right = Change(b"a", PRESENT, Present(TWO.blob, TWO.mode))
    assert list(judge_changes([right], before, after)) == []


def test_a_wrong_restore_is_found() -> None:
    """A covered path must be as wanted, an uncovered one as it was."""
    wanted = _listing({b"a": ONE, b"o": ONE}, {})
    found = _listing({b"a": TWO}, {b"o": "ignored"})

    def complaints(a: Leaf, o: Leaf) -> list[str]:
        restore = Restore(
            wanted=wanted,
            found=found,
            disk_before={b"a": TWO, b"o": TWO},
            disk_after={b"a": a, b"o": o},
            results={b"a": Result(b"a", Outcome.RESTORED)},
        )
        return list(restore.complaints())

    assert complaints(a=ONE, o=TWO) == []
    assert "should be" in complaints(a=TWO, o=TWO)[0]
    assert "not to be touched" in complaints(a=ONE, o=ONE)[0]


class _Deaf:
    """Snapshots that take notice of nothing after the first."""

    def __init__(self, real: Snapshots) -> None:
        self._real = real
        self._first = real.track()

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def track(self, *, session: str | None = None) -> object:
        return self._first


def open_deaf(root: Path, data: Path, *, way: Way) -> Snapshots:
    """Snapshots that the fuzzer has to find wrong."""
    return cast(Snapshots, _Deaf(open_limited(root, data, way=way)))


def test_a_mismatch_tells_how_to_see_it_again(tmp_path: Path) -> None:
    """The error has the command, what was done, and both listings."""
    fuzz = Fuzz(folder=tmp_path, seed=3, way="scan", kind="git", opener=open_deaf)
    with pytest.raises(Mismatch) as caught:
        run(fuzz, 20)
    text = str(caught.value)
    assert f"--seed 3 --rounds {fuzz.counts.rounds + 1} --way scan --kind git" in text
    for section in ("complaints", "what the mutator did", "oracle's listing", "snapshot's listing"):
        assert section in text
    assert (tmp_path / "operations.log").exists()


def test_the_command_line_says_what_it_did(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 and the counts on standard error when all is equal."""
    assert main(["--root-folder", str(home / "run"), "--rounds", "2", "--way", "scan"]) == 0
    said = capsys.readouterr()
    assert "no mismatch: 2 rounds" in said.err
    assert said.out == ""


def test_the_command_line_reports_a_mismatch(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1, the finding on standard output and in a file."""
    monkeypatch.setattr("tests.snapshot_fuzz.__main__.open_limited", open_deaf)
    folder = home / "run"
    assert main(["--root-folder", str(folder), "--rounds", "20", "--way", "scan"]) == 1
    said = capsys.readouterr()
    assert "repeat with: " in said.out
    assert (folder / "mismatch.txt").read_text() == said.out


def test_the_command_line_wants_an_empty_folder(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing that is there already is ever worked in."""
    (home / "precious").touch()
    assert main(["--root-folder", str(home)]) == 2
    assert "not empty" in capsys.readouterr().err


def test_stopping_ends_cleanly(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends the other process too, and says how far it got."""

    def interrupted(self: Fuzz) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Fuzz, "round", interrupted)
    assert main(["--root-folder", str(home / "run"), "--way", "scan"]) == 130
    assert "stopped; no mismatch so far" in capsys.readouterr().err


def _listing(files: dict[bytes, Leaf], uncovered: dict[bytes, str]) -> Listing:
    folders = {path for path, why in uncovered.items() if why == "ignored folder"}
    return Listing(tree=tree_id(files), files=files, uncovered=uncovered, uncovered_folders=folders)


def _world(folder: Path) -> World:
    for name in ("root", "outside"):
        (folder / name).mkdir(parents=True)
    ask_git([b"init", b"-q"], folder=bytes(folder / "root"))
    return World(root=bytes(folder / "root"), outside=bytes(folder / "outside"), limit=50_000)


def _mutated(world: World, *, seed: int, rounds: int) -> Iterator[str]:
    for number in range(rounds):
        yield from mutate(world, Burst(seed=f"{seed}:{number}", operations=20)).log
