"""Patches as texts, fitted to texts, without a disk."""

import difflib

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kedge.agent.tools.patch import new_text, parse, patched
from kedge.agent.tools.text_file import FileText
from kedge.agent.tools.tool import ToolFailure

LINES = st.lists(st.sampled_from(["a", "b", "  c", "d ", "", "+e", "-f", "@@ g", "*** h"]))


def patch_of(old: list[str], new: list[str], *, context: int, numbered: bool = False) -> str:
    """The patch that makes one list of lines of another."""
    body = []
    for line in list(difflib.unified_diff(old, new, n=context, lineterm=""))[2:]:
        body.append(line if numbered or not line.startswith("@@ -") else "@@")
    return "\n".join(["*** Begin Patch", "*** Update File: f", *body, "*** End Patch"])


def joined(lines: list[str], line_end: str = "\n") -> str:
    """A file of these lines."""
    return "".join(line + line_end for line in lines)


def apply(text: str, patch: str) -> str:
    """The file after the patch."""
    (file,) = parse(patch)
    return patched(FileText(text), file).whole


@given(LINES, LINES)
def test_a_difference_applied_gives_the_new_text(old: list[str], new: list[str]) -> None:
    """With the whole file as context, whatever the lines look like."""
    assume(old != new)
    assert apply(joined(old), patch_of(old, new, context=1000)) == joined(new)


@given(LINES, LINES, st.integers(0, 3))
def test_numbers_tell_where(old: list[str], new: list[str], context: int) -> None:
    """With line numbers, no context is too short."""
    assume(old != new)
    patch = patch_of(old, new, context=context, numbered=True)
    assert apply(joined(old), patch) == joined(new)


@given(LINES, LINES, st.integers(1, 3))
def test_with_little_context_it_is_right_or_refused(
    old: list[str], new: list[str], context: int
) -> None:
    """Never is another place changed than the one that was meant."""
    assume(old != new)
    # Lines with nothing around them are not looked for: they go to the end.
    patch = patch_of(old, new, context=context)
    (file,) = parse(patch)
    assume(all(piece.old for piece in file.pieces))
    assume(len({line.strip() for line in old}) == len(set(old)))
    try:
        changed = apply(joined(old), patch)
    except ToolFailure as failed:
        assert "clearly" in str(failed)  # noqa: PT017 - being right is the other outcome
    else:
        assert changed == joined(new)


@given(LINES, LINES)
def test_line_ends_are_kept(old: list[str], new: list[str]) -> None:
    """A file of another system stays one."""
    assume(old != new and old)
    patch = patch_of(old, new, context=1000)
    assert apply(joined(old, "\r\n"), patch) == joined(new, "\r\n")


def body(*lines: str) -> str:
    """A patch of one file."""
    return "\n".join(["*** Begin Patch", "*** Update File: f", *lines, "*** End Patch"])


@pytest.mark.parametrize(
    ("text", "lines", "expected"),
    [
        pytest.param("a\nb\n", [" a", "+x"], "a\nx\nb\n", id="inserted"),
        pytest.param("a\nb\n", ["@@ a", "+x"], "a\nx\nb\n", id="after-an-anchor"),
        pytest.param("a\nb\n", ["+x"], "a\nb\nx\n", id="at-the-end"),
        pytest.param("", ["+x"], "x\n", id="into-nothing"),
        pytest.param("a\nb", ["-b", "+c"], "a\nc", id="no-last-line-end"),
        pytest.param("a\nb", ["+c"], "a\nb\nc", id="after-a-line-without-end"),
        pytest.param("a", ["-a", "\\ No newline at end of file", "+a"], "a\n", id="line-end-comes"),
        pytest.param("a\n", ["-a", "+a", "\\ No newline at end of file"], "a", id="line-end-goes"),
        pytest.param(
            "def f():\n  x\ndef g():\n  x\n",
            ["@@ def g():", "-  x", "+  y"],
            "def f():\n  x\ndef g():\n  y\n",
            id="anchor-decides",
        ),
        pytest.param(
            "class A:\n  def f():\n  x\nclass B:\n  def f():\n  x\n",
            ["@@ class B", "@@   def f():", "-  x", "+  y"],
            "class A:\n  def f():\n  x\nclass B:\n  def f():\n  y\n",
            id="two-anchors",
        ),
        pytest.param(
            "def f():\n  x\n\n  x = 2\ndef g():\n  x\n",
            ["@@ def f():", "-  x", "+  y"],
            "def f():\n  y\n\n  x = 2\ndef g():\n  x\n",
            id="in-its-block",
        ),
        pytest.param(
            "class A:\n  def f():\n    x\nclass B:\n  def f():\n    x\n",
            ["@@ class A:", "@@ def f", "-    x", "+    y"],
            "class A:\n  def f():\n    y\nclass B:\n  def f():\n    x\n",
            id="first-of-two-blocks",
        ),
        pytest.param(
            "def f():\n  a\n  x\ndef g():\n  x\n",
            ["@@   a", "-  x", "+  y"],
            "def f():\n  a\n  y\ndef g():\n  x\n",
            id="beside-its-anchor",
        ),
        pytest.param(
            "def f():\n\tx\ndef g():\n  x\n",
            ["@@ def f():", "-  x", "+  y"],
            "def f():\n\ty\ndef g():\n  x\n",
            id="nearly-in-its-block-before-exactly-elsewhere",
        ),
        pytest.param(
            "f\n  x\nx\nf\n  z\n", ["@@ f", "-  x"], "f\nx\nf\n  z\n", id="only-one-has-it"
        ),
        pytest.param(
            "f:\n  x\n  x\n", ["@@ f:", "-  x", "*** End of File"], "f:\n  x\n", id="anchor-and-end"
        ),
        pytest.param("a\n\tb\n", ["-    b", "+    c"], "a\n\tc\n", id="indented-with-tabs"),
        pytest.param(
            "if a:\n\tb\n",
            ["     b", "+    if c:", "+        d", "+e"],
            "if a:\n\tb\n\tif c:\n\t\td\ne\n",
            id="deeper-with-tabs",
        ),
        pytest.param(
            "if a:\n    b\n",
            [" \tb", "+\tif c:", "+\t\td"],
            "if a:\n    b\n    if c:\n        d\n",
            id="deeper-with-blanks",
        ),
        pytest.param("\t\tb\n", ["-        b", "+    c"], "\tc\n", id="less-deep-with-tabs"),
        pytest.param("x\ny\nx\n", ["-x", "*** End of File"], "x\ny\n", id="end-decides"),
        pytest.param("x\nx\n", [" x", "-x", "+y", "", ""], "x\ny\n", id="blank-lines-for-looks"),
        pytest.param("a\n\nb\n", [" a", "", "-b", "+c"], "a\n\nc\n", id="bare-blank-line"),
        pytest.param("\ta  \nb\n", [" a", "-b", "+c"], "\ta  \nc\n", id="stays-as-it-is"),
        pytest.param("\ufeffa\nb\n", ["-a", "+c"], "\ufeffc\nb\n", id="mark-stays"),
        pytest.param("1\n2\n3\n4\n", ["-1", "@@", "-3", "+x"], "2\nx\n4\n", id="several-pieces"),
    ],
)
def test_applied(text: str, lines: list[str], expected: str) -> None:
    """What a patch may look like."""
    assert apply(text, body(*lines)) == expected


