"""Recovery of what dead processes left: each session by itself, concurrently, so that one that
cannot be recovered does not block the others."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from kedge.domain.errors import EngineClosed, SessionNotFound
from kedge.engine.heartbeats import forget_beats, silent_engines
from kedge.engine.os_process import machine
from kedge.store.queries.plans import is_unfinished, sessions_with_unfinished
from kedge.store.queries.prompts import account_for, sessions_with_unanswered
from kedge.store.queries.timeline import leftovers

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.session import Session

_log = logging.getLogger(__name__)
_AT_ONCE = 16
_FILES = "files"
"""The name of the task for files that were left, which belong to no session."""

AnswerLeft: TypeAlias = "Callable[[Session], Awaitable[None]]"
"""Answers the prompts that were left in a session."""


class Recovery:
    """Recovers what dead processes left."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._few = asyncio.Semaphore(_AT_ONCE)
        self._at_work: dict[str, asyncio.Task[None]] = {}
        self._answer_left: AnswerLeft | None = None
        self._complaints: dict[str, str] = {}
        self.sessions: list[str] = []
        """Sessions whose run was cut off by the end of its process, and that are recovered."""
        self.cut_off: dict[str, None] = {}
        """Sessions whose run was found to be cut off, recovered or not."""

    def answer_left_with(self, answer: AnswerLeft) -> None:
        """Have prompts answered that no run has begun; without this none are."""
        self._answer_left = answer

    async def recover(self) -> None:
        """Recover everything possible; what fails is tried again the next time."""
        await self.look()
        while self._at_work:
            await asyncio.wait(self._at_work.values())
        await self._forget_beats()

    async def look(self) -> None:
        """Start tasks for everything there is to recover now."""
        store = self._engine.store
        found = dict.fromkeys(await self._engine.runs.dead_runs())
        self.cut_off |= found
        found |= dict.fromkeys(await store.read(sessions_with_unfinished))
        found |= dict.fromkeys(await store.read(sessions_with_unanswered))
        found |= dict.fromkeys(task.session_id for task in await self._engine.background.left())
        for id in found:
            self._begin(id, partial(self._session, id))
        if await store.read(partial(leftovers, machine())):
            self._begin(_FILES, self._leftovers)

    async def close(self) -> None:
        """Stop; unfinished work is found again by the next recovery."""
        for task in self._at_work.values():
            task.cancel()
        await asyncio.gather(*self._at_work.values(), return_exceptions=True)

    def _begin(self, name: str, put_in_order: Callable[[], Awaitable[None]]) -> None:
        if name not in self._at_work:
            task = asyncio.create_task(self._one(name, put_in_order))
            self._at_work[name] = task
            task.add_done_callback(lambda _: self._at_work.pop(name))

    async def _one(self, name: str, put_in_order: Callable[[], Awaitable[None]]) -> None:
        async with self._few:
            try:
                await put_in_order()
            except (EngineClosed, SessionNotFound):
                return
            except Exception as error:  # noqa: BLE001 - no error may stop the other sessions
                self._complain(name, str(error))
            else:
                self._complaints.pop(name, None)

    async def _session(self, session_id: str) -> None:
        engine = self._engine
        if await engine.runs.end_dead_run(session_id):
            self.sessions.append(session_id)
        if await engine.store.read(partial(is_unfinished, session_id)):
            await engine.reverts.recover_session(session_id)
        await self._account_for(session_id)
        await engine.background.tell_left(session_id)

    async def _account_for(self, session_id: str) -> None:
        """Settle the prompts that no run has begun: explain them, or have them answered."""
        engine = self._engine
        now = engine.clock.now()
        settle = partial(
            account_for,
            session_id,
            engine.ids,
            oldest=now - round(engine.settings.prompt_age * 1000),
            is_alive=engine.runs.alive_in(session_id),
            now=now,
        )
        if await engine.store.write(settle) and self._answer_left is not None:
            await self._answer_left(await engine.sessions.get(session_id))

    async def _leftovers(self) -> None:
        from kedge.engine.timeline.leftovers import look_after_leftovers

        await look_after_leftovers(self._engine)

    def _complain(self, name: str, trouble: str) -> None:
        """Log what could not be recovered: once, not each time."""
        if self._complaints.get(name) != trouble:
            self._complaints[name] = trouble
            _log.warning("%s cannot be recovered yet: %s", name, trouble, exc_info=True)

    async def _forget_beats(self) -> None:
        """Remove the heartbeats of engines that are gone, unless they are still needed."""
        engine = self._engine
        silent = set(await asyncio.to_thread(silent_engines, engine.data))
        if silent:
            unneeded = silent - await engine.runs.engines_at_work()
            await asyncio.to_thread(forget_beats, engine.data, unneeded)
