"""Where HEAD stands, compared with what git says, for every form that git keeps it in."""

import os
import resource
import shutil
import time
from pathlib import Path

import pytest

from kedge.snapshot.repository import head as head_module
from kedge.snapshot.repository.discover import Repository, find_repository
from kedge.snapshot.repository.head import read_head
from kedge.snapshot.values import Head
from tests.engine.repositories import commit, git, repository


def opened(root: Path) -> Repository:
    """The repository of a worktree that has one."""
    found = find_repository(root)
    assert found is not None
    return found


def ours(root: Path) -> Head:
    """HEAD as kedge reads it."""
    return read_head(opened(root))


def as_git_says(root: Path) -> Head:
    """HEAD as git tells it."""
    answers = []
    for words in ("symbolic-ref -q HEAD", "rev-parse -q --verify HEAD"):
        answers.append(git(root, "-c", "alias.ask=!git " + words + " || :", "ask") or None)
    return Head(ref=answers[0], commit=answers[1])


def test_head_is_what_git_says_at_every_turn(tmp_path: Path) -> None:
    """Unborn, committed, packed, moved on, detached, and with a branch named like a folder."""
    repository(tmp_path, 0)
    assert ours(tmp_path) == as_git_says(tmp_path) == Head(ref="refs/heads/main")
    first = commit(tmp_path)
    assert ours(tmp_path) == Head(ref="refs/heads/main", commit=first)
    git(tmp_path, "branch", "other/deep")
    git(tmp_path, "pack-refs", "--all")
    assert not (tmp_path / ".git" / "refs" / "heads" / "main").exists()
    assert ours(tmp_path) == as_git_says(tmp_path) == Head(ref="refs/heads/main", commit=first)
    second = commit(tmp_path, "two")
    assert ours(tmp_path) == Head(ref="refs/heads/main", commit=second)
    git(tmp_path, "checkout", "-q", "other/deep")
    assert ours(tmp_path) == Head(ref="refs/heads/other/deep", commit=first)
    git(tmp_path, "checkout", "-q", "--detach", "main")
    assert ours(tmp_path) == as_git_says(tmp_path) == Head(commit=second)


def test_a_branch_packed_again_is_read_again(tmp_path: Path) -> None:
    """What was remembered of packed refs does not outlive them."""
    repository(tmp_path)
    for number in range(5):
        now = commit(tmp_path, str(number))
        git(tmp_path, "pack-refs", "--all")
        # Old enough to be remembered.
        wait_until_settled(tmp_path / ".git" / "packed-refs")
        assert [ours(tmp_path).commit for _ in range(2)] == [now, now]


