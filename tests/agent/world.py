"""Where the agent is tested: a git folder, a home with a configuration of its own, an engine, and
everything that happens written down."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import kedge
from kedge.agent import BUILTIN, Agent, AgentSettings, Tool
from kedge.domain.events import (
    EventProperties,
    MessageUpdated,
    PartDelta,
    PartUpdated,
    ServerHeartbeat,
    SessionErrored,
    SessionIdle,
    SessionStatusChanged,
)
from kedge.domain.messages import AssistantMessage, MessageWithParts, UserMessage
from kedge.domain.parts import (
    Part,
    ReasoningPart,
    TextPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    ToolRunning,
)
from kedge.domain.sessions import Idle
from kedge.engine.engine import Engine
from kedge.engine.event_log import Event, Subscription
from kedge.engine.session import Session
from tests.support.model_server import ModelServer
from tests.support.timeouts import PATIENCE

E = TypeVar("E", bound=EventProperties)
QUICK = AgentSettings(retry_delay=0)
"""Waits as short as can be; who tests a wait says how long it is."""


@dataclass(frozen=True)
class World:
    """A folder, a home and a database, for as many engines as a test wants."""

    root: Path
    database: str

    @classmethod
    def made(cls, root: Path, database: str | None = None) -> "World":
        """A git repository with a few files, and an empty home."""
        world = cls(root, database or str(root / "kedge.db"))
        world.folder.mkdir()
        world.put("a.txt", "one\n")
        world.put("b.txt", "".join(f"line {number}\n" for number in range(1, 11)))
        subprocess.run(["git", "init", "--quiet"], cwd=world.folder, check=True)
        world.config.mkdir(parents=True)
        return world

    @property
    def folder(self) -> Path:
        """The worktree."""
        return self.root / "work"

    @property
    def config(self) -> Path:
        """The folder of the person's own configuration, which is trusted."""
        return self.root / "home" / "config"

    @property
    def environ(self) -> dict[str, str]:
        """An environment that knows no key and no other configuration."""
        home = {"HOME": str(self.root / "home"), "XDG_CONFIG_HOME": str(self.config)}
        return {**home, "PATH": "/usr/local/bin:/usr/bin:/bin", "SHELL": "/bin/sh"}

    def put(self, name: str, content: str | bytes) -> Path:
        """Write a file of the worktree."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def read(self, name: str) -> str:
        """A file of the worktree."""
        return (self.folder / name).read_text()

    async def until(self, name: str, is_it: Callable[[str], bool]) -> str:
        """A file of the worktree, when it is there and as it should be: no event tells of that."""
        async with asyncio.timeout(PATIENCE):
            while not (self.folder / name).exists() or not is_it(self.read(name)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return self.read(name)

    def configure(self, **said: Any) -> None:  # noqa: ANN401 - any configuration
        """Write the person's own configuration."""
        path = self.config / "opencode" / "opencode.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(said))

    def use(self, server: ModelServer, *, npm: str = "openai-compatible", **said: Any) -> None:  # noqa: ANN401 - any configuration
        """Configure a scripted server as the default model."""
        provider = {
            "npm": f"@ai-sdk/{npm}",
            "options": {"baseURL": server.url, "apiKey": "none"},
            "models": {
                "spoken": {
                    "variants": {"high": {"temperature": 0.25}},
                    "attachment": True,
                    "modalities": {"input": ["text", "image"], "output": ["text"]},
                },
                "other": {},
                "small": {},
            },
        }
        base = {"model": "scripted/spoken", "small_model": "scripted/small"}
        self.configure(**{**base, "provider": {"scripted": provider}, **said})

    def open(self, **options: Any) -> AbstractAsyncContextManager[Engine]:  # noqa: ANN401 - as kedge.open
        """One more engine."""
        return kedge.open(
            self.folder, database=self.database, data_dir=self.root / "data", **options
        )

    @asynccontextmanager
    async def at_work(
        self,
        *,
        title: str | None = "Given",
        tools: Sequence[Tool] = BUILTIN,
        settings: AgentSettings = QUICK,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> AsyncIterator["Scene"]:
        """An engine, an agent and a session; what happens is heard from here on."""
        environ = {**self.environ, **variables}
        async with (
            self.open() as engine,
            Agent(engine, environ=environ, tools=tools, settings=settings) as agent,
        ):
            session = await engine.sessions.create(title)
            async with listening(engine) as heard:
                yield Scene(self, engine, agent, session, heard)


class Heard:
    """What happened, in order, and those who wait for something to happen."""

    def __init__(self, engine: Engine, cursor: str) -> None:
        self._engine = engine
        self._seq = _number(cursor)
        self.events: list[Event] = []
        self._beats = 0
        self._news = asyncio.Condition()

    async def listen(self, events: Subscription) -> None:
        """Write down everything."""
        async for event in events:
            async with self._news:
                if event.type == ServerHeartbeat.type:
                    self._beats += 1
                else:
                    self.events.append(event)
                self._seq = max(self._seq, event.seq)
                self._news.notify_all()

    async def until(self, is_it: Callable[[Any], bool], *, after: int = 0) -> int:
        """Wait for an event; gives how many there were when it had come."""
        async with asyncio.timeout(PATIENCE), self._news:
            seen = after
            while True:
                for at, event in enumerate(self.events[seen:], seen):
                    if is_it(event.properties):
                        return at + 1
                seen = len(self.events)
                await self._news.wait()

    async def asked(self, kind: type[E]) -> E:
        """The first event of a kind, when it has come."""
        at = await self.until(lambda event: isinstance(event, kind))
        found = self.events[at - 1].properties
        assert isinstance(found, kind)
        return found

    async def caught_up(self) -> None:
        """Wait until everything that was stored or told was heard."""
        head = _number(await self._engine.events.head())
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: self._seq >= head)
            beats = self._beats
            # What is not stored has no number; a mark is heard after all that was told before it.
            self._engine.events.announce(ServerHeartbeat())
            await self._news.wait_for(lambda: self._beats > beats)

    def of(self, kind: type[E], session: str | None = None) -> list[E]:
        """The events of a kind, of all sessions or one."""
        found = [e.properties for e in self.events if session in (None, e.session_id)]
        return [each for each in found if isinstance(each, kind)]

    def spoken(self) -> dict[str, str]:
        """What the deltas of each part add up to."""
        texts: dict[str, str] = {}
        for delta in self.of(PartDelta):
            texts[delta.partID] = texts.get(delta.partID, "") + delta.delta
        return texts


