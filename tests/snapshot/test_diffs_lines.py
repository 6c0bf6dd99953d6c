"""Lines are counted as git counts them, and what would take too long is not begun."""

import re
from itertools import islice, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.snapshot.diffs.lines import (
    FULL_CONTEXT,
    MOST_BYTES,
    MOST_LINES,
    are_comparable,
    compare_lines,
    count,
    count_lines,
    would_stall,
)
from tests.snapshot.made_trees import contents


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n"])).map(b"".join))
def test_an_unfinished_line_is_a_line(content: bytes) -> None:
    """Only a line feed ends a line, and nothing follows the last one."""
    assert count_lines(content) == len(re.findall(rb"[^\n]*\n|[^\n]+", content))


@given(contents())
def test_counts_agree_with_the_hunks(pair: tuple[bytes, bytes]) -> None:
    """The numbers alone are those of the text, and full context is one hunk with every line."""
    old, new = pair
    if not are_comparable(old, new):
        assert count(old, new) == (0, 0)
        return
    hunks = compare_lines(old, new, FULL_CONTEXT)
    assert count(old, new) == (hunks.additions, hunks.deletions)
    lines = hunks.text.split(b"\n")[1:]
    assert len([line for line in lines if line.startswith(b"+")]) == hunks.additions
    if old != new:
        kept = [line for line in lines if line[:1] in (b" ", b"-")]
        assert len(kept) == count_lines(old)


@pytest.mark.parametrize(
    ("content", "lines"),
    [(b"", 0), (b"\n", 1), (b"a\nb", 2), (b"a\0b\n", 0), (b"x" * 8000 + b"\0\n", 1)],
)
def test_one_side_alone_is_all_added_or_all_deleted(content: bytes, lines: int) -> None:
    """Binary is what has a NUL where git looks for it; it has no lines."""
    assert count(None, content) == (lines, 0)
    assert count(content, None) == (0, lines)


def test_what_is_too_large_is_not_compared() -> None:
    """Over the bound both numbers are zero, unless one side is empty: then they are true."""
    large = b"x" * MOST_BYTES
    assert count(large + b"y", b"z") == (0, 0)
    assert count(large, b"z") == (1, 1)
    assert count(None, large + b"\ny") == (2, 0)


def test_full_context_is_full_at_the_bound() -> None:
    """The most lines that are compared still come in one hunk, one more are not compared."""
    same = b"s\n" * (FULL_CONTEXT - 1)
    old, new = same + b"o\n", same + b"n\n"
    assert count_lines(old) + count_lines(new) == MOST_LINES
    assert are_comparable(old, new)
    hunks = compare_lines(old, new, FULL_CONTEXT)
    assert hunks.text.startswith(b"@@ -1,65535 +1,65535 @@\n s\n")
    assert hunks.text.endswith(b" s\n-o\n+n\n")
    assert count(old, new) == (1, 1)
    assert not are_comparable(old, new + b"x")
    assert count(old, new + b"x") == (0, 0)


# Each pair leaves the hash as the other does, whatever the pairs before it were.
FIRST = (b"!B", b'"!')
SECOND = (b'"@', b"#!")
REST = ((b'"a', b"#@"), (b"!c", b'"@'), (b'"a', b"#@"), (b'"@', b"#!"))


def colliding(lines: int) -> list[bytes]:
    """So many different lines with one and the same hash in xdiff."""
    return [b"".join(parts) for parts in islice(product(FIRST, SECOND, *REST * 4), lines)]


def test_lines_with_one_hash_are_not_compared() -> None:
    """A file of them is not shown as text, at a fraction of the time that it would take."""
    old = b"\n".join(colliding(60_000))
    assert not are_comparable(old, old + b"\nmore")
    assert count(old, old + b"\nmore") == (0, 0)


def test_some_of_them_among_ordinary_lines_are_noticed() -> None:
    """A third of the lines is enough to be noticed."""
    assert would_stall({*colliding(2000), *(b"%d" % number for number in range(4000))})


@given(st.binary(max_size=20), st.integers(1, 7), st.binary(max_size=20))
def test_ordinary_lines_are_compared(head: bytes, step: int, tail: bytes) -> None:
    """Lines that differ in a number only are far from it."""
    lines = [b"%b%d%b" % (head, number, tail) for number in range(0, 6000 * step, step)]
    assert not would_stall(set(lines))


def test_few_lines_are_always_compared() -> None:
    """As long as it cannot take long, lines may be whatever they are."""
    old = b"\n".join(colliding(2000))
    assert count(old, old + b"\nmore") == (2, 1)
