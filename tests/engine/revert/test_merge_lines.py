"""Three texts merged line by line."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.engine.revert.merge import are_mergeable, merge_lines
from kedge.snapshot.diffs.lines import MOST_BYTES
from tests.engine.revert.plan_documents import split

few_lines = st.lists(st.sampled_from([b"a\n", b"b\n", b"}\n", b"\n", b"@@ -1 +1 @@\n", b"\r\n"]))
ends = st.sampled_from([b"", b"", b"end", b"\r"])
texts = st.builds(lambda lines, end: b"".join(lines) + end, few_lines, ends)


@pytest.mark.parametrize(
    ("base", "theirs", "ours", "merged"),
    [
        pytest.param(b"1\n2\n3\n", b"0\n2\n3\n", b"1\n2\n4\n", b"0\n2\n4\n", id="a line between"),
        pytest.param(b"1\n2\n", b"0\n2\n", b"1\n4\n", None, id="no line between"),
        pytest.param(b"1\n2\n3\n", b"1\n3\n", b"1\n2\n2b\n3\n", None, id="added at a deleted one"),
        pytest.param(b"1\n2\n3\n", b"1\nx\n3\n", b"1\nx\n3\n", b"1\nx\n3\n", id="both the same"),
        pytest.param(
            b"1\n2\n3\n4\n5\n",
            b"0\n2\n3\nx\n5\n",
            b"1\n2\n3\nx\n6\n",
            None,
            id="the same and more",
        ),
        pytest.param(
            b"1\n2\n3\n4\n5\n", b"0\n2\n3\n5\n", b"1\n2\n3\n5\n", b"0\n2\n3\n5\n", id="one the same"
        ),
        pytest.param(b"1\n", b"1\nx\n", b"1\ny\n", None, id="both at the end"),
        pytest.param(b"", b"x\n", b"y\n", None, id="both into nothing"),
        pytest.param(b"1\n2\n3\n", b"", b"1\n2\n3\n4\n", None, id="all deleted, one added"),
        pytest.param(
            b"1\r\n2\r\n3\r\n", b"0\r\n2\r\n3\r\n", b"1\r\n2\r\n3\n", b"0\r\n2\r\n3\n", id="ends"
        ),
        pytest.param(b"1\n2\n3", b"0\n2\n3", b"1\n2\n3\n4", b"0\n2\n3\n4", id="no final newline"),
        pytest.param(b"1\n2", b"0\n2", b"1\n2\n", None, id="final newline next to a change"),
        pytest.param(b"1\n2\n3\n", b"1\n2\n3", b"0\n2\n3\n", b"0\n2\n3", id="newline taken away"),
        pytest.param(b"1\r2\r3\r", b"0\r2\r3\r", b"1\r2\r4\r", None, id="returns end no line"),
        pytest.param(
            b"@@ -1 +1 @@\n2\n3\n",
            b"@@ -9 +9 @@\n2\n3\n",
            b"@@ -1 +1 @@\n2\n@@ -5,0 +6 @@\n",
            b"@@ -9 +9 @@\n2\n@@ -5,0 +6 @@\n",
            id="lines like headers",
        ),
    ],
)
def test_merge(base: bytes, theirs: bytes, ours: bytes, merged: bytes | None) -> None:
    """Both sides' changes are in the result, if an unchanged line lies between them."""
    assert merge_lines(base, theirs, ours) == merged
    assert merge_lines(base, ours, theirs) == merged


@given(texts, texts, texts)
def test_no_line_is_lost(base: bytes, theirs: bytes, ours: bytes) -> None:
    """Whatever the texts: no answer, or one with every line that a side added, as often."""
    merged = merge_lines(base, theirs, ours)
    if merged is None:
        return
    was, left = Counter(split(base)), Counter(split(merged))
    for side in (Counter(split(theirs)), Counter(split(ours))):
        assert side - was <= left
    # What is gone, one of the two took out.
    gone = was - left
    assert gone <= (was - Counter(split(theirs))) + (was - Counter(split(ours)))


@given(texts, texts)
def test_one_side_alone(base: bytes, side: bytes) -> None:
    """If only one side changed something, or both the same, the result is that side's."""
    assert merge_lines(base, base, side) == side
    assert merge_lines(base, side, base) == side
    assert merge_lines(base, side, side) == side


lines_with_edits = st.lists(st.tuples(st.integers(0, 9), st.sampled_from("kkktto")), max_size=12)


@settings(max_examples=30)
@given(edits=lines_with_edits)
def test_as_git_does(
    edits: list[tuple[int, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What is merged at all is merged as git merges it."""
    folder = tmp_path_factory.mktemp("merge")
    base, theirs, ours = (_text(edits, side) for side in ("", "t", "o"))
    merged = merge_lines(base, theirs, ours)
    if merged is not None:
        assert _git_merge(folder, base, theirs, ours) == merged


def _text(edits: list[tuple[int, str]], side: str) -> bytes:
    """Unlike lines; on a side, the ones it edits are replaced by none, one or two of its own."""
    lines: list[str] = []
    for number, (choice, editor) in enumerate(edits):
        if editor == side:
            lines += [f"{number} {side} {copy}\n" for copy in range(choice % 3)]
        else:
            lines.append(f"{number}\n")
    return "".join(lines).encode()


def _git_merge(folder: Path, base: bytes, theirs: bytes, ours: bytes) -> bytes:
    for name, content in (("base", base), ("theirs", theirs), ("ours", ours)):
        (folder / name).write_bytes(content)
    command = ["git", "merge-file", "-p", "ours", "base", "theirs"]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout


def test_not_mergeable() -> None:
    """A NUL byte anywhere, or too many bytes or lines, and nothing is compared."""
    text = b"line\n" * 3000
    assert are_mergeable(text, text, text)
    assert not are_mergeable(text, text, text + b"\0")
    assert not are_mergeable(text, text + b"\0", text)
    assert not are_mergeable(text + b"\0", text, text)
    assert not are_mergeable(text, text, b"x" * (MOST_BYTES + 1))
    assert not are_mergeable(b"\n" * 70_000, text, b"\n" * 70_000)
