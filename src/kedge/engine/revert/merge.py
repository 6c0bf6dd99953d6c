"""The merge: takes one segment of a path's history out of its state and keeps what others changed,
or reports a conflict."""

import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from io import BytesIO
from itertools import dropwhile, filterfalse, pairwise
from typing import TypeAlias, TypeVar

from kedge.snapshot.diffs.lines import are_comparable, compare_lines
from kedge.snapshot.files.reader import Disk, is_same
from kedge.snapshot.objects.formats import blob_id
from kedge.snapshot.values import Absent, Present

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


Known: TypeAlias = Present | Absent
"""What a path holds, where that is known; what is uncovered is nobody's to undo."""


class Source(StrEnum):
    """How a change is known, which decides whose it is."""

    DECLARED = "declared"
    """A tool of kedge wrote it."""
    OBSERVED = "observed"
    """It was seen around a call of unknown effect that ran alone."""
    SHARED = "shared"
    """It was seen while calls of several sessions ran: it belongs to nobody and is never undone."""
    REVERT = "revert"
    """A revert of the session itself wrote it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One change of a path."""

    before: Known
    after: Known
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class PathHistory:
    """What is to be undone at one path."""

    path: bytes
    segments: tuple[Segment, ...]
    """At least one, oldest first."""
    disk: Disk
    others_later: bool
    """Whether another session changed the path after the first segment."""
    unsure: bool = False
    """Whether a crash left it open if one of the segments ever happened."""

    @property
    def own(self) -> tuple[Segment, ...]:
        """What may be undone."""
        return tuple(filterfalse(_is_shared, self.segments))

    @property
    def touched_by_others(self) -> bool:
        """Whether somebody else is known to have changed the path after its first own segment."""
        since = dropwhile(_is_shared, self.segments)
        return self.others_later or any(map(_is_shared, since))


def composed(segments: Iterable[Segment]) -> list[Segment]:
    """The own segments, neighbours joined to one; without those that come to nothing.

    Neighbours are two between which nobody is known to have changed the path.
    """
    joined: list[Segment] = []
    divided = True
    for segment in segments:
        if _is_shared(segment):
            divided = True
        elif not divided and is_same(joined[-1].after, segment.before):
            joined[-1] = Segment(joined[-1].before, segment.after, segment.source)
        else:
            joined.append(segment)
            divided = False
    return [each for each in joined if not is_same(each.before, each.after)]


def _is_shared(segment: Segment) -> bool:
    return segment.source is Source.SHARED


T = TypeVar("T")


class Conflict(Exception):
    """The path cannot be undone without losing somebody's work; the message says why."""


class Contents:
    """The bytes of blobs: those that can be read, and those that merging made."""

    def __init__(self, read: Callable[[str], bytes]) -> None:
        self.made: dict[str, bytes] = {}
        self._read = read

    def get(self, blob: str) -> bytes:
        """The bytes of a blob."""
        made = self.made.get(blob)
        return self._read(blob) if made is None else made

    def put(self, content: bytes) -> str:
        """Keep the bytes that a merge came to; their id."""
        blob = blob_id(content).hex()
        self.made[blob] = content
        return blob


def without(segment: Segment, now: Known, contents: Contents) -> Known:
    """What the path would hold now if the segment had not happened."""
    if is_same(now, segment.after):
        return segment.before
    if is_same(now, segment.before):
        return now
    before, after = segment.before, segment.after
    if isinstance(now, Absent):
        raise Conflict("it does not exist any more")
    if isinstance(after, Absent):
        raise Conflict("it exists already")
    if isinstance(before, Absent):
        raise Conflict("it was changed since")
    if not all(stat.S_ISREG(each.mode) for each in (before, after, now)):
        raise Conflict("it was changed since, and a symlink cannot be merged")
    mode = _chosen(before.mode, after.mode, now.mode)
    if mode is None:
        raise Conflict("its permissions were changed since")
    return Present(_merged(before.blob, after.blob, now.blob, contents), mode)


def _merged(before: str, after: str, now: str, contents: Contents) -> str:
    """The blob of a regular file without what the session changed in it."""
    chosen = _chosen(before, after, now)
    if chosen is not None:
        return chosen
    base, theirs, ours = (contents.get(blob) for blob in (after, before, now))
    if not are_mergeable(base, theirs, ours):
        is_long = all(map(is_text, (base, theirs, ours)))
        what = "is too long to be merged" if is_long else "is not text"
        raise Conflict(f"it was changed since, and it {what}")
    merged = merge_lines(base, theirs, ours)
    if merged is None:
        raise Conflict("it was changed since, in the same lines")
    return contents.put(merged)


def _chosen(before: T, after: T, now: T) -> T | None:
    """What is right without a merge; None if all three differ."""
    if now == after:
        return before
    return now if now == before or before == after else None
