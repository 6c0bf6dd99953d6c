"""Steps carried out over a worktree: their order, doing them again, and paths that are traps."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kedge._failpoints import armed
from kedge.domain.errors import InvariantBroken
from kedge.domain.file_states import AsideCopy, FileStep
from kedge.snapshot import Absent, Outcome, Present, Result, Snapshots
from kedge.snapshot.exclusive import Ordered
from kedge.snapshot.files.reader import Disk
from kedge.snapshot.files.writer import Writer
from kedge.snapshot.objects.formats import BLOB

ODD_NAMES = [b"new\nline", b"-rf", b"a:b", b"it's", b'"quoted"', b"\xff\xfe", b" ", b"*", b"\\"]
TAG = "plan"
ABSENT = Absent()


class Place:
    """A worktree that one is alone in."""

    def __init__(self, root: Path, snapshots: Snapshots, ordered: Ordered) -> None:
        self.root = root
        self.snapshots = snapshots
        self.ordered = ordered

    def content(self, data: bytes, mode: int = 0o100644) -> Present:
        """The state of a file with this content, which the store then has."""
        return Present(self.snapshots._store.put(BLOB, data).hex(), mode)

    def at(self, path: bytes) -> Disk:
        """What is at a path."""
        return self.ordered.look([path])[path]

    def apply(self, *steps: FileStep, folders: tuple[bytes, ...] = ()) -> dict[bytes, Outcome]:
        """What became of each path."""
        results = self.ordered.apply(steps, tag=TAG, folders=folders)
        return {result.path: result.outcome for result in results}

    def leftovers(self) -> list[str]:
        """Temporary files that are still there."""
        return [path.name for path in self.root.rglob(".kedge-*")]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """An empty worktree, and a folder outside of it that must never change."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "file").write_bytes(b"not ours")
    with (
        Snapshots.open(root, data=tmp_path / "data", project="p") as snapshots,
        snapshots.ordered() as ordered,
    ):
        place = Place(root, snapshots, ordered)
        yield place
        assert place.leftovers() == []
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_bytes() == b"not ours"


def step(
    number: int, path: bytes, expect: Disk, want: Disk, needs: tuple[bytes, ...] = ()
) -> FileStep:
    """A step between two states."""
    assert isinstance(expect, Present | Absent)
    assert isinstance(want, Present | Absent)
    blob = expect.blob if isinstance(expect, Present) else ""
    copies = tuple(AsideCopy(each, blob, False) for each in needs)
    return FileStep(number=number, path=path, expect=expect, want=want, needs=copies)


def test_files_and_folders_take_each_others_place(place: Place) -> None:
    """What is in the way goes before what takes its place, however the steps are given."""
    (place.root / "folder/deep").mkdir(parents=True)
    (place.root / "folder/deep/file").write_bytes(b"1")
    (place.root / "file").write_bytes(b"2")
    one, two = place.at(b"folder/deep/file"), place.at(b"file")
    steps = (
        step(0, b"folder", ABSENT, two),
        step(1, b"file/now/below", ABSENT, one),
        step(2, b"folder/deep/file", one, ABSENT),
        step(3, b"file", two, ABSENT),
    )
    folders = (b"folder/deep", b"folder")
    assert place.apply(*steps, folders=folders) == {
        b"folder": Outcome.RECREATED,
        b"file/now/below": Outcome.RECREATED,
        b"folder/deep/file": Outcome.DELETED,
        b"file": Outcome.DELETED,
    }
    assert (place.root / "folder").read_bytes() == b"2"
    assert (place.root / "file/now/below").read_bytes() == b"1"
    assert set(place.apply(*steps, folders=folders).values()) == {Outcome.UNCHANGED}


def test_only_named_folders_go_and_only_if_empty(place: Place) -> None:
    """A folder that was not named stays, and so does one that holds anything."""
    for name in ("a/file", "b/file", "b/other", "c/file"):
        (place.root / name).parent.mkdir(exist_ok=True)
        (place.root / name).write_bytes(b"x")
    state = place.at(b"a/file")
    deletions = [
        step(number, b"%b/file" % name, state, ABSENT)
        for number, name in enumerate((b"a", b"b", b"c"))
    ]
    place.apply(*deletions, folders=(b"a", b"b", b"missing", b"../outside", b".git"))
    assert sorted(path.name for path in place.root.iterdir()) == ["b", "c"]
    assert [path.name for path in (place.root / "b").iterdir()] == ["other"]


