"""The merge: takes one segment of a path's history out of its current state and keeps what others
changed, or reports a conflict."""

import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from io import BytesIO
from itertools import dropwhile, filterfalse, pairwise
from typing import TypeVar

from kedge.domain.file_states import Absent, Known, Present
from kedge.snapshot.diffs.lines import are_comparable, compare_lines
from kedge.snapshot.files.reader import Disk, is_same
from kedge.snapshot.objects.formats import blob_id

# Without context every other line of a diff starts with a sign, so this matches only headers.
_HEADER = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Hunk:
    """Lines of the base that one side replaced; an empty range if it only added lines."""

    start: int
    end: int
    lines: tuple[bytes, ...]


def is_text(content: bytes) -> bool:
    """Whether a content may be merged; like git, this looks for NUL only at its beginning."""
    return b"\0" not in content


def are_mergeable(base: bytes, theirs: bytes, ours: bytes) -> bool:
    """Whether all three are text, and small enough to be merged quickly."""
    if not all(map(is_text, (base, theirs, ours))):
        return False
    return are_comparable(base, theirs) and are_comparable(base, ours)


def merge_lines(base: bytes, theirs: bytes, ours: bytes) -> bytes | None:
    """The base with the changes of both sides; None if that is not certain.

    It is certain only where an unchanged line lies between the changes of the two sides, or where
    both made exactly the same change.
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
    """The range in a hunk's header as indexes; an empty range names the line before it."""
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


class Source(StrEnum):
    """How a change is known, which decides whose it is."""

    DECLARED = "declared"
    """A tool of kedge wrote it."""
    OBSERVED = "observed"
    """Seen around a call of unknown effect that ran alone."""
    SHARED = "shared"
    """Seen while calls of several sessions ran: its author is unknown and it is never undone."""
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
    """What to undo at one path."""

    path: bytes
    segments: tuple[Segment, ...]
    """At least one, oldest first."""
    disk: Disk
    others_later: bool
    """Whether another session changed the path after the first segment."""
    unsure: bool = False
    """Whether it is uncertain, after a crash, that one of the segments ever happened."""
    asked: tuple[Segment, ...] = ()
    """Those of the own segments that were asked for, if others only lead to the same."""
    otherwise: tuple["PathHistory", ...] = ()
    """Other segments that lead to the same, to be tried if there is a conflict."""
    reverse: tuple[Segment, ...] | None = None
    """What must lead back again: without it, or if it does not, there is a conflict. None where
    that does not matter."""
    by_force: "PathHistory | None" = None
    """What to restore instead of leaving the path alone in a conflict."""

    @property
    def own(self) -> tuple[Segment, ...]:
        """The segments that may be undone."""
        return tuple(filterfalse(_is_shared, self.segments))

    @property
    def touched_by_others(self) -> bool:
        """Whether the path is known to have been changed by others after its first own segment."""
        since = dropwhile(_is_shared, self.segments)
        return self.others_later or any(map(_is_shared, since))


def composed(segments: Iterable[Segment]) -> list[Segment]:
    """The own segments, with neighbours joined and without those that have no net effect.

    Two segments are neighbours if no change by others is known between them.
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
    """The path cannot be undone without losing changes of others; the message says why."""


class Contents:
    """The bytes of blobs: those that can be read, and those that merging produced."""

    def __init__(self, read: Callable[[str], bytes]) -> None:
        self.made: dict[str, bytes] = {}
        self._read = read

    def get(self, blob: str) -> bytes:
        """The bytes of a blob."""
        made = self.made.get(blob)
        return self._read(blob) if made is None else made

    def put(self, content: bytes) -> str:
        """Keep the result of a merge; return its id."""
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
    """The blob of a regular file without the session's changes."""
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
    """The result where no merge is needed; None if all three differ."""
    if now == after:
        return before
    return now if now == before or before == after else None
