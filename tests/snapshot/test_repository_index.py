"""The index as kedge reads it, compared with what git lists, for every form that git writes."""

import hashlib
import os
import random
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.domain.errors import InvariantBroken
from kedge.snapshot.repository.index import DamagedIndex, Entry, GitIndex, read_index
from tests.engine.repositories import commit, git, repository

# As git shows them: in conflict, assumed unchanged, to be added, not checked out.
SHOWN_FLAGS = 0x3000 | 0x8000 | 1 << 29 | 1 << 30
LISTED = re.compile(
    rb"(\d+) ([0-9a-f]+) (\d)\t([^\0]+)\0"
    rb"  ctime: (\d+):(\d+)\n  mtime: (\d+):(\d+)\n  dev: (\d+)\tino: (\d+)\n"
    rb"  uid: (\d+)\tgid: (\d+)\n  size: (\d+)\tflags: ([0-9a-f]+)\n"
)


def opened(root: Path, hash_length: int = 20) -> GitIndex:
    """The index of a worktree, which is there and in order."""
    found = read_index(os.fsencode(root / ".git" / "index"), hash_length)
    assert found is not None
    return found


def feed(root: Path, content: bytes, *words: str) -> bytes:
    """Run git with something on its standard input; gives its bytes."""
    return subprocess.run(
        ["git", *words], cwd=root, input=content, check=True, capture_output=True
    ).stdout


def entries(index: GitIndex) -> dict[bytes, Entry]:
    """Every entry by path, with the flags that git shows."""
    found = {}
    for folder, names in index.folders.items():
        for name, place in names.items():
            *fields, flags = index.entry(place)
            path = folder + b"/" + name if folder else name
            found[path] = (*fields, flags & SHOWN_FLAGS)
    return found  # type: ignore[return-value]


def listed(root: Path) -> dict[bytes, Entry]:
    """The same as git lists it; of a path in conflict the last stage."""
    found = {}
    for shown in LISTED.findall(feed(root, b"", "ls-files", "--stage", "--debug", "-z")):
        mode, id, _, path, *rest, flags = shown
        ctime, ctime_ns, mtime, mtime_ns, device, inode, owner, group, size = map(int, rest)
        times = (ctime, ctime_ns, mtime, mtime_ns)
        who = (device, inode, int(mode, 8), owner, group, size)
        found[path] = (*times, *who, bytes.fromhex(id.decode()), int(flags, 16) & SHOWN_FLAGS)
    return found


def write(root: Path, *names: str) -> None:
    """Files that hold their own name."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(os.fsencode(name))


# A hyphen sorts before the slash and a letter after it, so that folders are left and come again.
PART = st.text("ab- \n\udcff\u00e9", min_size=1, max_size=5).filter(lambda name: name[0] != "-")
PATH = st.lists(PART, min_size=1, max_size=5).map("/".join)


@st.composite
def trees(draw: st.DrawFn) -> list[str]:
    """Paths of which none is a folder of another."""
    paths = draw(st.sets(PATH, max_size=25))
    return sorted(
        path for path in paths if not any(other.startswith(path + "/") for other in paths)
    )


@settings(max_examples=30)
@given(
    paths=trees(),
    version=st.sampled_from("234"),
    form=st.sampled_from(["sha1", "sha256"]),
    choose=st.randoms(use_true_random=False),
)
def test_any_index_reads_as_git_lists_it(
    paths: list[str], version: str, form: str, choose: random.Random
) -> None:
    """Paths, stat data, ids and flags are the same in every version and object format."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        git(root, "init", "-q", f"--object-format={form}")
        git(root, "update-index", "--index-version", version)
        for path in paths:
            write(root, path)
            action = choose.choice(["add", "add", "add", "intend", "skip", "assume", "leave"])
            given = os.fsencode(path) + b"\0"
            if action == "intend":
                git(root, "add", "--intent-to-add", "--", path)
            elif action != "leave":
                feed(root, given, "update-index", "--add", "-z", "--stdin")
            if action == "skip":
                feed(root, given, "update-index", "--skip-worktree", "-z", "--stdin")
            if action == "assume":
                feed(root, given, "update-index", "--assume-unchanged", "-z", "--stdin")
        if not (root / ".git" / "index").exists():
            return
        index = opened(root, 20 if form == "sha1" else 32)
        expected = listed(root)
        assert entries(index) == expected
        assert sorted(index.paths()) == sorted(expected)
        assert index.usable_for_seeding is (form == "sha1")
        above = {path[: match.start()] for path in expected for match in re.finditer(b"/", path)}
        assert set(index.folders) == above | {b""}
        assert all(index.tracks(path) and not index.tracks_below(path) for path in expected)
        assert all(index.tracks_below(each) and not index.tracks(each) for each in above)


