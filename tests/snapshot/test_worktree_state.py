"""The in-memory tree follows the disk, and reads no more of it than it has to."""

import errno
import os
import pkgutil
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kedge.domain.errors import SnapshotError, SnapshotRefused, SnapshotTimeout
from kedge.domain.file_states import Reason
from kedge.snapshot.repository.signatures import LARGEST_RULES
from kedge.snapshot.worktree.covered_files import TooManyFiles
from kedge.snapshot.worktree.entries import FolderEntry
from kedge.snapshot.worktree.watch import Hints, Inotify, Rescan, WatchesUsedUp
from tests.snapshot.trees import LIMITS, WATCHES, Twin


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close all twins: a machine has few instances of inotify, and other tests need some."""
    twins: list[Twin] = []
    make = Twin.__init__

    def noted(self: Twin, *given: Any, **named: Any) -> None:  # noqa: ANN401  # passed on
        twins.append(self)
        make(self, *given, **named)

    monkeypatch.setattr(Twin, "__init__", noted)
    yield
    for each in twins:
        each.worktree.close()


@pytest.fixture(params=sorted(WATCHES))
def twin(request: pytest.FixtureRequest, tmp_path: Path) -> Twin:
    """An empty worktree, followed in each way."""
    root = tmp_path / "root"
    root.mkdir()
    return Twin(root, WATCHES[request.param]())


def reads(twin: Twin) -> int:
    """How many files the next refresh reads."""
    before = twin.worktree.covered.reads
    twin.worktree.refresh()
    return twin.worktree.covered.reads - before


def test_only_what_changed_is_read(twin: Twin) -> None:
    """Of many files, the changed one alone is read again."""
    for number in range(50):
        twin.write(f"d{number % 5}/f{number}", str(number))
    assert reads(twin) == 50
    assert reads(twin) == 0
    twin.write("d3/f3", "changed")
    assert reads(twin) == 1
    assert twin.files()["d3/f3"] == "changed"


def test_a_moved_folder_is_not_read_again(twin: Twin) -> None:
    """Files keep their stat data when their folder is renamed, so nothing is read."""
    for number in range(20):
        twin.write(f"old/deep/f{number}", str(number))
    twin.worktree.refresh()
    (twin.root / "old").rename(twin.root / "new")
    assert reads(twin) == 0
    assert set(twin.files()) == {f"new/deep/f{number}" for number in range(20)}
    twin.write("new/deep/f0", "after")
    assert twin.files()["new/deep/f0"] == "after"


def test_a_folder_that_replaces_another_is_followed(twin: Twin) -> None:
    """After two folders swapped places, changes in both are still noticed."""
    twin.write("a/f", "a")
    twin.write("b/f", "b")
    twin.worktree.refresh()
    (twin.root / "a").rename(twin.root / "c")
    (twin.root / "b").rename(twin.root / "a")
    (twin.root / "c").rename(twin.root / "b")
    assert twin.files() == {"a/f": "b", "b/f": "a"}
    twin.write("a/f", "new in a")
    twin.write("b/f", "new in b")
    assert twin.files() == {"a/f": "new in a", "b/f": "new in b"}


def test_other_rules_do_not_mean_other_reads(twin: Twin) -> None:
    """When `.gitignore` changes, files change sides without being read."""
    for number in range(10):
        twin.write(f"d/f{number}.log")
    twin.write(".gitignore", "# nothing\n")
    twin.worktree.refresh()
    twin.write(".gitignore", "*.log\n")
    assert reads(twin) == 1
    assert set(twin.files()) == {".gitignore"}
    folder = twin.worktree.top.folders[b"d"]
    assert set(folder.uncovered.values()) == {Reason.IGNORED}


def test_rules_above_a_mebibyte_are_passed_over(twin: Twin) -> None:
    """Nobody wrote them, and they would be read for every folder that has some."""
    twin.write("d/a.log")
    rule = "*.log\n"
    twin.write("d/.gitignore", rule + "#" * (LARGEST_RULES - len(rule)))
    assert "d/a.log" not in twin.files()
    twin.write("d/.gitignore", rule + "#" * (LARGEST_RULES - len(rule) + 1))
    assert "d/a.log" in twin.files()


def test_a_tree_is_written_only_where_something_changed(twin: Twin) -> None:
    """One changed file costs one tree for each folder above it."""
    for number in range(30):
        twin.write(f"a{number}/b/c/f")
    twin.snapshot()
    written: list[bytes] = []
    twin.write("a7/b/c/f", "changed")
    twin.worktree.refresh()

    def put(content: bytes) -> bytes:
        written.append(content)
        return twin._put_tree(content)

    twin.worktree.write(put, twin._put_blob)
    assert len([content for content in written if content]) == 4


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    """A worktree over the limit has no snapshot, and the message names the setting."""
    for number in range(6):
        (tmp_path / str(number)).write_text("x")
    twin = Twin(tmp_path, Rescan(), replace(LIMITS, files=5))
    with pytest.raises(TooManyFiles, match="snapshot_files"):
        twin.worktree.refresh()


def test_a_refresh_that_gave_up_starts_over(twin: Twin) -> None:
    """What was noticed before a time-out is not forgotten by it."""
    twin.write("d/f", "one")
    twin.worktree.refresh()
    twin.write("d/f", "two")
    twin.write("e/g", "new")
    with pytest.raises(SnapshotTimeout):
        twin.worktree.refresh(deadline=0)
    assert twin.files() == {"d/f": "two", "e/g": "new"}


def test_a_root_that_was_replaced_is_looked_at_anew(twin: Twin) -> None:
    """The tree follows the path, and never takes a removed folder for an empty one."""
    twin.write("f", "old")
    twin.worktree.refresh()
    twin.root.rename(twin.root.with_name("elsewhere"))
    with pytest.raises(SnapshotRefused, match="cannot be opened any more"):
        twin.worktree.follow_root()
    twin.write("g", "new")
    twin.worktree.follow_root()
    assert twin.files() == {"g": "new"}
    twin.worktree.check_root()
    twin.write("g", "newer")
    assert twin.files() == {"g": "newer"}


def test_a_root_replaced_in_the_middle_is_no_snapshot(twin: Twin) -> None:
    """What was seen while the root was exchanged is not used."""
    twin.write("f")
    twin.worktree.refresh()
    twin.root.rename(twin.root.with_name("elsewhere"))
    twin.root.mkdir()
    with pytest.raises(SnapshotError, match="replaced"):
        twin.worktree.check_root()


def test_a_declared_file_is_covered_though_ignored(twin: Twin) -> None:
    """Only the declared file of an ignored folder is covered, before and after it exists."""
    twin.write(".gitignore", "build/\n")
    twin.write("build/out", "1")
    twin.write("build/other", "2")
    twin.worktree.refresh()
    twin.worktree.declare([b"build/out", b"build/later"])
    assert set(twin.files()) == {".gitignore", "build/out"}
    twin.write("build/later", "3")
    twin.write("build/out", "4")
    found = twin.files()
    assert (found["build/out"], found["build/later"]) == ("4", "3")
    assert "build/other" not in found


def test_blobs_that_are_gone_are_read_again(twin: Twin) -> None:
    """A file whose blob cannot be had after all is read from disk."""
    twin.write("a", "1")
    twin.write("b", "2")
    twin.worktree.refresh()
    blob = twin.worktree.top.files[b"a"].blob
    twin.objects.clear()
    twin.worktree.distrust({blob})
    assert reads(twin) == 1
    assert list(twin.objects.values()) == [b"1"]


class Deaf(Inotify):
    """Notices nothing of what happens in some folders."""

    def collect(self) -> Hints:
        hints = super().collect()
        hints.names = {
            folder: names for folder, names in hints.names.items() if folder.name != b"deaf"
        }
        return hints


def test_verification_finds_and_heals_what_was_not_noticed(tmp_path: Path) -> None:
    """A change that the watch lost is found, counted by its path, and known afterwards."""
    twin = Twin(tmp_path, Deaf())
    twin.write("deaf/a", "1")
    twin.write("deaf/b", "1")
    twin.write("fine/c", "1")
    twin.worktree.refresh()
    twin.write("deaf/a", "two")
    (tmp_path / "deaf/b").unlink()
    twin.write("deaf/new/d", "3")
    twin.write("fine/c", "four")
    assert twin.files() == {"deaf/a": "1", "deaf/b": "1", "fine/c": "four"}
    found = twin.worktree.verify(list(twin.worktree.top.everything()))
    assert found == [b"deaf/a", b"deaf/b", b"deaf/new/d"]
    assert twin.files() == {"deaf/a": "two", "deaf/new/d": "3", "fine/c": "four"}
    assert twin.worktree.verify(list(twin.worktree.top.everything())) == []


class Limited(Inotify):
    """Has only so many watches."""

    left = 3

    def add(self, folder: FolderEntry) -> None:
        if folder.watch is None:
            self.left -= 1
        if self.left < 0:
            raise WatchesUsedUp("used up")
        super().add(folder)


@pytest.mark.parametrize("before", [0, 2, 9])
def test_the_watch_limit_means_scanning(tmp_path: Path, before: int) -> None:
    """When the watches are used up, everything is compared from then on, and the reason told."""
    twin = Twin(tmp_path, Limited())
    for number in range(before):
        twin.write(f"d{number}/f", "1")
    twin.worktree.refresh()
    for number in range(9):
        twin.write(f"d{number}/f", "2")
    assert twin.files() == {f"d{number}/f": "2" for number in range(9)}
    assert twin.worktree.watch.way == "scan"
    assert "too many folders" in twin.worktree.way_reason
    twin.write("d8/f", "3")
    assert twin.files()["d8/f"] == "3"


def test_the_queue_may_overflow(tmp_path: Path) -> None:
    """After more events than the kernel keeps, everything is compared, and it is counted."""
    twin = Twin(tmp_path, Inotify())
    twin.write("a/f", "1")
    twin.write("b/f", "1")
    twin.worktree.refresh()
    length = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for number in range(length // 2 + 10):
        # Two different events each, so that the kernel cannot merge them.
        (tmp_path / "a" / f"t{number}").touch()
        (tmp_path / "a" / f"t{number}").unlink()
    twin.write("b/f", "2")
    twin.write("c/g", "3")
    assert twin.files() == {"a/f": "1", "b/f": "2", "c/g": "3"}
    assert twin.worktree.overflows == 1
    twin.write("c/g", "4")
    assert twin.files()["c/g"] == "4"


def test_a_nested_repository_has_rules_of_its_own(twin: Twin) -> None:
    """The outer rules end where another repository begins, and come back when it is gone."""
    twin.write(".gitignore", "*.log\n")
    twin.write("nested/a.log", "1")
    twin.worktree.refresh()
    environment = {"PATH": os.environ["PATH"], "HOME": str(twin.root.parent)}
    subprocess.run(["git", "init", "-q", str(twin.root / "nested")], check=True, env=environment)
    assert set(twin.files()) == {".gitignore", "nested/a.log"}
    (twin.root / "nested/.git/HEAD").unlink()
    assert set(twin.files()) == {".gitignore"}


def test_a_tracked_file_is_covered_though_ignored(twin: Twin) -> None:
    """It counts as long as the index names it, whenever it came in and went out."""

    def git(*words: str) -> None:
        environment = {"PATH": os.environ["PATH"], "HOME": str(twin.root.parent)}
        subprocess.run(["git", "-C", str(twin.root), *words], check=True, env=environment)

    git("init", "-q")
    twin.write(".gitignore", "out/\n*.log\n")
    twin.write("out/deep/a", "1")
    twin.write("b.log", "2")
    assert set(twin.files()) == {".gitignore"}
    git("add", "-f", "out/deep/a", "b.log")
    assert set(twin.files()) == {".gitignore", "out/deep/a", "b.log"}
    twin.write("out/deep/a", "3")
    assert twin.files()["out/deep/a"] == "3"
    git("rm", "-q", "--cached", "-f", "b.log")
    assert set(twin.files()) == {".gitignore", "out/deep/a"}


class Failing:
    """Lets a function fail at its n-th call."""

    def __init__(self, real: Callable[..., Any], at: int) -> None:
        self._real = real
        self.left = at

    def __call__(self, *given: Any, **named: Any) -> Any:  # noqa: ANN401  # whatever is called
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.EMFILE, "too many open files")
        return self._real(*given, **named)


@pytest.mark.parametrize(
    "what",
    [
        "kedge.snapshot.worktree.covered_files.read_file",
        "kedge.snapshot.worktree.scan.read_file",
        "kedge.snapshot.worktree.scan._names_in",
        "kedge.snapshot.worktree.entries:FolderEntry.touch",
    ],
)
def test_wherever_a_refresh_fails_the_next_is_right(
    twin: Twin, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failure at any place, the next refresh knows exactly what a new one finds."""
    twin.write(".gitignore", "*.tmp\n")
    for number in range(6):
        twin.write(f"d{number % 3}/f{number}", str(number))
    twin.write("large", "x" * 2000)
    twin.snapshot()
    for at in range(1, 40):
        twin.write("large", "small" if at % 2 else "x" * 2000)
        twin.write(".gitignore", f"*.tmp\nf{at % 6}\n")
        twin.write(f"d{at % 3}/f{at % 5}", f"changed {at}")
        for name in "abc":
            twin.write(f"new{at % 4}/{name}/deep", str(at))
        if at % 3 == 0:
            shutil.rmtree(twin.root / f"new{at % 4}")
        with monkeypatch.context() as patched:
            place, name = what.rsplit(".", 1)
            owner = pkgutil.resolve_name(place)
            failing = Failing(getattr(owner, name), at)
            patched.setattr(owner, name, lambda *a, failing=failing, **k: failing(*a, **k))
            with suppress(OSError):
                twin.worktree.refresh()
        fresh = Twin(twin.root, Rescan())
        assert twin.snapshot() == fresh.snapshot(), f"after a failure at {at}"
        assert twin.worktree.covered.count == fresh.worktree.covered.count
        if failing.left > 0:
            break


