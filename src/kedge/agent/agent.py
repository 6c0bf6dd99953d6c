"""The agent: prompts go in, a model and its tools answer them, whoever goes away meanwhile.

async with kedge.open(".") as engine, Agent(engine) as agent:
    session = await engine.sessions.create()
    answer = await agent.prompt(session, "What is in this folder?")
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, TypeAlias, TypedDict, Unpack
from weakref import WeakValueDictionary

from kedge.agent.attaching import NOTHING, Attached, attach
from kedge.agent.loop import Loop
from kedge.agent.settings import AgentSettings
from kedge.agent.shelling import OWN_COMMAND, run_own_command
from kedge.agent.surroundings import Surroundings, SurroundingsBook
from kedge.agent.titles import give_title, wants_title
from kedge.agent.tools.builtin import BUILTIN
from kedge.agent.tools.tool import Tool
from kedge.domain.errors import AgentClosed, InvalidInput, KedgeError, SessionBusy, TurnAborted
from kedge.domain.events import (
    SessionDeleted,
    SessionErrored,
    SessionStatusChanged,
)
from kedge.domain.failures import unknown
from kedge.domain.messages import (
    AssistantMessage,
    MessageModel,
    MessageWithParts,
    OutputFormat,
)
from kedge.domain.parts import Part
from kedge.domain.providers import ModelInfo
from kedge.domain.status import Idle
from kedge.engine.engine import Engine
from kedge.engine.prompts import Prompt
from kedge.engine.session import Session
from kedge.engine.turns import NothingWaits, Turn
from kedge.store.verbs.changes import set_seen
from kedge.store.verbs.messages import last_answer
from kedge.store.verbs.prompts import waiting_prompts, withdraw_prompt
from kedge.store.waiting import to_the_end

_log = logging.getLogger(__name__)
_LOOK = 0.05
"""Seconds between two looks at a session, or a prompt, that somebody else seems to have."""

PromptParts: TypeAlias = str | Sequence[Part | dict[str, Any]]
"""A prompt: text, or parts, or plain objects that have their shape."""


class PromptOptions(TypedDict, total=False):
    """What may be said with a prompt; the rest is the configuration's to say."""

    agent: str | None
    model: MessageModel | str | None
    """The model, or `provider/model`."""
    variant: str | None
    system: str | None
    """Added to what the model is told before the conversation."""
    tools: dict[str, bool] | None
    """Tools to leave out, or `"*": False` and those to keep."""
    format: OutputFormat | None
    no_reply: bool
    """Only store the prompt."""
    message_id: str | None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A prompt that is stored."""

    id: str
    answered: asyncio.Task[None] | None
    """Done when it is answered; None if it is not to be."""


class Agent:
    """A coding agent for all sessions of an engine."""

    def __init__(
        self,
        engine: Engine,
        *,
        tools: Sequence[Tool] = BUILTIN,
        settings: AgentSettings | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.engine = engine
        self.settings = settings or AgentSettings()
        self._environ = dict(os.environ if environ is None else environ)
        self._tools = _named(tools)
        self._book = SurroundingsBook(engine, self._environ)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._orders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._noticed: dict[str, Sequence[str]] = {}
        """What was said of the configuration of each directory."""
        self._closed = False

    async def __aenter__(self) -> "Agent":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Abort what this agent runs, and let go of the connections to providers."""
        self._closed = True
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._book.close()

    async def surroundings(self, session: Session) -> Surroundings:
        """The configuration, models and agents that hold for a session now."""
        return await self._book.of(session)

    async def prompt(
        self, session: Session, prompt: PromptParts, **options: Unpack[PromptOptions]
    ) -> MessageWithParts:
        """Ask, and wait for the answer: the last message of it, with its parts.

        What the model failed at stands in the answer's `error`. Whoever stops waiting does not stop
        the turn; `abort` does. While the session is busy the prompt is stored at once, and answered
        by what runs there. With `no_reply` it is only stored, and comes back as it is.
        """
        asked = await self._ask(session, prompt, options)
        if asked.answered is None:
            return await session.message(asked.id)
        return await self._answer(session, asked.id, asked.answered)

    async def submit(
        self, session: Session, prompt: PromptParts, **options: Unpack[PromptOptions]
    ) -> str:
        """As `prompt`, but return the prompt's id as soon as it is stored."""
        return (await self._ask(session, prompt, options)).id

    async def shell(
        self,
        session: Session,
        command: str,
        *,
        agent: str | None = None,
        model: MessageModel | str | None = None,
    ) -> MessageWithParts:
        """Run a person's own command in a session, and wait for its end; what it does to files is
        recorded as the session's. Raises `SessionBusy` while something else runs there."""
        _check(session, {})
        around = await self._surroundings(session)
        chosen = around.chosen(agent, model, None)
        told = {"type": "text", "text": OWN_COMMAND, "synthetic": True}
        prompt = Prompt(self.engine, session.id, [told], message_id=None, **chosen)
        running = await self._start(
            session,
            prompt,
            partial(run_own_command, command=command, is_protected=around.config.snapshot),
        )
        return await self._answer(session, prompt.message.id, running)

    async def abort(self, session: Session) -> bool:
        """Stop what runs in a session, in whatever process; returns when it is idle, and tells
        whether it is."""
        _check(session, {})
        return await session.abort()

    async def _answer(
        self, session: Session, id: str, answered: asyncio.Task[None]
    ) -> MessageWithParts:
        """The answer to a prompt, when it is there."""
        # Not awaited itself: a turn that ends with its agent does not cancel whoever waits.
        await asyncio.wait({answered})
        if not answered.cancelled():
            answered.result()
        found = await self.engine.store.scan(partial(last_answer, session.id, id))
        await session.refresh()
        answer = None if found is None else found.decoded()
        if answer is None or (answered.cancelled() and not _answers(answer, id)):
            raise TurnAborted(session.id)
        return answer

    async def _surroundings(self, session: Session) -> Surroundings:
        if self._closed:
            raise AgentClosed
        if not self._tasks:
            # Nobody speaks with models of configurations that were changed since.
            await self._book.forget_replaced()
        try:
            around = await self.surroundings(await session.refresh())
        except KedgeError as error:
            self._tell(session, str(error))
            raise
        self._tell_notices(session, around.config.notices)
        return around

    def _tell_notices(self, session: Session, notices: Sequence[str]) -> None:
        """Say what of the configuration does not count: once, not at each prompt."""
        place = session.info.directory
        if self._noticed.get(place, ()) != notices:
            self._noticed[place] = notices
            if notices:
                self._tell(session, "\n".join(notices))

    async def _ask(self, session: Session, given: PromptParts, options: PromptOptions) -> _Asked:
        _check(session, options)
        # Prompts of a session are stored in the order in which they were asked.
        async with self._orders.setdefault(session.id, asyncio.Lock()):
            return await self._asked(session, given, options)

    async def _asked(self, session: Session, given: PromptParts, options: PromptOptions) -> _Asked:
        around = await self._surroundings(session)
        try:
            chosen = around.chosen(
                options.get("agent"), options.get("model"), options.get("variant")
            )
            attached = await attach(self.engine, session, given)
            prompt = Prompt(
                self.engine,
                session.id,
                attached.parts,
                message_id=options.get("message_id"),
                system=options.get("system"),
                tools=options.get("tools"),
                format=options.get("format"),
                **chosen,
            )
        except KedgeError as error:
            self._tell(session, str(error))
            raise
        for problem in attached.problems:
            self._tell(session, problem)
        if options.get("no_reply"):
            await prompt.add()
            await self._see(session.id, attached)
            return _Asked(prompt.message.id, None)
        return await self._answered(session, prompt, attached, around)

    async def _see(self, session_id: str, attached: Attached) -> None:
        if attached.seen:
            await self.engine.store.write(partial(set_seen, session_id, attached.seen))

    async def _answered(
        self, session: Session, prompt: Prompt, attached: Attached, around: Surroundings
    ) -> _Asked:
        """Begin to answer, or leave the prompt to what runs."""
        id = prompt.message.id
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.engine.settings.stop_patience
        while True:
            try:
                running = await self._start(session, prompt, self._loop, attached)
            except SessionBusy:
                self._check_model(session, prompt, around)
                cursor = await self.engine.events.head()
                if await prompt.queue():
                    await self._see(session.id, attached)
                    return _Asked(id, self._spawn(self._followed(session, id)))
                if not isinstance(await session.status(), Idle):
                    # A revert has it; nobody can tell for how long.
                    await self._idle(session, cursor)
                elif loop.time() > deadline:
                    # Not given back just now: a revert was left unfinished, and may not be touched.
                    raise
                else:
                    await asyncio.sleep(_LOOK)
            else:
                return _Asked(id, running)

    def _check_model(self, session: Session, prompt: Prompt, around: Surroundings) -> None:
        """What runs would end with a prompt for a model that is not there, and others with it."""
        model = prompt.message.model
        try:
            around.catalog.model(model.providerID, model.modelID)
        except KedgeError as error:
            self._tell(session, str(error))
            raise

    async def _followed(self, session: Session, id: str) -> None:
        try:
            await self._follow(session, id)
        except asyncio.CancelledError:
            # The agent closes. Whoever waits is told that it was not answered, so it must not be.
            await to_the_end(self.engine.store.write(partial(withdraw_prompt, session.id, id)))
            raise

    async def _follow(self, session: Session, id: str) -> None:
        """Wait until a prompt that was left to another run is answered; if that run ends without
        having taken it up, answer it."""
        while True:
            cursor = await self.engine.events.head()
            if not isinstance(await session.status(), Idle):
                await self._idle(session, cursor)
                continue
            waiting = await self.engine.store.read(partial(waiting_prompts, session.id))
            if id not in [each.id for each in waiting]:
                return
            try:
                running = await self._start(session, None, self._loop)
            except (SessionBusy, NothingWaits):
                # Somebody else is about to answer it; or fails to, and then nothing is heard.
                await asyncio.sleep(_LOOK)
            else:
                await running

    async def _idle(self, session: Session, cursor: str) -> None:
        async with self.engine.events.subscribe(after=cursor, session=session.id) as events:
            async for event in events:
                if isinstance(event.properties, SessionDeleted) or _is_idle(event.properties):
                    return

    async def _start(
        self,
        session: Session,
        prompt: Prompt | None,
        work: Callable[[Turn], Awaitable[None]],
        attached: Attached = NOTHING,
    ) -> asyncio.Task[None]:
        """Begin a turn; gives the task that runs it, when it has the session."""
        if self._closed:
            raise AgentClosed
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A handle of its own: the turn keeps it up to date.
        own = Session(self.engine, session.info)
        turn = Turn(self.engine, own, prompt, takes_up=work == self._loop)
        running = self._spawn(self._turn(turn, work, attached, begun))
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
                await self._see(turn.session.id, attached)
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

    async def _loop(self, turn: Turn) -> None:
        around = await self.surroundings(turn.session)
        turn.is_protected = turn.is_protected and around.config.snapshot
        await Loop(
            turn=turn,
            surroundings=around,
            tools=self._tools,
            settings=self.settings,
            environ=self._environ,
            on_first_step=partial(self._name, turn.session, around),
        ).run()

    def _name(
        self, session: Session, around: Surroundings, prompt: MessageWithParts, info: ModelInfo
    ) -> None:
        """Have the session named beside its first answer."""
        if wants_title(session.info):
            model = around.catalog.open(around.catalog.small(info.providerID) or info)
            _ = self._spawn(give_title(session, prompt, model))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_log_failure)
        return task

    def _tell(self, session: Session, error: str) -> None:
        """Tell those who listen what is wrong with a prompt."""
        info = session.info
        self.engine.events.announce(
            SessionErrored(sessionID=info.id, error=unknown(error)),
            session_id=info.id,
            project_id=info.projectID,
            directory=info.directory,
        )


def _named(tools: Sequence[Tool]) -> dict[str, Tool]:
    named: dict[str, Tool] = {}
    for each in tools:
        if not isinstance(each, Tool):
            raise InvalidInput(f"{each!r} is no tool; make one of it with @tool", field="tools")
        if each.name in named:
            raise InvalidInput(f"there are two tools called {each.name!r}", field="tools")
        named[each.name] = each
    return named


def _check(session: object, options: Mapping[str, object]) -> None:
    if not isinstance(session, Session):
        raise InvalidInput("give a session, as engine.sessions.get(id) does", field="session")
    if unknown_ones := sorted(set(options) - set(PromptOptions.__annotations__)):
        known = ", ".join(sorted(PromptOptions.__annotations__))
        wrong = ", ".join(unknown_ones)
        raise InvalidInput(f"a prompt has no {wrong}; it has {known}", field=unknown_ones[0])


def _answers(message: MessageWithParts, id: str) -> bool:
    return isinstance(message.info, AssistantMessage) and message.info.parentID == id


def _is_idle(properties: object) -> bool:
    return isinstance(properties, SessionStatusChanged) and isinstance(properties.status, Idle)


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