def test_what_somebody_else_changed_is_left_alone(place: Place) -> None:
    """A path that is neither as expected nor as wanted is a conflict, and not one byte changes."""
    (place.root / "a").write_bytes(b"theirs")
    (place.root / "d").mkdir()
    old, new = place.content(b"old"), place.content(b"new")
    steps = [
        step(0, b"a", old, new),
        step(1, b"b", old, new),
        step(2, b"d", old, new),
        step(3, b"c", ABSENT, new),
    ]
    (place.root / "c").write_bytes(b"theirs too")
    assert set(place.apply(*steps).values()) == {Outcome.CONFLICT}
    assert (place.root / "a").read_bytes() == b"theirs"
    assert (place.root / "c").read_bytes() == b"theirs too"


def test_each_result_is_told_at_once(place: Place) -> None:
    """Whoever listens hears of a path as soon as it is done, in the order of the work."""
    new, heard = place.content(b"new"), list[Result]()
    (place.root / "gone").write_bytes(b"x")
    steps = [step(0, b"made", ABSENT, new), step(1, b"gone", place.at(b"gone"), ABSENT)]
    there: list[bool] = []

    def on_result(result: Result) -> None:
        heard.append(result)
        there.append((place.root / os.fsdecode(result.path)).exists())

    results = place.ordered.apply(steps, tag=TAG, on_result=on_result)
    assert heard == results
    assert [result.path for result in heard] == [b"made", b"gone"]
    assert there == [True, False]


