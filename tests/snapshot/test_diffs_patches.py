"""Patch texts are those of the real git and, where only one is shortest, of the real jsdiff."""

import json
from base64 import b64decode
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given

from kedge.domain.sessions import FileDiff
from kedge.snapshot.diffs.lines import MOST_BYTES, are_comparable
from kedge.snapshot.diffs.patches import file_diff, file_diffs, git_diff, quoted
from kedge.snapshot.diffs.trees import TreeChange, compare
from tests.snapshot.made_trees import FILE, LINK, PROGRAM, Files, Git, Objects, contents, worktrees

RECORDED = json.loads((Path(__file__).parent / "recorded_patches.json").read_text())["cases"]


@pytest.fixture(scope="module")
def git(tmp_path_factory: pytest.TempPathFactory) -> Git:
    """A repository for the real git."""
    return Git(tmp_path_factory.mktemp("git"))


def changes_between(objects: Objects, old: Files, new: Files) -> list[TreeChange]:
    """The changes between two trees that are written first."""
    return list(compare(objects.read, objects.write_files(old), objects.write_files(new)))


def content(recorded: str | None) -> bytes | None:
    """A side of a recorded case."""
    return None if recorded is None else b64decode(recorded)


@pytest.mark.parametrize("case", RECORDED, ids=[case["name"] for case in RECORDED])
def test_file_diffs_are_what_jsdiff_makes(case: dict[str, Any]) -> None:
    """Where several answers are the shortest, ours has the same head and as many of each line."""
    diff = file_diff(case["file"].encode(), content(case["old"]), content(case["new"]))
    assert diff.patch is not None
    ours, theirs = diff.patch.split("\n"), case["patch"].split("\n")
    if case["several"]:
        assert ours[:5] == theirs[:5]
        ours, theirs = ([line[:1] for line in lines[5:]] for lines in (ours, theirs))
        assert Counter(ours) == Counter(theirs)
    else:
        assert ours == theirs


@given(contents())
def test_a_file_diff_leads_from_one_content_to_the_other(pair: tuple[bytes, bytes]) -> None:
    """With whole files as context, the lines of either side are the file."""
    old, new = pair
    diff = file_diff(b"f", old, new)
    if not are_comparable(old, new):
        assert (diff.patch, diff.additions, diff.deletions) == ("", 0, 0)
        return
    assert diff.patch is not None
    lines = diff.patch.split("\n")[5:-1]
    if old != new:
        assert _side(lines, "-") == old.decode(errors="replace")
        assert _side(lines, "+") == new.decode(errors="replace")


def _side(lines: list[str], sign: str) -> str:
    text = ""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line[0] in (" ", sign):
            text += line[1:] + ("" if following.startswith("\\") else "\n")
    return text


@given(worktrees())
def test_file_diffs_count_what_git_counts(git: Git, trees: tuple[Files, Files]) -> None:
    """Files, additions, deletions and status are those of `git diff`."""
    objects = Objects()
    changes = changes_between(objects, *trees)
    with git.holding(objects):
        old, new = (objects.write_files(files) for files in trees)
        numbers = git.diff(old, new, "--numstat", "-z").split(b"\0")[:-1]
        statuses = git.diff(old, new, "--name-status", "-z").split(b"\0")[:-1:2]
    said = {b"A": "added", b"D": "deleted", b"M": "modified", b"T": "modified"}
    assert [
        (diff.additions, diff.deletions, diff.file, diff.status)
        for diff in file_diffs(changes, objects.read)
    ] == [
        (*_numbers(added, deleted), name.decode(errors="replace"), said[status])
        for (added, deleted, name), status in zip(
            (line.split(b"\t", 2) for line in numbers), statuses, strict=True
        )
    ]


def _numbers(added: bytes, deleted: bytes) -> tuple[int, int]:
    return (0, 0) if added == b"-" else (int(added), int(deleted))


