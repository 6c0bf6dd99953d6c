"""When an index entry stands for a file: never when the bytes differ, and usually when not."""

import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.snapshot.repository.index import Entry, read_index
from kedge.snapshot.worktree.seed import entry_stands_for
from tests.engine.repositories import commit, git, repository

FIELDS = ["ctime", "ctime_ns", "mtime", "mtime_ns", "device", "inode", "mode", "owner", "group"]
FIELDS += ["size", "blob", "flags"]


def known(root: Path, name: str) -> tuple[Entry, int]:
    """The entry of a file in the root, and when the index was written."""
    index = read_index(os.fsencode(root / ".git" / "index"), 20)
    assert index is not None
    return index.entry(index.names_in(b"")[os.fsencode(name)]), index.modified


def stands(root: Path, name: str) -> bool:
    """Whether the index has the say about a file of which nothing is converted."""
    entry, modified = known(root, name)
    return entry_stands_for(entry, os.lstat(root / name), modified, False)


def wait_for_the_next_tick(path: Path) -> None:
    """Come back when whatever is written now is visibly newer than this file."""
    while time.time_ns() - os.lstat(path).st_ctime_ns < 25_000_000:
        pass


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a plain, an executable and an empty file and a link, all older than it."""
    repository(tmp_path)
    (tmp_path / "plain").write_text("1234")
    (tmp_path / "run").write_text("#!")
    (tmp_path / "run").chmod(0o755)
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to("plain")
    wait_for_the_next_tick(tmp_path / "link")
    git(tmp_path, "add", ".")
    return tmp_path


def test_files_that_did_not_change_need_not_be_read(root: Path) -> None:
    """Every kind of file that git tracks by content is known from the index."""
    assert all(stands(root, name) for name in ("plain", "run", "empty", "link"))


def test_what_git_may_convert_is_read(root: Path) -> None:
    """A blob made by a filter is not the bytes on disk; what a link says is never converted."""
    for name, expected in (("plain", False), ("link", True)):
        entry, modified = known(root, name)
        assert entry_stands_for(entry, os.lstat(root / name), modified, True) is expected


def test_a_file_as_new_as_the_index_is_read(root: Path) -> None:
    """It may have changed once more within the clock tick; older must mean strictly older."""
    entry, _ = known(root, "plain")
    found = os.lstat(root / "plain")
    newest = max(found.st_mtime_ns, found.st_ctime_ns)
    assert not entry_stands_for(entry, found, newest - 1, False)
    assert not entry_stands_for(entry, found, newest, False)
    assert entry_stands_for(entry, found, newest + 1, False)


def test_an_old_modification_time_does_not_hide_a_new_change(root: Path) -> None:
    """Whoever sets the time of a file back has still changed it just now."""
    os.utime(root / "plain", ns=(10**18, 10**18))
    git(root, "add", "plain")
    entry, _ = known(root, "plain")
    found = os.lstat(root / "plain")
    assert found.st_mtime_ns < found.st_ctime_ns
    assert not entry_stands_for(entry, found, found.st_ctime_ns, False)
    assert entry_stands_for(entry, found, found.st_ctime_ns + 1, False)


@pytest.mark.parametrize(
    "change",
    ["same size", "other size", "executable", "copy", "link", "folder", "touched", "owner"],
)
def test_any_change_on_disk_is_seen(root: Path, change: str) -> None:
    """Content, mode, kind, identity or owner: the entry stands for it no more."""
    file = root / "plain"
    match change:
        case "same size":
            file.write_text("4321")
        case "other size":
            file.write_text("12345")
        case "executable":
            file.chmod(0o755)
        case "copy":
            subprocess.run(["cp", "-p", file, root / "copy"], check=True)
            (root / "copy").replace(file)
        case "link":
            file.unlink()
            file.symlink_to("1234")
        case "folder":
            file.unlink()
            file.mkdir()
        case "touched":
            os.utime(file)
        case "owner":
            os.chown(file, os.getuid(), os.getgid())
    assert not stands(root, "plain")


@pytest.mark.parametrize("bit", ["--skip-worktree", "--assume-unchanged"])
def test_an_entry_that_git_does_not_check_is_not_trusted(root: Path, bit: str) -> None:
    """What the user told git not to look at is looked at."""
    git(root, "update-index", bit, "plain")
    assert not stands(root, "plain")


def test_a_file_that_is_only_to_be_added_is_read(root: Path) -> None:
    """The blob of such an entry is the empty one, whatever the file holds."""
    (root / "new").touch()
    git(root, "add", "--intent-to-add", "new")
    assert not stands(root, "new")


def test_a_file_in_conflict_is_read(root: Path) -> None:
    """None of the stages is what is on disk."""
    commit(root)
    for branch in ("one", "two"):
        git(root, "checkout", "-q", "-b", branch, "main")
        (root / "plain").write_text(branch)
        git(root, "commit", "-q", "-am", branch)
    with pytest.raises(subprocess.CalledProcessError):
        git(root, "merge", "-q", "one")
    assert not stands(root, "plain")


def test_a_submodule_is_no_file(root: Path) -> None:
    """A commit stands for no content."""
    inner = repository(root / "sub")
    git(root, "update-index", "--add", "--cacheinfo", f"160000,{inner},sub")
    assert not stands(root, "sub")


def test_an_entry_that_git_itself_distrusts_is_read(root: Path) -> None:
    """git notes the size 0 for it; a file that is now empty must not be taken for the old blob."""
    entry, modified = known(root, "empty")
    other = known(root, "plain")[0][10]
    assert not entry_stands_for((*entry[:10], other, entry[11]), *now(root, "empty", modified))


def test_times_without_nanoseconds_are_not_trusted(root: Path) -> None:
    """A git or a file system that counts in seconds cannot tell two changes within one."""
    entry, modified = known(root, "plain")
    found = os.lstat(root / "plain")
    for nanoseconds, expected in ((0, False), (1, True)):
        times = {"st_mtime_ns": entry[2] * 10**9, "st_ctime_ns": entry[0] * 10**9 + nanoseconds}
        coarse = os.stat_result(tuple(found), times)
        noted = (entry[0], nanoseconds, entry[2], 0, *entry[4:])
        assert entry_stands_for(noted, coarse, modified, False) is expected


def now(root: Path, name: str, modified: int) -> tuple[os.stat_result, int, bool]:
    """What there is to hold against an entry."""
    return os.lstat(root / name), modified, False


@given(place=st.integers(0, 11), bit=st.integers(0, 31))
def test_every_single_difference_counts(place: int, bit: int) -> None:
    """Any bit of what git noted that differs makes the file be read; only the device may."""
    entry, found, modified = SAMPLE
    if FIELDS[place] in ("device", "blob"):
        return
    if FIELDS[place] == "flags":
        bit = (12, 13, 15, 29, 30)[bit % 5]
    if FIELDS[place] == "mode":
        bit = (6, 12, 13, 14, 15)[bit % 5]
    changed = list(entry)
    changed[place] = int(entry[place]) ^ 1 << bit
    assert entry_stands_for(entry, found, modified, False)
    assert not entry_stands_for(tuple(changed), found, modified, False)  # type: ignore[arg-type]


def _sample() -> tuple[Entry, os.stat_result, int]:
    found = os.lstat(__file__)
    seconds, rest = divmod(found.st_mtime_ns, 10**9)
    changed, changed_rest = divmod(found.st_ctime_ns, 10**9)
    who = (found.st_dev, found.st_ino & 0xFFFFFFFF, 0o100000 | found.st_mode & 0o777)
    entry = (changed, changed_rest, seconds, rest, *who, found.st_uid, found.st_gid)
    newest = max(found.st_mtime_ns, found.st_ctime_ns)
    return (*entry, found.st_size, b"x" * 20, 0), found, newest + 1


SAMPLE = _sample()

STEPS = st.lists(
    st.sampled_from(["write a", "write b", "add", "back", "replace a", "replace b", "refresh"]),
    min_size=2,
    max_size=8,
)


@settings(max_examples=40)
@given(STEPS)
def test_an_entry_that_stands_for_a_file_has_its_bytes(steps: list[str]) -> None:
    """However quickly writes of one size, old times and `git add` follow each other."""
    with tempfile.TemporaryDirectory() as folder:
        root, file = Path(folder), Path(folder, "f")
        git(root, "init", "-q")
        file.write_text("a")
        git(root, "add", "f")
        for step in steps:
            match step.split():
                case ["write", letter]:
                    file.write_text(letter)
                case ["replace", letter]:
                    (root / "temporary").write_text(letter)
                    (root / "temporary").replace(file)
                case ["add"]:
                    git(root, "add", "f")
                case ["refresh"]:
                    git(root, "update-index", "-q", "--really-refresh")
                case ["back"]:
                    os.utime(file, ns=(10**18 + 1, 10**18 + 1))
            if stands(root, "f"):
                blob = known(root, "f")[0][10].hex()
                assert git(root, "cat-file", "blob", blob) == file.read_text()
