"""Trees are compared exactly, in the order of paths, and without opening what is equal."""

import sys

import pytest
from hypothesis import given

from kedge.domain.errors import SnapshotStoreDamaged
from kedge.domain.file_states import Absent, Present, Reason, Uncovered
from kedge.snapshot.diffs.trees import TreeChange, compare, tree_changes
from kedge.snapshot.objects.formats import BLOB
from kedge.snapshot.values import Change
from tests.snapshot.made_trees import FILE, LINK, Files, Objects, nodes, worktrees


def differences(old: Files, new: Files) -> list[TreeChange]:
    """What a comparison of plain dictionaries says."""
    before, after = nodes(old), nodes(new)
    return [
        TreeChange(path, before.get(path), after.get(path))
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]


@given(worktrees())
def test_comparing_trees_is_comparing_their_files(trees: tuple[Files, Files]) -> None:
    """Every file that differs comes once, sorted by its path, and no other does."""
    old, new = trees
    objects = Objects()
    before, after = objects.write_files(old), objects.write_files(new)
    assert list(compare(objects.read, before, after)) == differences(old, new)
    assert list(compare(objects.read, None, after)) == differences({}, new)
    assert list(compare(objects.read, before, None)) == differences(old, {})
    assert list(compare(objects.read, None, None)) == []


def test_a_file_that_became_a_folder_is_a_deletion_and_additions() -> None:
    """The deletion stands at the file's place, the additions where the folder's files belong."""
    objects = Objects()
    old = {b"a": (FILE, b"1"), b"a.b": (FILE, b"2")}
    new = {b"a.b": (LINK, b"2"), b"a/b": (FILE, b"1"), b"a0": (FILE, b"3")}
    trees = objects.write_files(old), objects.write_files(new)
    assert [
        (change.path, change.old is not None, change.new is not None)
        for change in compare(objects.read, *trees)
    ] == [(b"a", True, False), (b"a.b", True, True), (b"a/b", False, True), (b"a0", False, True)]


def test_only_folders_that_differ_are_opened() -> None:
    """One changed file among a hundred folders costs the two folders above it, on both sides."""
    objects = Objects()
    old = {b"%d/%d/f" % (one, two): (FILE, b"") for one in range(10) for two in range(10)}
    before, after = objects.write_files(old), objects.write_files(old | {b"7/7/f": (FILE, b"x")})
    assert [change.path for change in compare(objects.read, before, after)] == [b"7/7/f"]
    assert objects.reads == 6


def test_no_tree_is_too_deep() -> None:
    """Folders nested deeper than Python calls may be are walked like others."""
    objects = Objects()
    path = b"/".join([b"d"] * (sys.getrecursionlimit() + 100))
    before, after = (objects.write_files({path: (FILE, content)}) for content in (b"1", b"2"))
    assert [change.path for change in compare(objects.read, before, after)] == [path]


def test_what_is_no_tree_is_damage() -> None:
    """An object that cannot be a tree is never taken for an empty one."""
    objects = Objects()
    id = objects.write(BLOB, b"not a tree")
    with pytest.raises(SnapshotStoreDamaged):
        list(compare(objects.read, None, id))


ONE, TWO = "1" * 40, "2" * 40


def test_states_become_gits_modes() -> None:
    """Only the owner's right to run a file counts, and a link has no rights of its own."""
    changes = [
        Change(b"b", Present(ONE, 0o100600), Present(TWO, 0o100711)),
        Change(b"a", Absent(), Present(ONE, 0o120755)),
        Change(b"c", Present(ONE, 0o100655), Absent()),
    ]
    one, two = bytes.fromhex(ONE), bytes.fromhex(TWO)
    assert tree_changes(changes) == [
        TreeChange(b"a", None, (0o120000, one)),
        TreeChange(b"b", (0o100644, one), (0o100755, two)),
        TreeChange(b"c", (0o100644, one), None),
    ]


def test_what_git_does_not_see_is_left_out() -> None:
    """Bits that git does not keep, and paths of which one side is not known."""
    changes = [
        Change(b"a", Present(ONE, 0o100644), Present(ONE, 0o100600)),
        Change(b"b", Uncovered(Reason.IGNORED), Present(ONE, 0o100644)),
        Change(b"c", Present(ONE, 0o100644), Uncovered(Reason.LARGE)),
        Change(b"d", Absent(), Absent()),
    ]
    assert tree_changes(changes) == []