def _number(cursor: str) -> int:
    return int(cursor.rpartition("-")[2])


@asynccontextmanager
async def listening(engine: Engine) -> AsyncIterator[Heard]:
    """Hear everything that happens in an engine."""
    async with engine.events.subscribe() as events:
        heard = Heard(engine, events.cursor)
        listener = asyncio.create_task(heard.listen(events))
        try:
            yield heard
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)


@dataclass(frozen=True)
class Scene:
    """An agent at work in a session."""

    world: World
    engine: Engine
    agent: Agent
    session: Session
    heard: Heard
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    async def prompt(
        self,
        prompt: str | Sequence[Part | dict[str, Any]],
        session: Session | None = None,
        **options: Any,  # noqa: ANN401 - as Agent.prompt
    ) -> MessageWithParts:
        """Ask and wait, but not for ever."""
        async with asyncio.timeout(PATIENCE):
            answer: MessageWithParts
            answer = await self.agent.prompt(session or self.session, prompt, **options)
            return answer

    async def messages(self, session: Session | None = None) -> list[MessageWithParts]:
        """All messages, oldest first."""
        return (await (session or self.session).messages(limit=1000)).messages

    async def answers(self, session: Session | None = None) -> list[MessageWithParts]:
        """The messages of the model, oldest first."""
        return [
            each for each in await self.messages(session) if isinstance(each.info, AssistantMessage)
        ]

    async def speaks(self) -> None:
        """Wait for the first piece of an answer."""
        await self.heard.until(lambda event: isinstance(event, PartDelta))

    async def works(self, tool: str = "bash") -> None:
        """Wait until a tool is at work."""
        await self.heard.until(
            lambda event: (
                isinstance(event, PartUpdated)
                and isinstance(event.part, ToolPart)
                and event.part.tool == tool
                and isinstance(event.part.state, ToolRunning)
            )
        )

    async def is_idle(self) -> bool:
        """Whether the session does nothing, and said so last."""
        await self.heard.caught_up()
        told = self.heard.of(SessionStatusChanged, self.session.id)
        idle = isinstance(await self.session.status(), Idle)
        return idle and (not told or isinstance(told[-1].status, Idle))

    async def settled(self) -> None:
        """Wait until nothing runs in the session and nobody will begin anything."""
        heard = len(self.heard.events)
        while not await self.is_idle():
            heard = await self.heard.until(lambda each: isinstance(each, SessionIdle), after=heard)

    def errors(self) -> list[str]:
        """What clients were told that went wrong."""
        return [
            str(each.error.data.get("message") or each.error.name)
            for each in self.heard.of(SessionErrored)
            if each.error is not None
        ]


def info_of(message: MessageWithParts) -> AssistantMessage:
    """An answer's own words about itself."""
    assert isinstance(message.info, AssistantMessage)
    return message.info


def text_of(message: MessageWithParts) -> str:
    """What a message says."""
    return "".join(part.text for part in message.parts if isinstance(part, TextPart))


def tools_of(message: MessageWithParts) -> list[ToolPart]:
    """The calls that a message makes."""
    return [part for part in message.parts if isinstance(part, ToolPart)]


def error_of(part: ToolPart) -> str:
    """Why a call failed."""
    assert isinstance(part.state, ToolError)
    return part.state.error


async def check_closed(scene: Scene, session: Session | None = None) -> None:
    """Whatever happened, nothing is left open: the session is idle, messages are completed, calls
    are over, and what was heard piece by piece is what is stored."""
    of = session or scene.session
    await scene.heard.caught_up()
    assert isinstance(await of.status(), Idle)
    told = scene.heard.of(SessionStatusChanged, of.id)
    if told:
        assert isinstance(told[-1].status, Idle)
        assert scene.heard.of(SessionIdle, of.id)
    spoken = scene.heard.spoken()
    for message in await scene.messages(of):
        if isinstance(message.info, UserMessage):
            continue
        assert info_of(message).time.completed is not None
        for part in message.parts:
            if isinstance(part, ToolPart):
                assert isinstance(part.state, ToolCompleted | ToolError)
            elif isinstance(part, TextPart | ReasoningPart):
                assert part.time is not None
                assert part.time.end is not None
                assert part.text == spoken.get(part.id, part.text)
    assert await scene.engine.asks.permissions() == []
    assert await scene.engine.asks.questions() == []


def last_told(heard: Heard) -> Mapping[str, AssistantMessage]:
    """The answers as clients heard of them last."""
    told = [each.info for each in heard.of(MessageUpdated)]
    return {info.id: info for info in told if isinstance(info, AssistantMessage)}
