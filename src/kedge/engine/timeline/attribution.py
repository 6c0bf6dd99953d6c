"""Decides whose a change is, from the observed states of a path and the calls that were running.

No I/O. Nothing here happens at one moment. An observer of a path reads the newest number of the
timeline first (`asked`) and gets a number of its own afterwards; a call is active from the number
it `began` with until `ended` was read as the newest number. Where two of these overlap, their order
is unknown, and a change that depends on it is attributed to no call.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise

from kedge.domain.file_states import State, Uncovered

NOW = 2**62
"""The number of what is being recorded now: later than everything."""

_FOREVER = 2 * NOW + 1


@dataclass(frozen=True, slots=True)
class Point:
    """A path had this state at some time between two moments.

    Moments are counted in halves: 2n is when the number n was given, 2n + 1 is after that and
    before the next.
    """

    start: int
    end: int
    state: State

    @classmethod
    def seen(cls, asked: int, number: int, state: State) -> "Point":
        """A state in a snapshot. Snapshots are taken one at a time, so what ended before this one
        ended before it asked for its number."""
        return cls(2 * asked + 1, 2 * number, state)

    @classmethod
    def declared(cls, asked: int, number: int, state: State) -> "Point":
        """A state that a declared call found or left. Such calls run side by side: another one that
        ends with the number that this one asked for may have ended later."""
        return cls(2 * asked, 2 * number, state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A declared call wrote the path, and is accounted for."""

    found: Point
    left: Point | None
    """None while the call runs."""

    def overlaps(self, point: Point) -> bool:
        """Whether the point may show the path before, after or in the middle of the call."""
        end = _FOREVER if self.left is None else self.left.end
        return point.end > self.found.start and point.start < end


@dataclass(frozen=True, slots=True)
class RunningCalls:
    """A call of unknown effect, from its opening snapshot to its closing one."""

    session_id: str
    part_id: str
    began: int
    ended: int | None
    """The newest number when it was over; None while it runs."""

    @property
    def end(self) -> int:
        """The moment from which on it was no longer active."""
        return _FOREVER if self.ended is None else 2 * self.ended + 1

    def is_active_throughout(self, stretch: "Stretch") -> bool:
        """Whether all of the stretch lies within the call."""
        last = stretch.last
        # Its own closing snapshot is taken the moment that it is over.
        reaches = self.end >= last.end or self.end == last.start
        return 2 * self.began <= stretch.first.end and reaches

    def overlaps(self, stretch: "Stretch") -> bool:
        """Whether the call may have been active at any time of the stretch."""
        return 2 * self.began < stretch.last.end and self.end > stretch.first.start


@dataclass(frozen=True, slots=True)
class Stretch:
    """A path changed between two points, and not by a declared call."""

    first: Point
    last: Point


class Ownership(Enum):
    """Whose a stretch is, as seen by one call."""

    MINE = auto()
    SHARED = auto()
    """Calls of several sessions were active: the author cannot be determined."""
    NOT_MINE = auto()


def stretches(points: Iterable[Point], declared: Sequence[Declared]) -> list[Stretch]:
    """Where a path changed without a declared call, in order."""
    known = [point for point in points if not any(span.overlaps(point) for span in declared)]
    for span in declared:
        known += [span.found] if span.left is None else [span.found, span.left]
    known.sort(key=lambda point: (point.end, point.start))
    accounted_for = {(span.found, span.left) for span in declared}
    return [
        Stretch(first, last)
        for first, last in pairwise(known)
        if (first, last) not in accounted_for and _is_change(first, last)
    ]


def _is_change(first: Point, last: Point) -> bool:
    # A change from or to a state that was not inspected is attributed to no call.
    covered = not isinstance(first.state, Uncovered) and not isinstance(last.state, Uncovered)
    return covered and first.state != last.state and first.end <= last.start


def ownership(stretch: Stretch, calls: Sequence[RunningCalls], me: RunningCalls) -> Ownership:
    """Whose a stretch is, to the call `me`, which is one of the calls."""
    mine = [
        call
        for call in calls
        if call.session_id == me.session_id and call.is_active_throughout(stretch)
    ]
    # Of several calls of one session, the one that began first records it.
    if not mine or min(mine, key=lambda call: (call.began, call.part_id)) != me:
        return Ownership.NOT_MINE
    others = (call for call in calls if call.session_id != me.session_id)
    return Ownership.SHARED if any(call.overlaps(stretch) for call in others) else Ownership.MINE