def test_permission_bits_are_those_recorded(place: Place) -> None:
    """A private file stays private through deleting and bringing back, never open in between."""
    private = place.content(b"key", 0o100600)
    assert place.apply(step(0, b"key", ABSENT, private)) == {b"key": Outcome.RECREATED}
    assert stat.S_IMODE((place.root / "key").stat().st_mode) == 0o600
    script = place.content(b"key", 0o100755)
    assert place.apply(step(0, b"key", private, script)) == {b"key": Outcome.RESTORED}
    assert place.apply(step(0, b"key", script, private)) == {b"key": Outcome.RESTORED}
    assert stat.S_IMODE((place.root / "key").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_names(place: Place, name: bytes) -> None:
    """Whatever bytes the file system takes for a name can be made, changed and deleted."""
    path = b"d" + name + b"/" + name
    one, two = place.content(b"1"), place.content(b"2")
    assert place.apply(step(0, path, ABSENT, one)) == {path: Outcome.RECREATED}
    assert place.apply(step(0, path, one, two)) == {path: Outcome.RESTORED}
    assert place.apply(step(0, path, two, ABSENT), folders=(b"d" + name,)) == {
        path: Outcome.DELETED
    }
    assert os.listdir(place.root) == []


def test_a_folder_that_became_a_link_is_not_followed(place: Place) -> None:
    """Nothing is written, deleted or removed behind a link out of the worktree."""
    (place.root / "folder").symlink_to(place.root.parent / "outside")
    there = place.content(b"not ours")
    outcomes = place.apply(
        step(0, b"folder/file", there, place.content(b"ours")),
        step(1, b"folder/new", ABSENT, there),
        folders=(b"folder",),
    )
    assert set(outcomes.values()) == {Outcome.CONFLICT}
    # Behind a link there is nothing of the worktree: it is as gone as it should be.
    assert place.apply(step(0, b"folder/file", there, ABSENT)) == {
        b"folder/file": Outcome.UNCHANGED
    }
    assert (place.root / "folder").is_symlink()


def test_a_folder_that_becomes_a_link_in_the_middle_is_not_followed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was opened stays what it was: the write goes to the moved folder or nowhere."""
    (place.root / "folder").mkdir()
    (place.root / "folder/file").write_bytes(b"old")
    old, new = place.at(b"folder/file"), place.content(b"new")
    commit = Writer._commit

    def swapping(self: Writer, *arguments: object) -> Result:
        (place.root / "folder").rename(place.root / "moved")
        (place.root / "folder").symlink_to(place.root.parent / "outside")
        return commit(self, *arguments)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(Writer, "_commit", swapping)
    place.apply(step(0, b"folder/file", old, new))
    assert (place.root / "folder").is_symlink()


def test_a_hard_link_elsewhere_keeps_its_bytes(place: Place) -> None:
    """A file is replaced, not written into: its other names, also outside, stay as they are."""
    outside = place.root.parent / "outside/file"
    os.link(outside, place.root / "name")
    before = place.at(b"name")
    assert place.apply(step(0, b"name", before, place.content(b"new"))) == {
        b"name": Outcome.RESTORED
    }
    assert (place.root / "name").read_bytes() == b"new"
    assert outside.read_bytes() == b"not ours"


@pytest.mark.parametrize("path", [b".git/config", b"a/.GIT/x", b"../x", b"/etc/x", b"a//b", b""])
def test_refused_paths_are_skipped(place: Place, path: bytes) -> None:
    """The inside of git and paths that lead elsewhere are never written, and the result says so."""
    (result,) = place.ordered.apply([step(0, path, ABSENT, place.content(b"x"))], tag=TAG)
    assert result.outcome is Outcome.SKIPPED
    assert result.reason
    assert os.listdir(place.root) == []


def test_a_tag_that_is_no_file_name_is_refused(place: Place) -> None:
    """The tag is in the names of files: one that leads elsewhere is a bug of the caller."""
    with pytest.raises(InvariantBroken):
        place.ordered.apply([step(0, b"a", ABSENT, place.content(b"x"))], tag="../x")


class Died(BaseException):
    """The process ended here."""


@pytest.mark.parametrize("count", range(1, 4))
def test_applied_again_after_a_crash(
    place: Place, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Cleaned up and applied again, each path is done; what somebody saved since is a conflict."""
    paths = (b"x/a", b"x/b", b"x/c")
    (place.root / "x").mkdir()
    for path in paths:
        (place.root / os.fsdecode(path)).write_bytes(b"old")
    old, new = place.content(b"old"), place.content(b"new")
    steps = [step(number, path, old, new) for number, path in enumerate(paths)]
    with monkeypatch.context() as patch:
        patch.setattr("kedge.snapshot.files.atomic.swap", dying_after(count))
        # A process that dies takes nothing away any more.
        patch.setattr("kedge.snapshot.files.steps.Spot.discard", lambda self, name: None)
        with pytest.raises(Died):
            place.ordered.apply(steps, tag=TAG)
    assert place.leftovers()
    (place.root / "x/b").write_bytes(b"theirs")
    assert place.ordered.clean_up(steps, tag=TAG) == []
    assert place.apply(*steps) == {
        b"x/a": Outcome.UNCHANGED,
        b"x/b": Outcome.CONFLICT,
        b"x/c": Outcome.RESTORED if count < 3 else Outcome.UNCHANGED,
    }
    assert (place.root / "x/b").read_bytes() == b"theirs"


def dying_after(count: int) -> Callable[[int, bytes, bytes], None]:
    """Swaps names so many times, and dies after the last."""
    from kedge.snapshot.files.atomic import swap

    left = count

    def swapping(dir_fd: int, one: bytes, two: bytes) -> None:
        nonlocal left
        swap(dir_fd, one, two)
        left -= 1
        if not left:
            raise Died

    return swapping


def test_a_content_goes_only_when_it_is_elsewhere(place: Place) -> None:
    """One of the paths that are named must hold it when its turn comes."""
    for name in ("moved", "copied", "lonely"):
        (place.root / name).write_bytes(name.encode())
    (place.root / "kept").write_bytes(b"copied")
    moved, copied = place.at(b"moved"), place.at(b"copied")
    steps = [
        step(0, b"moved", moved, ABSENT, needs=(b"back",)),
        step(1, b"copied", copied, ABSENT, needs=(b"nowhere", b"kept")),
        step(2, b"lonely", place.at(b"lonely"), ABSENT, needs=(b"nowhere", b"no/folder")),
        step(3, b"back", ABSENT, moved),
    ]
    assert place.apply(*steps) == {
        b"moved": Outcome.DELETED,
        b"copied": Outcome.DELETED,
        b"lonely": Outcome.CONFLICT,
        b"back": Outcome.RECREATED,
    }
    assert sorted(path.name for path in place.root.iterdir()) == ["back", "kept", "lonely"]


def test_what_had_to_go_first_comes_back_if_its_copy_cannot_be_written(place: Place) -> None:
    """Two files change places, and somebody takes one of the places in the last moment."""
    (place.root / "a").mkdir()
    (place.root / "a" / "a").write_bytes(b"old a")
    (place.root / "b").write_bytes(b"old b")
    inner, b = place.at(b"a/a"), place.at(b"b")
    steps = [
        step(0, b"a/a", inner, ABSENT, needs=(b"a",)),
        step(1, b"a", ABSENT, inner),
        step(2, b"b", b, inner, needs=(b"c",)),
        step(3, b"c", ABSENT, b),
    ]

    def interfere() -> None:
        (place.root / "a").mkdir(exist_ok=True)
        (place.root / "a" / "theirs").write_bytes(b"theirs")
        (place.root / "c").write_bytes(b"theirs")

    with armed("after-sync", interfere):
        results = place.apply(*steps, folders=(b"a",))
    assert results == dict.fromkeys((b"a/a", b"a", b"b", b"c"), Outcome.CONFLICT)
    assert (place.root / "a" / "a").read_bytes() == b"old a"
    assert (place.root / "b").read_bytes() == b"old b"
    assert not place.leftovers()
    # After a crash it is the same: what was done before is looked at again.
    assert set(place.apply(*steps, folders=(b"a",)).values()) == {Outcome.CONFLICT}
