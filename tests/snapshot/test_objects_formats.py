"""The bytes of git's objects, held against what git itself makes of them."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.domain.errors import SnapshotStoreDamaged
from kedge.snapshot.objects import formats

names = st.binary(min_size=1, max_size=12).filter(lambda name: not {0, 47} & set(name))
modes = st.sampled_from([0o100644, 0o100755, 0o120000, 0o040000])
ids = st.binary(min_size=20, max_size=20)
trees = st.dictionaries(names, st.tuples(modes, ids), max_size=12).map(
    lambda found: [(name, mode, id) for name, (mode, id) in found.items()]
)


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    """What git answers, in a bare repository that is made when missing."""
    if not (folder / "HEAD").exists():
        subprocess.run(["git", "init", "-q", "--bare", str(folder)], check=True)
    command = ["git", "--git-dir", str(folder), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, check=True).stdout


@given(trees)
def test_trees_round_trip(entries: list[formats.Entry]) -> None:
    """A tree that was encoded parses to the same entries, whatever their order was."""
    encoded = formats.encode_tree(reversed(entries))
    assert sorted(formats.parse_tree(encoded)) == sorted(entries)
    assert formats.encode_tree(formats.parse_tree(encoded)) == encoded


def test_tree_is_the_one_git_writes(tmp_path: Path) -> None:
    """Order and id of a tree are git's, also where folders sort differently from files."""
    blob = git(tmp_path, "hash-object", "-w", "--stdin", stdin=b"x").strip()
    folder = git(tmp_path, "mktree", stdin=b"100644 blob %b\tinside\n" % blob).strip()
    entries = [(name, 0o100644, bytes.fromhex(blob.decode())) for name in (b"a.b", b"a0", b"\xff")]
    entries += [(b"a", formats.FOLDER_MODE, bytes.fromhex(folder.decode()))]
    lines = [b"100644 blob %b\t%b\0" % (blob, name) for name in (b"\xff", b"a0", b"a.b")]
    lines += [b"040000 tree %b\ta\0" % folder]
    expected = git(tmp_path, "mktree", "-z", stdin=b"".join(lines)).strip()
    encoded = formats.encode_tree(entries)
    assert formats.object_id(formats.TREE, encoded).hex().encode() == expected


@given(st.binary(max_size=100))
def test_blob_ids_do_not_depend_on_the_kind_of_buffer(data: bytes) -> None:
    """Bytes, byte arrays and views of the same content have the same id."""
    assert formats.blob_id(data) == formats.blob_id(bytearray(data))
    assert formats.blob_id(data) == formats.blob_id(memoryview(data))


def test_known_ids() -> None:
    """The empty tree and the empty blob have the ids that everybody knows."""
    assert formats.EMPTY_TREE.hex() == "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
    assert formats.EMPTY_BLOB.hex() == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


@pytest.mark.parametrize("name", [b"", b"a/b", b"a\0b"])
def test_bad_names_are_refused(name: bytes) -> None:
    """A name that git could not read back is never written."""
    with pytest.raises(ValueError, match="name"):
        formats.encode_tree([(name, 0o100644, bytes(20))])


def test_a_name_twice_is_refused() -> None:
    """A tree with one name as a file and as a folder would be no tree."""
    with pytest.raises(ValueError, match="only once"):
        formats.encode_tree([(b"a", 0o100644, bytes(20)), (b"a", 0o040000, bytes(20))])


@given(trees.filter(bool), st.data())
def test_cut_trees_are_damage(entries: list[formats.Entry], data: st.DataObject) -> None:
    """A tree that ends inside an entry is reported, not half read."""
    encoded = formats.encode_tree(entries)
    last = len(formats.encode_tree(formats.parse_tree(encoded)[:-1]))
    cut = data.draw(st.integers(min_value=last + 1, max_value=len(encoded) - 1))
    with pytest.raises(SnapshotStoreDamaged):
        formats.parse_tree(encoded[:cut])


@given(ids, st.lists(ids, max_size=3), st.integers(0, 2**33), st.binary(max_size=60))
def test_commits_round_trip(tree: bytes, parents: list[bytes], at: int, message: bytes) -> None:
    """A commit says what it was made of."""
    commit = formats.parse_commit(formats.encode_commit(tree, parents, at, message))
    expected = formats.Commit(tree=tree, parents=tuple(parents), seconds=at, message=message)
    assert commit == expected


def test_commit_is_one_for_git(tmp_path: Path) -> None:
    """Git takes the commit and shows the same author, time and message."""
    git(tmp_path, "mktree", stdin=b"")
    encoded = formats.encode_commit(formats.EMPTY_TREE, [], 1234567890, b"kedge keep 1\n\na: b\n")
    id = git(tmp_path, "hash-object", "-t", "commit", "-w", "--stdin", stdin=encoded).strip()
    assert id.decode() == formats.object_id(formats.COMMIT, encoded).hex()
    shown = git(tmp_path, "log", "--format=%an %ae %at %cn %ct %B", id.decode())
    assert (
        shown.strip() == b"kedge kedge@localhost 1234567890 kedge 1234567890 kedge keep 1\n\na: b"
    )


@pytest.mark.parametrize("data", [b"", b"tree x\n", b"blob"])
def test_what_is_no_commit_is_damage(data: bytes) -> None:
    """Bytes that are no commit are reported."""
    with pytest.raises(SnapshotStoreDamaged):
        formats.parse_commit(data)