@given(worktrees())
@example(({b"f": (FILE, b"x\n")}, {b"f": (PROGRAM, b"x\n")}))
@example(({b"f": (FILE, b"x\n")}, {b"f": (PROGRAM, b"y\n")}))
@example(({b"f": (FILE, b"x\n")}, {b"f": (LINK, b"x\n")}))
@example(({b"f": (LINK, b"x")}, {b"f": (LINK, b"y")}))
@example(({b"a": (FILE, b"x\n"), b"a.b": (FILE, b"")}, {b"a/a": (FILE, b"x\n")}))
@example(({b"a b": (FILE, b"\0")}, {b"a\tb": (FILE, b"\0"), b'"': (FILE, b"x")}))
def test_git_diff_is_what_git_prints(git: Git, trees: tuple[Files, Files]) -> None:
    """The text is that of `git diff`, byte for byte before it is decoded."""
    objects = Objects()
    changes = changes_between(objects, *trees)
    with git.holding(objects):
        old, new = (objects.write_files(files) for files in trees)
        printed = git.diff(old, new)
    assert git_diff(changes, objects.read) == printed.decode(errors="replace")


def test_a_large_file_is_named_but_not_shown() -> None:
    """Over the bound there is no text; lines that are all new are still counted."""
    objects = Objects()
    large = b"line\n" * (MOST_BYTES // 5 + 1)
    new = {b"edited": (FILE, large), b"new": (FILE, large)}
    changes = changes_between(objects, {b"edited": (FILE, b"line\n")}, new)
    lines = large.count(b"\n")
    assert file_diffs(changes, objects.read) == [
        FileDiff(file="edited", patch="", additions=0, deletions=0, status="modified"),
        FileDiff(file="new", patch="", additions=lines, deletions=0, status="added"),
    ]
    text = git_diff(changes, objects.read)
    assert "Binary files a/edited and b/edited differ\n" in text
    assert text.endswith("Binary files /dev/null and b/new differ\n")


def test_file_diffs_keep_their_numbers_when_there_is_no_room() -> None:
    """A patch that does not fit is left out, and a smaller one after it is not."""
    objects = Objects()
    files = {b"a": (FILE, b"1\n"), b"b": (FILE, b"2\n" * 500), b"c": (FILE, "é\n".encode() * 9)}
    changes = changes_between(objects, {}, files)
    whole = file_diffs(changes, objects.read)
    sizes = [len((diff.patch or "").encode()) for diff in whole]
    assert file_diffs(changes, objects.read, room=sum(sizes)) == whole
    few = file_diffs(changes, objects.read, room=sizes[0] + sizes[2])
    assert [diff.patch is None for diff in few] == [False, True, False]
    assert [diff.patch is None for diff in file_diffs(changes, objects.read, room=0)] == [True] * 3
    less = file_diffs(changes, objects.read, room=sizes[0] + sizes[2] - 1)
    assert [diff.patch is None for diff in less] == [False, True, True]
    assert [diff.additions for diff in less] == [1, 500, 9]


def test_a_change_of_the_mode_alone_needs_room_for_its_head_only() -> None:
    """However long the file is, its patch is the head."""
    long = b"x\n" * 1000
    diff = file_diff(b"f", long, long, room=100)
    assert diff.patch == f"Index: f\n{'=' * 67}\n--- f\t\n+++ f\t\n"
    assert file_diff(b"f", long, long, room=90).patch is None


def test_git_diff_names_files_for_which_there_is_no_room() -> None:
    """A file that does not fit has its header only, and a smaller one after it is shown."""
    objects = Objects()
    files = {b"a": (FILE, b"1\n"), b"b": (FILE, b"2\n" * 500), b"c": (FILE, b"3\n")}
    changes = changes_between(objects, {}, files)
    text = git_diff(changes, objects.read, room=400)
    assert len(text.encode()) <= 400
    assert text.count("diff --git ") == 3
    assert "+1\n" in text
    assert "+2\n" not in text
    assert text.endswith("+3\n")
    assert git_diff(changes, objects.read, room=10_000) == git_diff(changes, objects.read)


def test_every_byte_is_quoted_as_git_does(tmp_path: Path) -> None:
    """A name with any byte that a name may have is printed as `git diff --name-only` prints it."""
    names = [b"n%c" % byte for byte in range(1, 256) if byte != ord("/")]
    objects = Objects()
    old = objects.write_files({})
    new = objects.write_files(dict.fromkeys(names, (FILE, b"")))
    git = Git(tmp_path)
    with git.holding(objects):
        printed = git.diff(old, new, "--name-only")
    assert b"\n".join(map(quoted, sorted(names))) + b"\n" == printed
