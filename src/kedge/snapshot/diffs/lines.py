"""Compares two contents line by line with libgit2's xdiff, which is git's own; bounded in cost.

This module works on bytes; `patches` turns the results into text.

Lines that fall into one bucket of xdiff's table are compared each with each: 60,000 of them take 20
seconds, and a file in a user's repository may contain that many. Ordinary repetition is no problem:
equal lines share one place in the table.
"""

import random
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from io import BytesIO
from math import comb
from typing import TYPE_CHECKING, NamedTuple

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


class Match(NamedTuple):
    """Lines that are the same in two contents; counted from 0."""

    old: int
    new: int
    length: int


def matching_lines(old: bytes, new: bytes) -> list[Match]:
    """The lines of two contents that correspond, in order; takes any content.

    What cannot be compared quickly is matched by the lines that occur only once on both sides.
    """
    before, after = split_lines(old), split_lines(new)
    shorter = min(len(before), len(after))
    head = _equal(before, after, shorter)
    tail = _equal(before[::-1], after[::-1], shorter - head)
    middle = before[head : len(before) - tail], after[head : len(after) - tail]
    found = [Match(0, 0, head)]
    if all(middle):
        one, other = (b"".join(lines) for lines in middle)
        # No NUL matters here: it is only in the way of showing differences.
        is_quick = are_comparable(one.replace(b"\0", b"\1"), other.replace(b"\0", b"\1"))
        inside = _by_hunks(one, other, len(middle[0])) if is_quick else _by_unique_lines(*middle)
        found += [Match(head + match.old, head + match.new, match.length) for match in inside]
    found.append(Match(len(before) - tail, len(after) - tail, tail))
    return [match for match in found if match.length]


def split_lines(content: bytes) -> list[bytes]:
    """The lines with their ends; only a line feed ends one."""
    return BytesIO(content).readlines()


def _equal(one: list[bytes], other: list[bytes], most: int) -> int:
    """How many lines at the beginning are the same."""
    low = 0
    while low < most:
        step = 1
        # Comparing whole lists is much faster than line by line.
        while low + step <= most and one[low : low + step] == other[low : low + step]:
            low += step
            step *= 2
        if step == 1:
            break
    return low


def _by_hunks(old: bytes, new: bytes, count: int) -> list[Match]:
    found: list[Match] = []
    at, to = 0, 0
    for hunk in _patch(old, new, context=0).hunks:
        # An empty side of a hunk names the line before it.
        first = hunk.old_start - 1 if hunk.old_lines else hunk.old_start
        found.append(Match(at, to, first - at))
        to += first - at + hunk.new_lines
        at = first + hunk.old_lines
    return [*found, Match(at, to, count - at)]


def _by_unique_lines(old: list[bytes], new: list[bytes]) -> list[Match]:
    """The longest rising sequence of the lines that occur once on each side."""
    places = {line: n for n, line in enumerate(old)}
    once_before, once_after = (
        {line for line, times in Counter(side).items() if times == 1} for side in (old, new)
    )
    unique = once_before & once_after
    pairs = [(places[line], n) for n, line in enumerate(new) if line in unique]
    ends: list[int] = []
    last: list[int] = []
    previous: list[int] = []
    for index, (at, _) in enumerate(pairs):
        length = bisect_left(ends, at)
        previous.append(last[length - 1] if length else -1)
        # Replaces one entry, or appends one.
        ends[length : length + 1] = [at]
        last[length : length + 1] = [index]
    chain: list[Match] = []
    index = last[-1] if last else -1
    while index >= 0:
        chain.append(Match(*pairs[index], 1))
        index = previous[index]
    return chain[::-1]


def _patch(old: bytes, new: bytes, context: int) -> "Patch":
    from pygit2 import Patch
    from pygit2.enums import DiffOption

    # Whether it is text was decided before: libgit2 must not decide again.
    flags = DiffOption.FORCE_TEXT | DiffOption.INDENT_HEURISTIC
    return Patch.create_from(old, new, flag=flags, context_lines=context)