def test_a_folder_without_an_index_has_none(tmp_path: Path) -> None:
    """Before the first `git add` there is no index, and that is no damage."""
    repository(tmp_path, 0)
    assert read_index(os.fsencode(tmp_path / ".git" / "index"), 20) is None
    assert read_index(os.fsencode(tmp_path / "missing" / "index"), 20) is None


def test_an_index_without_entries_is_one(tmp_path: Path) -> None:
    """Nothing tracked is an answer too."""
    repository(tmp_path)
    git(tmp_path, "read-tree", "--empty")
    index = opened(tmp_path)
    assert list(index.paths()) == []
    assert index.names_in(b"any") == {}
    assert index.usable_for_seeding


def test_long_names_are_read_whole(tmp_path: Path) -> None:
    """Names beyond the length that an entry can state, and long common beginnings, are right."""
    repository(tmp_path)
    blob = feed(tmp_path, b"x", "hash-object", "-w", "--stdin").strip()
    parts = [b"d" * 200] * 25
    paths = [b"/".join(parts[:depth]) + b"-" + b"n" * depth * 9 for depth in range(1, 26)]
    lines = b"".join(b"100644 %s\t%s\0" % (blob, path) for path in [*paths, b"e", b"f" * 300])
    feed(tmp_path, lines, "update-index", "-z", "--index-info")
    for version in ("2", "4"):
        git(tmp_path, "update-index", "--index-version", version)
        assert entries(opened(tmp_path)) == listed(tmp_path)


def test_an_index_written_by_several_threads_is_read(tmp_path: Path) -> None:
    """The blocks and offsets that git adds for its own threads change nothing."""
    repository(tmp_path)
    git(tmp_path, "config", "index.threads", "3")
    blob = feed(tmp_path, b"x", "hash-object", "-w", "--stdin").strip()
    paths = [b"folder%d/below/name%d" % (number % 300, number) for number in range(25_000)]
    lines = b"".join(b"100644 %s\t%s\0" % (blob, path) for path in paths)
    for version in ("2", "4"):
        git(tmp_path, "update-index", "--force-write-index", "--index-version", version)
        feed(tmp_path, lines, "update-index", "-z", "--index-info")
        content = (tmp_path / ".git" / "index").read_bytes()
        assert b"IEOT" in content
        assert b"EOIE" in content
        assert sorted(opened(tmp_path).paths()) == sorted(paths)


def test_a_path_in_conflict_is_tracked_and_marked(tmp_path: Path) -> None:
    """All stages of a path are one name, and its flags show that it is in conflict."""
    repository(tmp_path)
    write(tmp_path, "f", "g")
    git(tmp_path, "add", ".")
    commit(tmp_path)
    for branch in ("one", "two"):
        git(tmp_path, "checkout", "-q", "-b", branch, "main")
        (tmp_path / "f").write_text(branch)
        git(tmp_path, "commit", "-q", "-am", branch)
    with pytest.raises(subprocess.CalledProcessError):
        git(tmp_path, "merge", "-q", "one")
    index = opened(tmp_path)
    assert entries(index) == listed(tmp_path)
    assert entries(index)[b"f"][11] & 0x3000
    assert not entries(index)[b"g"][11] & 0x3000