def test_an_overflow_while_verifying_is_followed(tmp_path: Path) -> None:
    """What the kernel lost during a verification is looked at by the next refresh."""
    twin = Twin(tmp_path, Inotify())
    twin.write("d/x", "1")
    twin.worktree.refresh()
    collect, calls = twin.worktree.watch.collect, iter(range(10))

    def losing() -> Hints:
        hints = collect()
        # The second of one verification: after all was compared.
        return Hints(everything=True) if next(calls) == 1 else hints

    twin.worktree.watch.collect = losing  # type: ignore[method-assign]
    relist = twin.worktree.lister.relist

    def relist_then_change(folder: FolderEntry) -> None:
        relist(folder)
        twin.write("d/x", "two")

    twin.worktree.lister.relist = relist_then_change  # type: ignore[method-assign]
    assert twin.worktree.verify([twin.worktree.top]) == []
    assert twin.files() == {"d/x": "two"}


def test_a_folder_that_was_away_for_a_moment_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ancestor that is renamed away and back during a scan leaves nothing lost."""
    (tmp_path / "root").mkdir()
    twin = Twin(tmp_path / "root", Rescan())
    twin.write("a/y/f", "1")
    twin.write("a/y/A/g", "2")
    twin.worktree.refresh()
    check_one = twin.worktree.lister._check_one
    away = tmp_path / "away"

    def moving(folder: FolderEntry) -> bool:
        if folder.name == b"A":
            (twin.root / "a").rename(away)
            try:
                return check_one(folder)
            finally:
                away.rename(twin.root / "a")
        return check_one(folder)

    with monkeypatch.context() as patched:
        patched.setattr(twin.worktree.lister, "_check_one", moving)
        twin.worktree.refresh()
    assert twin.files() == {"a/y/f": "1", "a/y/A/g": "2"}
