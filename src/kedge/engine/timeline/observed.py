"""Calls of unknown effect: what changed while one ran belongs to it, if no other call was
running."""

import asyncio
import logging
import os
import stat
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from kedge.domain.file_states import Absent, Present, State, Uncovered, examined
from kedge.domain.worktrees import path_in
from kedge.engine.timeline.attribution import (
    NOW,
    Declared,
    Ownership,
    Point,
    RunningCalls,
    Stretch,
    ownership,
    stretches,
)
from kedge.engine.timeline.formats import (
    DeclaredStates,
    read_declared,
    read_since,
    read_snapshot,
    unknown_data,
)
from kedge.engine.timeline.timeline import UNPROTECTED, Taken, Timeline, home_of
from kedge.snapshot.aio import AsyncSnapshots
from kedge.snapshot.files.reader import file_clock
from kedge.snapshot.values import Change, Snapshot
from kedge.snapshot.worktree.filesystems import Mounts, has_own_clock
from kedge.store.queries.changes import Home, NewChange, add_changes, set_seen
from kedge.store.queries.timeline import StoredCall, begin_call, end_call, next_number, open_up
from kedge.store.transaction import Script, ScriptMaker

if TYPE_CHECKING:
    from kedge.engine.session import Session

# Time stamps in whole hundredths of a second come from a file system that rounds them down, by up
# to two seconds.
_COARSE_NS = 10_000_000
_ROUNDED_NS = 2_000_000_000
_UNKNOWN = sys.maxsize


@dataclass(frozen=True, slots=True)
class Life:
    """When the process of a call is known to have lived, in nanoseconds on the file system's
    clock."""

    since: int | None
    """Before the call did anything; None if that is not known."""
    until: int | None
    """Its last sign of life; None if there is none that can be compared with files."""


def doubted(changes: Sequence[NewChange], worktree: str, life: Life) -> list[NewChange]:
    """The changes, marked as shared where they may have been made after the last sign of life.

    Processes that were started may go on after its death, and people work on as well: the author is
    unknown, so no undo may touch these changes.
    """
    root = os.fsencode(worktree)
    mounts = Mounts()
    return [
        replace(change, source="shared")
        if change.source == "observed" and _is_doubtful(root, change, life, mounts)
        else change
        for change in changes
    ]


def _is_doubtful(root: bytes, change: NewChange, life: Life, mounts: Mounts) -> bool:
    if life.since is None or life.until is None:
        return True
    if not has_own_clock(os.path.join(root, change.path), mounts):
        return True
    return _time_of(root, change, life.since) >= life.until


def _time_of(root: bytes, change: NewChange, since: int) -> int:
    """The latest time at which a path may have got its state.

    For a file that is its own time stamp, and for a file that is gone the one of its folder. A time
    stamp from before the call does not count: the change came with a folder above that was moved or
    replaced. Neither does that of a new file: renaming a folder keeps the time stamps of what is
    inside.
    """
    is_new = isinstance(change.before, Absent) and isinstance(change.after, Present)
    found = 0
    path = os.path.join(root, change.path)
    if isinstance(change.after, Absent):
        path = os.path.dirname(path)
    while len(path) >= len(root):
        try:
            status = os.lstat(path)
        except OSError:
            path = os.path.dirname(path)
            continue
        if stat.S_ISLNK(status.st_mode) and path != os.path.join(root, change.path):
            # A symlink on the way says nothing about its target.
            return _UNKNOWN
        # The one time stamp that cannot be set: a copy may keep the others.
        found = max(found, _latest(status.st_ctime_ns))
        path = os.path.dirname(path)
        if found >= since and (not is_new or len(path) <= len(root)):
            return found
    return _UNKNOWN if found < since else found


def _latest(stamp: int) -> int:
    """The latest time for which a file system may have given this time stamp."""
    return stamp + _ROUNDED_NS if stamp % _COARSE_NS == 0 else stamp


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Sighting:
    """A snapshot with its place in the timeline."""

    asked: int
    number: int
    snapshot: Snapshot