@pytest.mark.parametrize(
    ("text", "lines", "reason"),
    [
        ("a\n", ["-b"], "does not fit f: these lines are not there"),
        ("a\n", ["@@ z", "-a"], 'there is no line "@@ z"'),
        ("a\na\n", ["-a"], "2 times"),
        ("1\n2\n", ["-2", "@@", "-1"], "not there after line 2"),
        (
            "class A:\n  def f():\n    pass\nclass B:\n  def f():\n    pass\n",
            ["@@ def f():", "-    pass", "+    return"],
            r"2 times \(at lines 3, 6\)",
        ),
        ("f:\n  x\n  x\n", ["@@ f:", "-  x"], "2 times"),
        ("f\nx\nx\n", ["@@ f", "-x"], "2 times"),
        ("f\na\nf\nb\n", ["@@ f", "+x"], "2 times"),
        (
            "# see def g below\nx=1\ndef g():\n  x=1\n",
            ["@@ def g", "-  x=1", "+  x=2"],
            '"@@ def g" is in 2 lines',
        ),
        ("a:\n  b\n", ["@@ a:", "@@ c", "-  b"], 'no line "@@ c" after line 1'),
        ("f\n" * 2000 + "x\n", ["@@ f", "-x"], "is in 2000 lines"),
    ],
)
def test_not_fitting(text: str, lines: list[str], reason: str) -> None:
    """Pieces come in the order of the file, and each has to be in one place."""
    with pytest.raises(ToolFailure, match=reason):
        apply(text, body(*lines))


@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        ("", "has to begin with"),
        ("*** Begin Patch", "has to begin with"),
        ("*** Begin Patch\n*** End Patch", "names no file"),
        ("*** Begin Patch\nhello\n*** End Patch", "Line 2 of the patch is wrong, a file has to"),
        ("*** Begin Patch\n*** Add File: a\nhello\n*** End Patch", "Line 3 .* begins with"),
        ("*** Begin Patch\n*** Delete File: a\n-x\n*** End Patch", "Line 3 .* nothing follows"),
        ("*** Begin Patch\n*** Update File: a\n*** End Patch", "says nothing"),
        ("*** Begin Patch\n*** Update File: a\nx\n*** End Patch", "Line 3"),
        ("*** Begin Patch\n*** Update File: a\n*** Move to: b\n*** Move to: c\n*** End Patch", "4"),
    ],
)
def test_malformed(patch: str, reason: str) -> None:
    """The wrong line is named."""
    with pytest.raises(ToolFailure, match=reason):
        parse(patch)


def test_a_patch_in_a_heredoc() -> None:
    """What models put around a patch is not looked at, nor are the line ends of another system."""
    patch = "<<'EOF'\r\n*** Begin Patch\r\n*** Add File: a b\r\n+x\r\n+\r\n*** End Patch\r\nEOF"
    (file,) = parse(patch)
    assert (file.kind, file.path, new_text(file).whole) == ("add", "a b", "x\n\n")


def test_a_new_file_without_a_last_line_end() -> None:
    """It can be said, and an empty file too."""
    patch = (
        "*** Begin Patch\n*** Add File: a\n+x\n\\ No newline at end of file\n"
        "*** Add File: b\n*** End Patch"
    )
    assert [new_text(file).whole for file in parse(patch)] == ["x", ""]
