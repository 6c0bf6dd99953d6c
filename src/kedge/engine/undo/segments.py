"""One path's history as undoing sees it: segments of it, oldest first, and what is on disk now."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import dropwhile, filterfalse
from typing import TypeAlias

from kedge.snapshot.disk import Disk
from kedge.snapshot.files.looking import is_same
from kedge.snapshot.values import Absent, Present

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