class UnknownEffects:
    """A call of unknown effect, from its opening snapshot to its closing one."""

    def __init__(self, timeline: Timeline, session: "Session", home: Home) -> None:
        self._timeline = timeline
        self._session = session
        self._home = home
        self._beating = ExitStack()
        self._began: int | None = None
        """The number at which it began, while it runs."""
        self._number = 0
        self._unseen = ""
        """Why there is no opening snapshot, or why its changes are unknown; empty if they can be
        known."""
        self._since: int | None = None
        """The time on the file system's clock at which it began; None if that is not known."""
        self._looked: int | None = None
        """The time of the monotonic clock after the opening snapshot, if this process took it."""

    @classmethod
    def of_call(cls, timeline: Timeline, session: "Session", call: StoredCall) -> "UnknownEffects":
        """A call that another process left running when it died."""
        effects = cls(timeline, session, home_of(call))
        effects._began = call.began
        effects._since = read_since(call.data)
        return effects

    @asynccontextmanager
    async def beginning(self) -> AsyncIterator[ScriptMaker[None]]:
        """Take the opening snapshot; the call is active from then on."""
        async with AsyncExitStack() as failing:
            failing.callback(self._beating.close)
            since = self._beating.enter_context(self._timeline.heartbeat.beating())
            asked = await self._timeline.head()
            # Before anything is inspected: calls that end from here on are kept for this one.
            await self._timeline.store.write(partial(self._announce, asked, since))
            self._since = file_clock()
            async with self._timeline.sampled(self._session) as taken:
                self._unseen = taken.reason
                yield partial(self._begin, taken)
            self._began, self._looked = self._number, time.monotonic_ns()
            failing.pop_all()

    def _announce(self, asked: int, since: int | None) -> Script[None]:
        data = unknown_data(since)
        call = self._timeline.new_call(self._home, "opening", asked=asked, data=data)
        yield from begin_call(call, (yield from next_number()))

    def _begin(self, taken: Taken) -> Script[None]:
        number = yield from next_number()
        home = self._home
        yield from open_up(home.session_id, home.part_id, asked=taken.asked, number=number)
        yield from self._timeline.record_sample(self._session, taken, number)
        self._number = number

    @asynccontextmanager
    async def ending(self) -> AsyncIterator[ScriptMaker[None] | None]:
        """Take the closing snapshot, and find out what the call did."""
        if self._began is None:
            yield None
            return
        with self._beating:
            # Its work is done, and belongs to it even if the process dies before that is recorded.
            self._timeline.heartbeat.beat()
            async with self._timeline.sampled_at_end(self._session) as taken:
                yield await self.end_with(taken)

    async def end_with(self, taken: Taken, life: Life | None = None) -> ScriptMaker[None]:
        """The script that records the end, with a closing snapshot that exists already.

        `life` is when the process is known to have lived, if it is dead.
        """
        assert self._began is not None
        try:
            changes = await self._changes(taken, self._began)
        except (*UNPROTECTED, OSError) as error:
            # The folder or the store is gone: all that is known is that there was such a call.
            _log.warning("cannot determine what a call did in %s: %s", self._home.worktree, error)
            self._unseen, changes = self._unseen or str(error), []
        if life is not None:
            changes = await asyncio.to_thread(doubted, changes, self._home.worktree, life)
        self._began = None
        return partial(self._end, taken, changes)

    def _end(self, taken: Taken, changes: Sequence[NewChange]) -> Script[None]:
        number = yield from next_number()
        yield from end_call(
            self._home.session_id,
            self._home.part_id,
            machine=self._timeline.machine,
            ended=taken.asked,
            data="[]",
        )
        yield from self._timeline.record_sample(self._session, taken, number)
        reason = self._unseen or taken.reason or None
        ran = NewChange(path=b"", before=Absent(), after=Absent(), source="call", reason=reason)
        time = self._timeline.clock.now()
        yield from add_changes(self._home, [ran, *changes], number=number, time=time)
        # A session knows what its own commands wrote; shared changes may be another's.
        seen = [
            (each.path, each.after.blob if isinstance(each.after, Present) else None)
            for each in changes
            if each.source == "observed"
        ]
        yield from set_seen(self._home.session_id, seen)

    async def _changes(self, taken: Taken, began: int) -> list[NewChange]:
        """What the call did, as far as it can be determined."""
        sightings = [
            _Sighting(sample.asked, sample.number, read_snapshot(sample.data))
            for sample in await self._timeline.samples(self._home.worktree, began)
        ]
        if taken.snapshot is not None:
            sightings.append(_Sighting(taken.asked, NOW, taken.snapshot))
        if len(sightings) < 2:
            return []
        # Read after the snapshot: every declared call whose changes are in the snapshot is known.
        calls = await self._timeline.calls_around(self._home.worktree)
        declared = _declared(calls, self._home.worktree)
        snapshots = await self._session.snapshots()
        seen = await _points(snapshots, sightings, declared)
        running = [_running(call, self._home.worktree) for call in calls if call.kind == "unknown"]
        me = RunningCalls(self._home.session_id, self._home.part_id, began, None)
        found = [
            (path, stretch, ownership(stretch, running, me))
            for path, points in seen.items()
            for stretch in stretches(points, declared.get(path, ()))
        ]
        mine = [each for each in found if each[2] is not Ownership.NOT_MINE]
        mine.sort(key=lambda each: (each[1].last.end, each[0]))
        unknown = await _uncovered(snapshots, sightings)
        changes = [*(_change(*each) for each in mine), *unknown]
        return await self._without_moved_in(snapshots, changes)

    async def _without_moved_in(
        self, snapshots: AsyncSnapshots, changes: list[NewChange]
    ) -> list[NewChange]:
        """The changes, without files that were moved here from where kedge does not look: those
        must not be undone, as they may be the only copy."""
        known = {each.before.blob for each in changes if isinstance(each.before, Present)}
        doubtful = {
            each.path: each.after
            for each in changes
            if isinstance(each.after, Present) and each.after.blob not in known
        }
        if self._since is None or not doubtful:
            return changes
        moved = await snapshots.moved_in(doubtful, self._since, self._looked)
        return [_moved_in(each) if each.path in moved else each for each in changes]


