"""Where a folder's repository is, for every kind that git makes, odd ones and hostile ones."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.snapshot.repository.discover import find_repository
from kedge.snapshot.repository.signatures import is_settled, read_small, signature
from tests.engine.repositories import git, repository


def folders(root: Path) -> tuple[Path, Path]:
    """The real git folder and the real common folder of a worktree."""
    found = find_repository(root)
    assert found is not None
    assert found.root == os.fsencode(root)
    return tuple(  # type: ignore[return-value]
        Path(os.fsdecode(os.path.realpath(each)))
        for each in (found.git_folder, found.common_folder)
    )


def said(root: Path) -> tuple[Path, Path]:
    """The same, as git says it."""
    words = ("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir")
    first, second = git(root, *words).splitlines()
    return Path(first), Path(second)


def test_every_kind_of_worktree_is_found_where_git_finds_it(tmp_path: Path) -> None:
    """A main worktree, a linked one, a submodule and a separated one have git's own folders."""
    repository(tmp_path / "main")
    git(tmp_path / "main", "worktree", "add", "-q", str(tmp_path / "linked"))
    allow = ("-c", "protocol.file.allow=always")
    git(tmp_path / "main", *allow, "submodule", "--quiet", "add", str(tmp_path / "linked"), "sub")
    git(tmp_path, "init", "-q", f"--separate-git-dir={tmp_path}/apart", "separated")
    for name in ("main", "linked", "main/sub", "separated"):
        assert folders(tmp_path / name) == said(tmp_path / name)
    main = tmp_path / "main" / ".git"
    assert folders(tmp_path / "linked") == (main / "worktrees" / "linked", main)


def test_the_parts_of_a_linked_worktree_are_its_own_or_shared(tmp_path: Path) -> None:
    """The index is the worktree's own; objects, excludes and attributes are everybody's."""
    repository(tmp_path / "main")
    git(tmp_path / "main", "worktree", "add", "-q", str(tmp_path / "linked"))
    found = find_repository(tmp_path / "linked")
    assert found is not None
    for ours, name in (
        (found.index_file, "index"),
        (found.objects_folder, "objects"),
        (found.excludes_file, "info/exclude"),
        (found.attributes_file, "info/attributes"),
    ):
        theirs = git(tmp_path / "linked", "rev-parse", "--path-format=absolute", "--git-path", name)
        assert os.path.realpath(ours) == os.fsencode(theirs)


def test_only_the_root_of_a_worktree_counts(tmp_path: Path) -> None:
    """A folder below the root, and a bare repository, are nobody's worktree."""
    repository(tmp_path / "main")
    (tmp_path / "main" / "below").mkdir()
    git(tmp_path, "init", "-q", "--bare", "bare")
    for name in ("main/below", "bare", "missing"):
        assert find_repository(tmp_path / name) is None


def test_a_linked_git_folder_is_read_through(tmp_path: Path) -> None:
    """A `.git` that is a symlink, and a HEAD that is one to a branch not yet born, are git's."""
    repository(tmp_path / "real", 0)
    (tmp_path / "real" / ".git" / "HEAD").unlink()
    (tmp_path / "real" / ".git" / "HEAD").symlink_to("refs/heads/main")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".git").symlink_to(tmp_path / "real" / ".git")
    assert folders(tmp_path / "other") == (tmp_path / "real" / ".git",) * 2


def test_a_relative_folder_is_one_of_the_present_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path counts from where the process is, and the answer is absolute."""
    repository(tmp_path / "main")
    monkeypatch.chdir(tmp_path)
    for spelled in ("main", b"main", Path("main")):
        found = find_repository(spelled)
        assert found is not None
        assert found.root == os.fsencode(tmp_path / "main")


def put_oddity(entry: Path, odd: str) -> None:
    """Make a `.git` that is none."""
    match odd:
        case "pipe":
            os.mkfifo(entry)
        case "loop":
            entry.symlink_to(".git")
        case "device link":
            entry.symlink_to("/dev/zero")
        case "folder with a pipe":
            entry.mkdir()
            os.mkfifo(entry / "HEAD")
        case "folder with a loop":
            entry.mkdir()
            (entry / "HEAD").symlink_to("HEAD")
        case "empty folder":
            entry.mkdir()
        case "huge":
            entry.write_bytes(b"gitdir: ")
            os.truncate(entry, 1 << 40)
        case text:
            entry.write_bytes(b"gitdir: " + text.encode())


ODD = ["pipe", "loop", "device link", "folder with a pipe", "folder with a loop", "empty folder"]
ODD += ["huge", "", "\n", "\0", "/dev/zero\n", "/dev", "x" * 5000, ".git\n", "a\0b\n", "nowhere"]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd[:20]))
def test_what_is_no_repository_is_none(tmp_path: Path, odd: str) -> None:
    """Pipes, loops, devices and files that name nonsense end in "none", at once."""
    put_oddity(tmp_path / ".git", odd)
    assert find_repository(tmp_path) is None


@pytest.mark.parametrize("content", [b"\0", b"x" * 100_000, b""])
def test_a_common_folder_that_is_nonsense_is_not_followed_far(
    tmp_path: Path, content: bytes
) -> None:
    """A `commondir` that names nothing leaves the repository what it is: itself."""
    repository(tmp_path)
    (tmp_path / ".git" / "commondir").write_bytes(content)
    assert folders(tmp_path) == (tmp_path / ".git",) * 2


@given(st.binary(max_size=40))
def test_no_content_of_a_git_file_is_an_error(content: bytes) -> None:
    """Whatever bytes a `.git` file names, there is an answer."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ".git").write_bytes(b"gitdir: " + content)
        assert find_repository(folder) is None


def test_a_small_file_is_read_and_anything_else_is_not(tmp_path: Path) -> None:
    """Only a regular file within the limit is read; a link to one is followed."""
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "zero").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    here = os.fsencode(tmp_path) + b"/"
    assert [read_small(here + name, 5) for name in (b"file", b"link")] == [b"12345"] * 2
    assert read_small(here + b"file", 4) is None
    for name in (b"zero", b"pipe", b"missing", b"", b"a\0b", b"x" * 300):
        assert read_small(here + name, 5) is None


def test_a_file_that_says_it_is_empty_is_read_within_the_limit() -> None:
    """A file of the kernel has no size; it is read all the same, and no further than allowed."""
    content = read_small(b"/proc/self/status", 1 << 20)
    assert content is not None
    assert content.startswith(b"Name:")
    assert read_small(b"/proc/self/status", 10) is None


def test_a_file_that_just_changed_is_not_settled(tmp_path: Path) -> None:
    """A signature from within the clock tick of a change cannot tell a second change."""
    path = os.fsencode(tmp_path / "file")
    assert is_settled(signature(path), 0)
    Path(os.fsdecode(path)).write_bytes(b"1")
    seen = signature(path)
    assert seen is not None
    changed = seen[-1]
    assert not is_settled(seen, changed)
    assert not is_settled(seen, changed + 10_000_000)
    assert is_settled(seen, changed + 3_000_000_000)
    assert is_settled((*seen[:-1], changed + 10**13 + 1), changed)
