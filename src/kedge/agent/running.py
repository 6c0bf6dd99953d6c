"""The turns that an agent runs: each in a task of its own, so that whoever asked may go away."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from kedge.agent.attaching import NOTHING, Attached, remember_seen
from kedge.domain.errors import AgentClosed, KedgeError, TurnAborted
from kedge.engine.engine import Engine
from kedge.engine.prompts import Prompt
from kedge.engine.session import Session
from kedge.engine.turns import Turn
from kedge.store.verbs.unanswered import PromptState

_log = logging.getLogger(__name__)


class Running:
    """Everything that an agent has at work."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is at work."""
        return not self._tasks

    def check_open(self) -> None:
        """Refuse to begin anything more once the agent is closed."""
        if self._closed:
            raise AgentClosed

    async def close(self) -> None:
        """Abort what runs."""
        self._closed = True
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have something done, whoever waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_log_failure)
        return task

    async def start(
        self,
        session: Session,
        prompt: Prompt | None,
        work: Callable[[Turn], Awaitable[None]],
        *,
        takes_up: bool,
        attached: Attached = NOTHING,
    ) -> asyncio.Task[None]:
        """Begin a turn; gives the task that runs it, when it has the session."""
        self.check_open()
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A handle of its own: the turn keeps it up to date.
        own = Session(self._engine, session.info)
        # A command of a person is run by nobody else.
        state = PromptState.TAKEN if takes_up else PromptState.TAKEN_LAST
        turn = Turn(self._engine, own, prompt, takes_up=takes_up, state=state)
        running = self.spawn(self._turn(turn, work, attached, begun))
        # It may be cancelled before it has done anything.
        running.add_done_callback(partial(_end_waiting, begun))
        try:
            await asyncio.shield(begun)
        except asyncio.CancelledError:
            # Whoever asked is gone; the turn is not.
            begun.add_done_callback(_forget)
            raise
        return running

    async def _turn(
        self,
        turn: Turn,
        work: Callable[[Turn], Awaitable[None]],
        attached: Attached,
        begun: asyncio.Future[None],
    ) -> None:
        try:
            async with turn:
                await remember_seen(self._engine, turn.session.id, attached)
                if not begun.done():
                    begun.set_result(None)
                await work(turn)
        except TurnAborted:
            # It is recorded, and whoever aborted knows.
            if not begun.done():
                begun.set_result(None)
        except BaseException as error:
            if begun.done() or not isinstance(error, Exception):
                raise
            begun.set_exception(error)


def _end_waiting(begun: asyncio.Future[None], _: asyncio.Task[None]) -> None:
    if not begun.done():
        begun.set_exception(AgentClosed())


def _forget(begun: asyncio.Future[None]) -> None:
    if not begun.cancelled():
        begun.exception()


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        level = logging.INFO if isinstance(error, KedgeError) else logging.ERROR
        _log.log(level, "a turn failed: %s", error, exc_info=error)