def test_a_submodule_is_a_tracked_name(tmp_path: Path) -> None:
    """What git tracks of it is a commit; nothing is tracked below it."""
    repository(tmp_path / "inner")
    repository(tmp_path / "r")
    allow = ("-c", "protocol.file.allow=always")
    git(tmp_path / "r", *allow, "submodule", "--quiet", "add", str(tmp_path / "inner"), "d/sub")
    index = opened(tmp_path / "r")
    assert index.tracks(b"d/sub")
    assert not index.tracks_below(b"d/sub")
    assert index.entry(index.names_in(b"d")[b"sub"])[6] == 0o160000
    assert read_index(os.fsencode(tmp_path / "r/.git/modules/d/sub/index"), 20) is not None


def test_a_split_index_gives_the_names_of_both_halves(tmp_path: Path) -> None:
    """Shared, replaced and new names are tracked; none of the entries may stand for a file."""
    repository(tmp_path)
    write(tmp_path, "a/old", "a/gone", "b", "c")
    git(tmp_path, "add", ".")
    git(tmp_path, "config", "splitIndex.maxPercentChange", "100")
    git(tmp_path, "update-index", "--split-index")
    (tmp_path / "b").write_text("changed")
    write(tmp_path, "d/new")
    git(tmp_path, "add", "b", "d/new")
    git(tmp_path, "rm", "-q", "--cached", "a/gone")
    index = opened(tmp_path)
    assert not index.usable_for_seeding
    assert set(index.paths()) == set(listed(tmp_path)) | {b"a/gone"}
    assert index.tracks_below(b"a")
    with pytest.raises(InvariantBroken):
        index.entry(index.names_in(b"a")[b"old"])
    git(tmp_path, "update-index", "--no-split-index")
    assert opened(tmp_path).usable_for_seeding
    assert entries(opened(tmp_path)) == listed(tmp_path)


@pytest.mark.parametrize("damage", ["missing", "other", "pipe", "split again"])
def test_a_split_index_without_its_other_half_is_damaged(tmp_path: Path, damage: str) -> None:
    """Half of the names would be none, so there is no answer."""
    repository(tmp_path)
    write(tmp_path, "a")
    git(tmp_path, "add", ".")
    git(tmp_path, "update-index", "--split-index")
    (shared,) = (tmp_path / ".git").glob("sharedindex.*")
    own = (tmp_path / ".git" / "index").read_bytes()
    shared.rename(tmp_path / "away")
    match damage:
        case "other":
            shared.write_bytes(b"nonsense" * 10)
        case "pipe":
            os.mkfifo(shared)
        case "split again":
            shared.write_bytes(own)
    with pytest.raises(DamagedIndex):
        opened(tmp_path)


def test_a_sparse_index_gives_the_names_it_has(tmp_path: Path) -> None:
    """Folders that are left out have no names here, and no entry may stand for a file."""
    repository(tmp_path)
    write(tmp_path, "in/a", "in/deep/b", "out/c", "out/deep/d", "top")
    git(tmp_path, "add", ".")
    commit(tmp_path)
    git(tmp_path, "sparse-checkout", "set", "--cone", "--sparse-index", "in")
    assert b"sdir" in (tmp_path / ".git" / "index").read_bytes()
    index = opened(tmp_path)
    assert not index.usable_for_seeding
    assert set(index.paths()) == {b"in/a", b"in/deep/b", b"top"}
    git(tmp_path, "sparse-checkout", "reapply", "--no-sparse-index")
    full = opened(tmp_path)
    assert full.usable_for_seeding
    assert entries(full) == listed(tmp_path)
    assert entries(full)[b"out/c"][11] & 1 << 30


def sealed(content: bytes) -> bytes:
    """An index with the checksum that fits."""
    return content + hashlib.sha1(content).digest()


@pytest.fixture
def sample(tmp_path: Path) -> bytes:
    """An index with folders, cached trees and extended flags."""
    repository(tmp_path)
    write(tmp_path, "a/b/one", "a/two", "three", "z/four")
    git(tmp_path, "add", ".")
    commit(tmp_path)
    git(tmp_path, "update-index", "--skip-worktree", "a/two")
    return (tmp_path / ".git" / "index").read_bytes()


