"""Three texts merged line by line; stricter than git, because nobody looks at the result first."""

import re
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise

from kedge.snapshot.diffs.lines import are_comparable, compare_lines

# With no context every other line of a comparison starts with a sign, so this finds only headers.
_HEADER = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Hunk:
    """Lines of the base that one side replaced; nothing to replace if it only added some."""

    start: int
    end: int
    lines: tuple[bytes, ...]


def is_text(content: bytes) -> bool:
    """Whether a content may be merged; git looks for NUL only at its beginning."""
    return b"\0" not in content


def are_mergeable(base: bytes, theirs: bytes, ours: bytes) -> bool:
    """Whether all three are text, and merging them ends soon."""
    if not all(map(is_text, (base, theirs, ours))):
        return False
    return are_comparable(base, theirs) and are_comparable(base, ours)


def merge_lines(base: bytes, theirs: bytes, ours: bytes) -> bytes | None:
    """The base with what both sides changed in it; None if that is not certain.

    It is certain only where a line that nobody changed lies between what the one and what the
    other side changed, or where both did exactly the same.
    """
    before = _lines(base)
    mine, other = (_hunks(base, side) for side in (ours, theirs))
    # So every line that a side added is in one of its hunks: none can get lost below.
    if b"".join(_applied(before, mine)) != ours or b"".join(_applied(before, other)) != theirs:
        return None
    hunks = sorted({*mine, *other}, key=lambda hunk: (hunk.start, hunk.end))
    if any(second.start <= first.end for first, second in pairwise(hunks)):
        return None
    return b"".join(_applied(before, hunks))


def _lines(content: bytes) -> list[bytes]:
    # `splitlines` would also split at a carriage return.
    return BytesIO(content).readlines()


def _hunks(base: bytes, side: bytes) -> list[_Hunk]:
    after = _lines(side)
    hunks = []
    for header in _HEADER.finditer(compare_lines(base, side, context=0).text):
        start, end = _range(header[1], header[2])
        first, last = _range(header[3], header[4])
        hunks.append(_Hunk(start, end, tuple(after[first:last])))
    return hunks


def _range(start: bytes, count: bytes | None) -> tuple[int, int]:
    """A range of a hunk's header as indexes; a range of no lines names the line before it."""
    length = 1 if count is None else int(count)
    first = int(start) - 1 if length else int(start)
    return first, first + length


def _applied(lines: list[bytes], hunks: list[_Hunk]) -> list[bytes]:
    result: list[bytes] = []
    done = 0
    for hunk in hunks:
        result += lines[done : hunk.start]
        result += hunk.lines
        done = hunk.end
    return result + lines[done:]