def test_a_branch_that_moved_behind_its_times_is_read_again(tmp_path: Path) -> None:
    """As long as before, with the old time of modification: what was remembered does not count."""
    repository(tmp_path)
    first, second = commit(tmp_path, "one"), commit(tmp_path, "two")
    branch = tmp_path / ".git/refs/heads/main"
    wait_until_settled(branch)
    assert [ours(tmp_path).commit for _ in range(2)] == [second, second]
    then = branch.stat()
    branch.write_text(first + "\n")
    os.utime(branch, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert ours(tmp_path).commit == first
    wait_until_settled(branch)
    assert ours(tmp_path).commit == first


def test_a_branch_that_could_not_be_opened_is_tried_again(tmp_path: Path) -> None:
    """That there was no descriptor left once is not remembered of the file."""
    repository(tmp_path)
    now, place = commit(tmp_path), opened(tmp_path)
    wait_until_settled(tmp_path / ".git/refs/heads/main")
    wait_until_settled(tmp_path / ".git/HEAD")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        without = read_head(place)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert without.commit is None
    assert read_head(place) == Head(ref="refs/heads/main", commit=now)


def wait_until_settled(path: Path) -> None:
    """Come back when a further change of the file would show."""
    while time.time_ns() - path.stat().st_ctime_ns < 25_000_000:
        pass


def test_each_worktree_has_its_own_head(tmp_path: Path) -> None:
    """A linked worktree's HEAD is its own, its branches are shared, its bisection is not."""
    repository(tmp_path / "main", 2)
    git(tmp_path / "main", "worktree", "add", "-q", "-b", "side", str(tmp_path / "linked"))
    commit(tmp_path / "linked", "on the side")
    for name in ("main", "linked"):
        assert ours(tmp_path / name) == as_git_says(tmp_path / name)
    first = git(tmp_path / "main", "rev-parse", "main~1")
    git(tmp_path / "linked", "update-ref", "refs/bisect/bad", first)
    git(tmp_path / "linked", "symbolic-ref", "HEAD", "refs/bisect/bad")
    assert ours(tmp_path / "linked") == Head(ref="refs/bisect/bad", commit=first)
    assert ours(tmp_path / "linked") == as_git_says(tmp_path / "linked")


def test_a_submodule_has_its_own_head(tmp_path: Path) -> None:
    """The HEAD of a submodule is read through its `.git` file."""
    inner = repository(tmp_path / "inner")
    repository(tmp_path / "outer")
    allow = ("-c", "protocol.file.allow=always")
    git(tmp_path / "outer", *allow, "submodule", "--quiet", "add", str(tmp_path / "inner"), "sub")
    assert ours(tmp_path / "outer" / "sub") == Head(ref="refs/heads/main", commit=inner)


def test_symbolic_refs_are_followed_as_git_follows_them(tmp_path: Path) -> None:
    """A branch that stands for another, written as text or as a link, leads to that one."""
    first = repository(tmp_path)
    git(tmp_path, "symbolic-ref", "refs/heads/alias", "refs/heads/main")
    git(tmp_path, "symbolic-ref", "HEAD", "refs/heads/alias")
    assert ours(tmp_path) == as_git_says(tmp_path) == Head(ref="refs/heads/main", commit=first)
    (tmp_path / ".git" / "HEAD").unlink()
    (tmp_path / ".git" / "HEAD").symlink_to("refs/heads/alias")
    assert ours(tmp_path) == as_git_says(tmp_path) == Head(ref="refs/heads/main", commit=first)


def test_sha_256_commits_are_read(tmp_path: Path) -> None:
    """A commit id of 64 digits is one, loose and packed."""
    git(tmp_path, "init", "-q", "-b", "main", "--object-format=sha256")
    first = commit(tmp_path)
    assert len(first) == 64
    assert ours(tmp_path).commit == first
    git(tmp_path, "pack-refs", "--all")
    assert ours(tmp_path).commit == first


def test_a_branch_name_that_is_not_utf_8_can_be_stored(tmp_path: Path) -> None:
    """The name of such a branch becomes text that any database takes."""
    first = repository(tmp_path)
    heads = os.fsencode(tmp_path / ".git") + b"/refs/heads/"
    Path(os.fsdecode(heads + b"\xff\xe4")).write_text(first + "\n")
    (tmp_path / ".git" / "HEAD").write_bytes(b"ref: refs/heads/\xff\xe4\n")
    found = ours(tmp_path)
    assert found.commit == first
    assert found.ref is not None
    assert found.ref.encode() == rb"refs/heads/\xff\xe4"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\0",
        b"nonsense",
        b"ref: ",
        b"ref: /etc/passwd",
        b"ref: refs/../../../../etc/passwd",
        b"ref: refs/heads/a\nb",
        b"ref: refs/heads/\0",
        b"ref: heads/main",
        b"0" * 39,
        b"0" * 41,
        b"f" * 5000,
    ],
)
def test_a_head_that_is_nonsense_says_nothing(tmp_path: Path, text: bytes) -> None:
    """A HEAD that git would not accept is unknown; no file outside of the refs is read."""
    repository(tmp_path)
    (tmp_path / ".git" / "HEAD").write_bytes(text)
    assert ours(tmp_path) == Head()