def test_the_checksum_is_looked_at(tmp_path: Path, sample: bytes) -> None:
    """One changed byte is damage; a checksum of zeros is how git leaves it out."""
    path = tmp_path / ".git" / "index"
    path.write_bytes(sample[:40] + bytes([sample[40] ^ 1]) + sample[41:])
    with pytest.raises(DamagedIndex):
        opened(tmp_path)
    path.write_bytes(sample[:-20] + bytes(20))
    assert opened(tmp_path).usable_for_seeding
    path.write_bytes(sample)
    with pytest.raises(DamagedIndex):
        opened(tmp_path, 32)


@pytest.mark.parametrize("content", [b"", b"DIRC", bytes(20), bytes(64), b"DIRC" * 20])
def test_what_is_no_index_is_damage(tmp_path: Path, content: bytes) -> None:
    """An empty file, zeros and nonsense are told apart from a missing index."""
    repository(tmp_path)
    for bytes_ in (content, sealed(content)):
        (tmp_path / ".git" / "index").write_bytes(bytes_)
        with pytest.raises(DamagedIndex):
            opened(tmp_path)


def test_an_index_that_is_no_file_is_damage(tmp_path: Path) -> None:
    """A pipe, a device, a loop, a file of a terabyte and a folder are not read."""
    path = tmp_path / "index"
    for odd in ("pipe", "/dev/zero", "index", "huge"):
        if odd == "pipe":
            os.mkfifo(path)
        elif odd == "huge":
            path.touch()
            os.truncate(path, 1 << 40)
        else:
            path.symlink_to(odd)
        with pytest.raises(DamagedIndex):
            read_index(os.fsencode(path), 20)
        path.unlink()
    path.mkdir()
    with pytest.raises(DamagedIndex):
        read_index(os.fsencode(path), 20)


def header(version: int, count: int) -> bytes:
    """How an index begins."""
    return b"DIRC" + version.to_bytes(4) + count.to_bytes(4)


HOSTILE = {
    "more entries than bytes": header(2, 0xFFFFFFFF) + bytes(72),
    "no end of a name": header(2, 1) + bytes(60) + b"\0\1" + b"x" * 40,
    "no path to build on": header(4, 1) + bytes(62) + b"\x05a\0",
    "a number without end": header(4, 1) + bytes(62) + b"\xff" * 50,
    "an unknown version": header(5, 0),
    "an extension too long": header(2, 0) + b"TREE\xff\xff\xff\xff",
    "an extension cut short": header(2, 0) + b"TRE",
    "an extension to understand": header(2, 0) + b"next\0\0\0\0",
    "a folder in every byte": header(2, 9) + (bytes(62) + b"/" * 1_000_001 + b"\0") * 9,
    "a path that only grows": header(4, 9) + (bytes(62) + b"\0" + b"a/" * 5000 + b"\0") * 9,
    "folders without end": header(4, 20_000)
    + b"".join(bytes(62) + b"\x02%c/\0" % (97 + n % 2) for n in range(20_000)),
}


@pytest.mark.parametrize("trick", sorted(HOSTILE))
def test_a_hostile_index_is_damage(tmp_path: Path, trick: str) -> None:
    """Counts, lengths and paths that lie are found out, whatever the checksum says."""
    (tmp_path / "index").write_bytes(sealed(HOSTILE[trick]))
    with pytest.raises(DamagedIndex):
        read_index(os.fsencode(tmp_path / "index"), 20)


def test_no_damage_goes_unnoticed_or_unnamed(tmp_path: Path, sample: bytes) -> None:
    """Whatever byte is changed, cut off or put in, the answer is an index or `DamagedIndex`."""
    path = tmp_path / "index"

    @settings(max_examples=300)
    @given(
        place=st.integers(0, len(sample) - 21),
        cut=st.integers(0, 40),
        put=st.binary(max_size=40),
    )
    def damaged(place: int, cut: int, put: bytes) -> None:
        path.write_bytes(sealed(sample[:place] + put + sample[place + cut : -20]))
        try:
            index = read_index(os.fsencode(path), 20)
            assert index is not None
        except DamagedIndex:
            return
        if index.usable_for_seeding:
            assert all(len(index.entry(index.names_in(f)[n])) == 12 for f, n in names(index))

    damaged()


def names(index: GitIndex) -> Iterator[tuple[bytes, bytes]]:
    """Every name with its folder."""
    for folder, below in index.folders.items():
        for name in below:
            yield folder, name
