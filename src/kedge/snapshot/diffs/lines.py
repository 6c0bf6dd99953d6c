"""Compares two contents line by line with libgit2's xdiff, which is git's own; bounded in cost.

This module works on bytes; `patches` turns the results into text.

Lines that fall into one bucket of xdiff's table are compared each with each: 60,000 of them take 20
seconds, and a file in a user's repository may contain that many. Ordinary repetition is no problem:
equal lines share one place in the table.
"""

import random
from collections import Counter
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pygit2 import Patch

_SAMPLE = 100
_MOST_PAIRS = 100
"""How many of the 4,950 pairs of a sample may collide; 10 do by chance in the smallest table.

The share of pairs that collide is the share of the worst time that is accepted: here two per cent.
"""

_TABLE_BITS = range(9, 19)
"""xdiff's table has about as many buckets as its guess of the lines; even a guess can be misled."""

# An attacker cannot foresee which lines are sampled.
_CHOICE = random.SystemRandom()


def would_stall(lines: set[bytes]) -> bool:
    """Whether so many of these lines would share a bucket that comparing them takes long."""
    picked = _CHOICE.sample(list(lines), min(_SAMPLE, len(lines)))
    hashes = [_hash(line) for line in picked]
    return any(_pairs_that_meet(hashes, bits) > _MOST_PAIRS for bits in _TABLE_BITS)


def _hash(line: bytes) -> int:
    value = 5381
    for byte in line:
        value = (value * 33 & 0xFFFF_FFFF_FFFF_FFFF) ^ byte
    return value


def _pairs_that_meet(hashes: list[int], bits: int) -> int:
    buckets = Counter((value + (value >> bits)) & ((1 << bits) - 1) for value in hashes)
    return sum(comb(held, 2) for held in buckets.values())


MOST_BYTES = 4 * 1024 * 1024
"""Larger contents are not compared line by line."""

FULL_CONTEXT = 0xFFFF
"""The most lines of context that pygit2 supports: it takes 16 bits and drops the others."""

MOST_LINES = 2 * FULL_CONTEXT
"""Two contents with more lines than this together are not compared line by line either.

A line of context is a line of both, so full context always fits. And xdiff stays fast: it gives up
early on the shortest answer, but its time still grows with the lines to the power of 1.5, to about
half a second for the worst case found at this bound, and to many seconds for what fits into the
bytes.
"""

_FEW_LINES = 5000
"""With so few lines, no input takes xdiff long."""

_WHERE_GIT_LOOKS_FOR_NUL = 8000


def is_binary(content: bytes) -> bool:
    """Whether git would treat this content as binary."""
    return content.find(b"\0", 0, _WHERE_GIT_LOOKS_FOR_NUL) != -1


def count_lines(content: bytes) -> int:
    """The number of lines; an unfinished last one counts."""
    return content.count(b"\n") + (content[-1:] not in (b"", b"\n"))


def are_comparable(old: bytes, new: bytes) -> bool:
    """Whether both are text and can be compared quickly."""
    if max(len(old), len(new)) > MOST_BYTES or is_binary(old) or is_binary(new):
        return False
    lines = count_lines(old) + count_lines(new)
    if lines <= _FEW_LINES:
        return True
    return lines <= MOST_LINES and not would_stall({*old.split(b"\n"), *new.split(b"\n")})


def count(old: bytes | None, new: bytes | None) -> tuple[int, int]:
    """The numbers of added and deleted lines, as in `git diff --numstat`; None is no file.

    Both are zero for binary content, and if the contents are too large to be compared.
    """
    before, after = old or b"", new or b""
    if before == after or is_binary(before) or is_binary(after):
        return 0, 0
    if not before or not after:
        return count_lines(after), count_lines(before)
    if not are_comparable(before, after):
        return 0, 0
    _, additions, deletions = _patch(before, after, context=0).line_stats
    return additions, deletions


@dataclass(frozen=True, slots=True)
class Hunks:
    """The differences between two contents."""

    additions: int
    deletions: int
    text: bytes
    """As git prints it; empty if nothing changed."""


def compare_lines(old: bytes, new: bytes, context: int) -> Hunks:
    """The differences between two comparable contents, with this many lines around each."""
    patch = _patch(old, new, context)
    _, additions, deletions = patch.line_stats
    whole = patch.data
    return Hunks(additions, deletions, whole[whole.index(b"\n@@ ") + 1 :] if whole else b"")


def _patch(old: bytes, new: bytes, context: int) -> "Patch":
    from pygit2 import Patch
    from pygit2.enums import DiffOption

    # Whether it is text was decided before: libgit2 must not decide again.
    flags = DiffOption.FORCE_TEXT | DiffOption.INDENT_HEURISTIC
    return Patch.create_from(old, new, flag=flags, context_lines=context)
