"""Runs the turns of an agent, each in a task of its own, so that a turn goes on without its
caller."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypedDict, TypeVar

from kedge.agent.attachments import NOTHING, Attached, remember_seen
from kedge.domain.conversation import PromptState
from kedge.domain.errors import AgentClosed, InvalidInput, KedgeError, SessionBusy, TurnAborted
from kedge.domain.events import SessionDeleted, SessionStatusChanged
from kedge.domain.messages import MessageModel, OutputFormat
from kedge.domain.parts import Part
from kedge.domain.sessions import Idle
from kedge.engine.engine import Engine
from kedge.engine.prompts import Prompt
from kedge.engine.session import Session
from kedge.engine.turns import NothingWaits, Turn

T = TypeVar("T")
_log = logging.getLogger(__name__)


class RunningTurns:
    """The running turns and other tasks of an agent."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs."""
        return not self._tasks

    def check_open(self) -> None:
        """Refuse to start anything once the agent is closed."""
        if self._closed:
            raise AgentClosed

    async def close(self) -> None:
        """Abort everything that runs."""
        self._closed = True
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something in a task of its own, independent of callers."""
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
        """Start a turn; return its task once it has the session."""
        self.check_open()
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A handle of its own: the turn keeps it up to date.
        own = Session(self._engine, session.info)
        # A user's command, and a subtask, is run by no other process.
        is_left = takes_up and (prompt is None or prompt.link.works_for is None)
        state = PromptState.TAKEN if is_left else PromptState.TAKEN_LAST
        turn = Turn(self._engine, own, prompt, takes_up=takes_up, state=state)
        running = self.spawn(self._turn(turn, work, attached, begun))
        # It may be cancelled before it has done anything.
        running.add_done_callback(partial(_end_waiting, begun))
        try:
            await asyncio.shield(begun)
        except asyncio.CancelledError:
            # The caller is gone; the turn is not.
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
            # The abort is recorded, and its caller knows.
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


_LOOK = 0.05
"""Seconds between two checks of a session, or a prompt, that another process seems to have."""


class Following:
    """Makes sure that prompts are answered, by any run."""

    def __init__(
        self, engine: Engine, running: RunningTurns, answer: Callable[[Turn], Awaitable[None]]
    ) -> None:
        self._engine = engine
        self._running = running
        self._answer = answer

    async def answered(
        self, session: Session, prompt: Prompt, attached: Attached
    ) -> asyncio.Task[None]:
        """Begin to answer, or leave the prompt to the current run; the task is done when it is
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
                is_left = prompt.link.works_for is None
                state = PromptState.WAITING if is_left else PromptState.WAITING_LAST
                if await prompt.queue(state):
                    await remember_seen(self._engine, session.id, attached)
                    return self._running.spawn(self._follow(session, prompt.message.id))
                if not isinstance(await session.status(), Idle):
                    # A revert has it, for an unknown time.
                    await self._idle(session, cursor)
                elif loop.time() > deadline:
                    # Not just being released: a revert was left unfinished, and the session may not
                    # be used.
                    raise
                else:
                    await asyncio.sleep(_LOOK)

    async def answered_once(self, session: Session, id: str) -> asyncio.Task[None]:
        """Wait for the answer to a prompt that is stored already; answer it if no run ever did."""
        await self._engine.conversations.ask_again(session.id, id)
        return self._running.spawn(self._follow(session, id))

    async def _follow(self, session: Session, id: str) -> None:
        """Wait until a prompt that was left to another run is answered; if that run ends without
        having accepted it, answer it."""
        while True:
            cursor = await self._engine.events.head()
            if not isinstance(await session.status(), Idle):
                await self._idle(session, cursor)
                continue
            if not await self._engine.conversations.is_waiting(session.id, id):
                return
            try:
                running = await self._running.start(session, None, self._answer, takes_up=True)
            except (SessionBusy, NothingWaits):
                # Another process is about to answer it; if that fails, there is no event.
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


PromptParts: TypeAlias = str | Sequence[Part | dict[str, Any]]
"""A prompt: text, or parts, or plain objects of the same shape."""


class AnswerOptions(TypedDict, total=False):
    """Options of a prompt that is to be answered; by default the configuration decides."""

    agent: str | None
    model: MessageModel | str | None
    """The model, or `provider/model`."""
    variant: str | None
    system: str | None
    """Added to the system prompt."""
    tools: dict[str, bool] | None
    """Tools to leave out, or `"*": False` and those to keep."""
    format: OutputFormat | None
    """`JsonSchemaFormat(schema=…)` for a JSON object, which the answer has as `structured`."""
    message_id: str | None
    """A prompt that exists already is not asked again."""


class PromptOptions(AnswerOptions, total=False):
    """Options of any prompt."""

    no_reply: bool
    """Only store the prompt."""


def check_session(session: object) -> None:
    """Refuse an argument that is not a session."""
    if not isinstance(session, Session):
        raise InvalidInput("give a session, as engine.sessions.get(id) does", field="session")


def check_options(options: Mapping[str, object]) -> None:
    """Refuse unknown options."""
    if unknown_ones := sorted(set(options) - set(PromptOptions.__annotations__)):
        known = ", ".join(sorted(PromptOptions.__annotations__))
        wrong = ", ".join(unknown_ones)
        raise InvalidInput(f"a prompt has no {wrong}; it has {known}", field=unknown_ones[0])