def test_refs_that_lead_nowhere_end(tmp_path: Path) -> None:
    """A circle of symbolic refs, a pipe and a device in place of a branch end in no commit."""
    repository(tmp_path)
    main = tmp_path / ".git" / "refs" / "heads" / "main"
    main.write_text("ref: refs/heads/main\n")
    assert ours(tmp_path) == Head()
    main.unlink()
    os.mkfifo(main)
    assert ours(tmp_path) == Head(ref="refs/heads/main")
    main.unlink()
    main.symlink_to("/dev/zero")
    assert ours(tmp_path) == Head(ref="refs/heads/main")
    main.unlink()
    main.write_text("not a commit\n")
    assert ours(tmp_path) == Head(ref="refs/heads/main")


def test_a_damaged_list_of_packed_refs_gives_no_commit(tmp_path: Path) -> None:
    """A line without a commit, a pipe and a name that only ends alike are no answer."""
    first = repository(tmp_path)
    git(tmp_path, "pack-refs", "--all")
    packed = tmp_path / ".git" / "packed-refs"
    for content in (
        b"zz refs/heads/main\n",
        b" refs/heads/main\n",
        f"{first} refs/heads/x/refs/heads/main\n".encode(),
        f"{first} refs/heads/main2\n".encode(),
    ):
        packed.write_bytes(content)
        assert ours(tmp_path) == Head(ref="refs/heads/main")
    packed.unlink()
    os.mkfifo(packed)
    assert ours(tmp_path) == Head(ref="refs/heads/main")


def test_a_hundred_thousand_packed_refs_are_searched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list is read when it changed, not for every snapshot."""
    first = repository(tmp_path)
    packed = tmp_path / ".git" / "packed-refs"
    lines = [f"{first} refs/tags/{number:06}\n" for number in range(100_000)]
    packed.write_text("".join([f"{first} refs/heads/main\n", *lines]))
    (tmp_path / ".git" / "refs" / "heads" / "main").unlink()
    wait_until_settled(packed)
    searches = []
    search = head_module._search

    def counted(path: bytes, name: bytes) -> str | None:
        searches.append(name)
        return search(path, name)

    monkeypatch.setattr(head_module, "_search", counted)
    for _ in range(20):
        assert ours(tmp_path) == Head(ref="refs/heads/main", commit=first)
    assert searches == [b"refs/heads/main"]


def test_refs_kept_in_tables_are_asked_of_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a HEAD that only says the refs are elsewhere, git is asked; once for each change.

    The git of this machine may know no tables, so a script of that name answers here.
    """
    repository(tmp_path / "r")
    (tmp_path / "r" / ".git" / "HEAD").write_text("ref: refs/heads/.invalid\n")
    (tmp_path / "r" / ".git" / "reftable").mkdir()
    tables = tmp_path / "r" / ".git" / "reftable" / "tables.list"
    tables.write_text("one\n")
    stand_in(tmp_path, monkeypatch, "a")
    wait_until_settled(tables)
    asked = [ours(tmp_path / "r") for _ in range(3)]
    assert asked == [Head(ref="refs/heads/main", commit="a" * 40)] * 3
    assert (tmp_path / "asked").read_text().splitlines() == ["symbolic-ref", "rev-parse"]
    tables.write_text("two\n")
    stand_in(tmp_path, monkeypatch, "b")
    assert ours(tmp_path / "r") == Head(ref="refs/heads/main", commit="b" * 40)


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, digit: str) -> None:
    """Put a git of our own in front, that notes what it was asked."""
    script = folder / "bin" / "git"
    script.parent.mkdir(exist_ok=True)
    script.write_text(
        f"""#!/bin/sh
        echo "$3" >> {folder}/asked
        case "$3" in
            symbolic-ref) echo refs/heads/main ;;
            rev-parse) echo {digit * 40} ;;
        esac
        """
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")


def test_refs_that_git_cannot_read_either_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository of a form that git refuses, or no git at all, is no error."""
    repository(tmp_path / "r")
    (tmp_path / "r" / ".git" / "HEAD").write_text("ref: refs/heads/.invalid\n")
    assert ours(tmp_path / "r") == Head()
    shutil.copytree(tmp_path / "r", tmp_path / "other")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ours(tmp_path / "other") == Head()
