"""The timeline of an engine: takes snapshots in order, and knows which calls are active where."""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kedge.domain.errors import DirectoryNotFound, RootBusy, SnapshotError
from kedge.domain.worktrees import are_related
from kedge.engine.os_process import machine
from kedge.engine.timeline.entries import Asked, TimelinePage, timeline_list
from kedge.engine.timeline.formats import snapshot_text
from kedge.engine.worktree_paths import AnyPath
from kedge.snapshot.files.locks import FileLocks
from kedge.snapshot.values import Snapshot
from kedge.store.queries.changes import Home
from kedge.store.queries.timeline import (
    CallKind,
    NewCall,
    Sample,
    StoredCall,
    add_sample,
    calls_of_machine,
    samples_since,
    timeline_head,
)
from kedge.store.transaction import Script

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.session import Session

_log = logging.getLogger(__name__)

UNPROTECTED = (SnapshotError, DirectoryNotFound)
"""Raised where no snapshot can be taken, or nothing inspected; turns go on without."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A snapshot, or the reason why there is none; it gets its number when it is recorded."""

    asked: int
    """The newest number of the timeline before anything was inspected."""
    snapshot: Snapshot | None
    reason: str = ""

    @property
    def id(self) -> str | None:
        """The tree's id, as parts name it."""
        return None if self.snapshot is None else self.snapshot.id


def home_of(call: StoredCall) -> Home:
    """The part that a recorded call belongs to."""
    return Home(
        session_id=call.session_id,
        message_id=call.message_id,
        part_id=call.part_id,
        worktree=call.worktree,
    )


class Timeline:
    """What calls of an engine's sessions need to determine whose a change is."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self.store = engine.store
        self.machine = machine()
        self.locks = FileLocks(engine.data)
        self.heartbeat = engine.heartbeat
        self.clock = engine.clock

    def sampled(self, session: "Session") -> AbstractAsyncContextManager[Taken]:
        """A snapshot of a session's worktree, the newest one while the block runs.

        Records made in the block have the order of the snapshots. If no snapshot can be taken there
        is none, without waiting; but `RootBusy` is raised where another process has locked the
        worktree: nothing should begin that could not be separated from what that process does.
        """
        return self._sampled(session, is_end=False)

    def sampled_at_end(self, session: "Session") -> AbstractAsyncContextManager[Taken]:
        """Like `sampled`, for work that is done already: it is recorded even if another process has
        locked the worktree."""
        return self._sampled(session, is_end=True)

    @asynccontextmanager
    async def _sampled(self, session: "Session", *, is_end: bool) -> AsyncIterator[Taken]:
        async with AsyncExitStack() as stack:
            asked, snapshot, reason = 0, None, ""
            try:
                snapshots = await session.snapshots()
                order = await stack.enter_async_context(snapshots.ordered())
                asked = await self.store.read(timeline_head)
                snapshot = await order.track(session=session.id)
            except UNPROTECTED as error:
                if isinstance(error, RootBusy) and not error.is_own and not is_end:
                    raise
                asked, reason = await self.store.read(timeline_head), str(error)
                _log.info("no snapshot of %s: %s", session.worktree, reason)
            yield Taken(asked, snapshot, reason)

    async def is_slow(self, session: "Session") -> bool:
        """Whether the next snapshot of a session's worktree takes long; False if there is none."""
        try:
            snapshots = await session.snapshots()
        except UNPROTECTED:
            return False
        return snapshots.is_slow()

    async def head(self) -> int:
        """The newest number of the timeline."""
        return await self.store.read(timeline_head)

    async def samples(self, worktree: str, since: int) -> list[Sample]:
        """The snapshots of a worktree that were recorded from a number on."""
        return await self.store.scan(partial(samples_since, self.machine, worktree, since))

    async def calls_around(self, worktree: str) -> list[StoredCall]:
        """The calls that are or were lately active in roots that contain this one or lie in it."""
        calls = await self.store.scan(partial(calls_of_machine, self.machine))
        return [call for call in calls if are_related(call.worktree, worktree)]

    def new_call(self, home: Home, kind: CallKind, *, asked: int, data: str = "[]") -> NewCall:
        """A call that is about to begin here."""
        return NewCall(
            session_id=home.session_id,
            part_id=home.part_id,
            message_id=home.message_id,
            worktree=home.worktree,
            machine=self.machine,
            kind=kind,
            asked=asked,
            data=data,
        )

    def record_sample(self, session: "Session", taken: Taken, number: int) -> Script[None]:
        """Store a snapshot for the calls that are active."""
        if taken.snapshot is not None:
            sample = Sample(number=number, asked=taken.asked, data=snapshot_text(taken.snapshot))
            yield from add_sample(self.machine, session.worktree, sample)

    async def list(
        self,
        *,
        directory: str | os.PathLike[str] | None = None,
        path: AnyPath | None = None,
        session: str | None = None,
        since: int | float | None = None,
        until: int | float | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> TimelinePage:
        """Who did what to the files of a worktree, newest first: that of a directory, by default
        the engine's.

        `path` selects a file or what is in a folder, `session` what one session did, `since` and
        `until` what was recorded between two times. `limit` is how many moments are shown; what
        several did at one moment is on one page.
        """
        chosen = Asked(path, session, since, until, limit, cursor)
        return await timeline_list(self._engine, chosen, directory)