def _moved_in(change: NewChange) -> NewChange:
    reason = "it was moved here from where kedge does not look"
    if isinstance(change.before, Present):
        reason += f"; what was here before is kept as {change.before.blob}"
    return NewChange(
        path=change.path,
        before=change.before,
        after=Absent(),
        source="uncovered",
        reason=reason,
        timeline=change.timeline,
    )


async def _uncovered(snapshots: AsyncSnapshots, sightings: Sequence[_Sighting]) -> list[NewChange]:
    """What cannot be determined, for receipts."""
    first, last = sightings[0].snapshot, sightings[-1].snapshot
    if first.notes == last.notes:
        return []
    changes = await snapshots.uncovered_changes(first, last)
    hidden = [change.path for change in changes if isinstance(change.before, Present)]
    now = await snapshots.identify(hidden) if hidden else {}
    return [
        NewChange(
            path=change.path,
            before=change.before if isinstance(change.before, Present) else Absent(),
            after=Absent(),
            source="uncovered",
            reason=_why(change),
        )
        for change in changes
        # A file that is only ignored, and otherwise as it was, is not worth mentioning.
        if change.path not in now or now[change.path] != change.before
    ]


def _why(change: Change) -> str:
    if not isinstance(change.after, Uncovered):
        assert isinstance(change.before, Uncovered)
        return change.before.reason
    if not isinstance(change.before, Present):
        return change.after.reason
    return f"{change.after.reason}; what it held before is kept as {change.before.blob}"


async def _points(
    snapshots: AsyncSnapshots,
    sightings: Sequence[_Sighting],
    declared: Mapping[bytes, Sequence[Declared]],
) -> dict[bytes, list[Point]]:
    """What is known of every path that changed or was declared."""
    states: dict[bytes, dict[int, State]] = {path: {} for path in declared}
    for index in range(1, len(sightings)):
        one, other = sightings[index - 1].snapshot, sightings[index].snapshot
        if one.id != other.id or one.notes != other.notes:
            for change in await snapshots.changes(one, other):
                known = states.setdefault(change.path, {})
                known[index - 1], known[index] = change.before, change.after
    _fill_in(states, sightings)
    # The snapshot is read wherever the changes leave a gap: a path that comes or goes while it is
    # ignored is no change of content, but must not be taken for absent before or after that.
    for index, sighting in enumerate(sightings):
        missing = [path for path, known in states.items() if index not in known]
        if missing:
            for path, state in (await snapshots.states(sighting.snapshot, missing)).items():
                states[path][index] = state
    return {
        path: [
            Point.seen(sighting.asked, sighting.number, known[index])
            for index, sighting in enumerate(sightings)
        ]
        for path, known in states.items()
    }


def _fill_in(states: Mapping[bytes, dict[int, State]], sightings: Sequence[_Sighting]) -> None:
    """Add what follows from a neighbour: where the notes are equal too, an unchanged path has the
    same state."""
    last = len(sightings) - 1
    forward = [(n - 1, n) for n in range(1, last + 1)]
    steps = [*forward, *((n, other) for other, n in reversed(forward))]
    alike = [
        (index, other)
        for other, index in steps
        if sightings[other].snapshot.notes == sightings[index].snapshot.notes
    ]
    for known in states.values():
        for index, other in alike:
            if index not in known and other in known:
                known[index] = known[other]


def _declared(calls: Sequence[StoredCall], worktree: str) -> dict[bytes, list[Declared]]:
    """What declared calls were writing, by path in this worktree."""
    found: dict[bytes, list[Declared]] = {}
    for call in sorted(calls, key=lambda call: call.asked):
        if call.kind != "declared":
            continue
        states = read_declared(call.data)
        for path, before in states.before.items():
            inside = path_in(worktree, call.worktree, path)
            if inside is not None:
                left = _left(call, states, path)
                span = Declared(found=Point.declared(call.asked, call.began, before), left=left)
                found.setdefault(inside, []).append(span)
    return found


def _left(call: StoredCall, states: DeclaredStates, path: bytes) -> Point | None:
    if call.ended is None or states.looked is None:
        return None
    return Point.declared(states.looked, call.ended, states.after[path])


def _running(call: StoredCall, worktree: str) -> RunningCalls:
    # In another root it does not wait for our snapshots: a call that ended with the number that a
    # snapshot asked for may have ended later.
    late = 0 if call.worktree == worktree else 1
    ended = None if call.ended is None else call.ended + late
    return RunningCalls(call.session_id, call.part_id, call.began, ended)


def _change(path: bytes, stretch: Stretch, owner: Ownership) -> NewChange:
    # The number of the last point, or one that its call got later.
    number = stretch.last.end // 2
    return NewChange(
        path=path,
        before=examined(stretch.first.state),
        after=examined(stretch.last.state),
        source="observed" if owner is Ownership.MINE else "shared",
        timeline=None if number == NOW else number,
    )
