"""Prompts and the runs that answer them: begins one, or follows the one that there is."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from kedge.agent.attaching import Attached, remember_seen
from kedge.agent.running import Running
from kedge.domain.errors import SessionBusy
from kedge.domain.events import SessionDeleted, SessionStatusChanged
from kedge.domain.status import Idle
from kedge.engine.engine import Engine
from kedge.engine.prompts import Prompt
from kedge.engine.session import Session
from kedge.engine.turns import NothingWaits, Turn
from kedge.store.verbs.prompts import ask_again, waiting_prompts
from kedge.store.verbs.unanswered import PromptState

_LOOK = 0.05
"""Seconds between two looks at a session, or a prompt, that somebody else seems to have."""


class Following:
    """Sees to it that prompts are answered, by whichever run."""

    def __init__(
        self, engine: Engine, running: Running, answer: Callable[[Turn], Awaitable[None]]
    ) -> None:
        self._engine = engine
        self._running = running
        self._answer = answer

    async def answered(
        self, session: Session, prompt: Prompt, attached: Attached
    ) -> asyncio.Task[None]:
        """Begin to answer, or leave the prompt to what runs; the task is done when it is
        answered."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._engine.settings.stop_patience
        while True:
            try:
                return await self._running.start(
                    session, prompt, self._answer, takes_up=True, attached=attached
                )
            except SessionBusy:
                cursor = await self._engine.events.head()
                if await prompt.queue(PromptState.WAITING):
                    await remember_seen(self._engine, session.id, attached)
                    return self._running.spawn(self._follow(session, prompt.message.id))
                if not isinstance(await session.status(), Idle):
                    # A revert has it; nobody can tell for how long.
                    await self._idle(session, cursor)
                elif loop.time() > deadline:
                    # Not given back just now: a revert was left unfinished, and may not be touched.
                    raise
                else:
                    await asyncio.sleep(_LOOK)

    async def answered_once(self, session: Session, id: str) -> asyncio.Task[None]:
        """Follow a prompt that is stored already; it is taken up if nobody ever did."""
        await self._engine.runs.end_dead_run(session.id)
        again = partial(
            ask_again,
            session.id,
            id,
            self._engine.ids,
            is_alive=self._engine.runs.alive_in(session.id),
            now=self._engine.clock.now(),
        )
        await self._engine.store.write(again)
        return self._running.spawn(self._follow(session, id))

    async def _follow(self, session: Session, id: str) -> None:
        """Wait until a prompt that was left to another run is answered; if that run ends without
        having taken it up, answer it."""
        while True:
            cursor = await self._engine.events.head()
            if not isinstance(await session.status(), Idle):
                await self._idle(session, cursor)
                continue
            waiting = await self._engine.store.read(partial(waiting_prompts, session.id))
            if id not in [each.id for each in waiting]:
                return
            try:
                running = await self._running.start(session, None, self._answer, takes_up=True)
            except (SessionBusy, NothingWaits):
                # Somebody else is about to answer it; or fails to, and then nothing is heard.
                await asyncio.sleep(_LOOK)
            else:
                await running

    async def _idle(self, session: Session, cursor: str) -> None:
        async with self._engine.events.subscribe(after=cursor, session=session.id) as events:
            async for event in events:
                if isinstance(event.properties, SessionDeleted) or _is_idle(event.properties):
                    return


def _is_idle(properties: object) -> bool:
    return isinstance(properties, SessionStatusChanged) and isinstance(properties.status, Idle)
