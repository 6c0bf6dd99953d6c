"""The background work of an engine: ends the runs of dead processes, fills the search index, purges
old deleted sessions, removes old outputs, compacts old events.

Every process may do it; the store makes sure that the work is done once.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from kedge.domain.clock import Clock
from kedge.domain.errors import KedgeError, StoreError
from kedge.engine.settings import Settings
from kedge.store.port import Store
from kedge.store.queries.deletion import (
    compact_session,
    due_compaction,
    expired_sessions,
    finish_compaction,
    is_purged,
    project_of_session,
    purge_session,
    settle_fork,
    unsettled_forks,
)
from kedge.store.queries.search import index_events, index_is_behind
from kedge.store.transaction import ScriptMaker

_log = logging.getLogger(__name__)
_INDEX_BATCH = 200
_INDEX_EVERY = 1.0
_RECOVER_EVERY = 5.0
_TIDY_EVERY = 3600.0
_FIRST_TIDY = 1.0
_COMPACT_EVERY = 86400.0
_PURGED_AT_ONCE = 1000


class Upkeep:
    """The background work of one engine."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        *,
        recover: Callable[[], Coroutine[Any, Any, None]],
        release: Callable[[str, str], Coroutine[Any, Any, None]],
        held: Callable[[], Coroutine[Any, Any, list[tuple[str, str]]]],
        expire: Callable[[int], Coroutine[Any, Any, None]],
    ) -> None:
        """`release` removes what is kept outside the database for a session of a project; `held`
        lists these sessions; `expire` removes what is too old at a time."""
        self._store = store
        self._recover = recover
        self._release = release
        self._held = held
        self._expire = expire
        self._clock = clock
        self._settings = settings
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start to work, until `close`."""
        self._tasks = [
            asyncio.create_task(_every(_INDEX_EVERY, self.index)),
            asyncio.create_task(_every(_RECOVER_EVERY, self._recover)),
            asyncio.create_task(_every(_TIDY_EVERY, self.tidy, first=_FIRST_TIDY)),
        ]
        for task in self._tasks:
            task.add_done_callback(_complain)

    async def close(self) -> None:
        """Stop; unfinished work is completed or rolled back by the store."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def index(self) -> None:
        """Bring the search index up to date."""
        if not await self._store.read(index_is_behind):
            return
        while await self._store.write_bulk(partial(index_events, _INDEX_BATCH)):
            pass

    async def tidy(self) -> None:
        """Purge sessions whose retention time is over, remove old outputs, and compact events once
        a day."""
        await self.purge()
        await self.release()
        await self._expire(self._clock.now())
        await self.compact(every=_COMPACT_EVERY)

    async def purge(self) -> int:
        """Purge sessions that were deleted longer ago than the retention time; return how many."""
        before = self._clock.now() - round(self._settings.retention * 1000)
        purged = 0
        for id in await self._store.scan(partial(expired_sessions, before, _PURGED_AT_ONCE)):
            project = await self._store.read(partial(project_of_session, id))
            if await self._each(id, partial(purge_session, id, before)):
                # Not before: the session may have been restored at the last moment.
                await self._release(project, id)
                purged += 1
        return purged

    async def release(self) -> int:
        """Remove what is kept here for sessions that were purged by another machine, or by a
        process that died before it could; return how many there were."""
        released = 0
        for project, id in await self._held():
            if await self._store.read(partial(is_purged, id)):
                await self._release(project, id)
                released += 1
        return released

    async def compact(self, *, every: float = 0.0) -> int:
        """Drop events that later ones made redundant, except those since the last time this ran."""
        now = self._clock.now()
        due = await self._store.scan(partial(due_compaction, now, round(every * 1000)))
        if due is None:
            return 0
        dropped = 0
        for id in due.sessions:
            dropped += await self._each(id, partial(compact_session, id, due.until))
        await self._store.write(partial(finish_compaction, due, now))
        return dropped

    async def _each(self, session_id: str, script: ScriptMaker[int]) -> int:
        """Do it for one session, after settling its forks; a failure does not stop the others."""
        try:
            for fork in await self._store.scan(partial(unsettled_forks, session_id)):
                pos: int | None = 0
                while pos is not None:
                    pos = await self._store.write_bulk(partial(settle_fork, fork, pos))
            return await self._store.write_bulk(script)
        except StoreError as error:
            _log.warning("upkeep of session %s failed: %s", session_id, error)
            return 0


def _complain(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("background work ended", exc_info=task.exception())


async def _every(
    seconds: float, work: Callable[[], Coroutine[Any, Any, None]], *, first: float | None = None
) -> None:
    pause = seconds if first is None else first
    while True:
        await asyncio.sleep(pause)
        pause = seconds
        try:
            await work()
        except KedgeError as error:
            # It is tried again the next time; nothing depends on it meanwhile.
            _log.warning("background work failed: %s", error)
