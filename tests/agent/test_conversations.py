"""Conversations that are kept between prompts: read once, and never another one than is stored."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kedge.agent import Agent, AgentSettings, conversations
from kedge.agent.conversations import Histories, History
from kedge.domain.conversation import Growth
from kedge.domain.errors import KedgeError
from kedge.domain.messages import AssistantMessage, MessageWithParts
from kedge.domain.parts import TextPart
from kedge.domain.wire_errors import aborted
from kedge.engine import conversation
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.store.queries.growth import conversation_growth
from kedge.store.transaction import Script
from tests.agent.test_attachments import PNG
from tests.agent.world import QUICK, World

PICTURE = f"data:image/png;base64,{b64encode(PNG).decode()}"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each look at the store found; three at most."""
    found: list[int] = []

    def counted(*given: Any, **options: Any) -> Script[Growth]:  # noqa: ANN401 - as the original
        growth = yield from conversation_growth(*given, **options)
        found.append(len(growth.messages))
        return growth

    monkeypatch.setattr(conversation, "conversation_growth", counted)
    monkeypatch.setattr(conversations, "_PAGE", 3)
    return found


async def test_a_long_conversation_is_read_once(any_world: World, read: list[int]) -> None:
    """A prompt reads what is newer, and a step what the step before it said."""
    async with any_world.at_work() as scene:
        for number in range(5):
            await scene.prompt(f"say {number}")
        read.clear()
        await scene.prompt("write a.txt a\nwrite b.txt b\nwrite c.txt c\nsay done")
        # The last answer of the turn before is settled when the next prompt has come.
        assert sum(read) <= 2 + 4
        assert max(read) <= 3


async def test_the_first_look_reads_all(any_world: World, read: list[int]) -> None:
    """Page by page."""
    async with any_world.at_work() as scene:
        for number in range(5):
            await scene.prompt(f"say {number}")
        async with Agent(scene.engine, environ=any_world.environ) as another:
            read.clear()
            await another.prompt(scene.session, "say on")
            assert sum(read) == 11
            assert len(read) == 4


async def test_what_a_prompt_changed_does_not_matter(world: World, read: list[int]) -> None:
    """A prompt is written again when its turn is over, with the files that it changed."""
    async with world.at_work() as scene:
        await scene.prompt("\n".join(f"write {n}.txt x" for n in range(6)))
        read.clear()
        await scene.prompt("say on")
        assert sum(read) <= 2


async def test_a_load_that_is_broken_off_is_not_kept(
    world: World, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows how far its thread came."""
    monkeypatch.setattr(conversations, "_FEW", 0)
    async with world.at_work() as scene:
        await scene.prompt("say one")
        kept = Histories(scene.engine.conversations, 1000_000)
        began = asyncio.Event()

        async def endless(*_: object) -> None:
            began.set()
            await asyncio.Event().wait()

        async def load() -> None:
            with kept.of(scene.session.id) as history:
                await history.turns([])

        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "to_thread", endless)
            loading = asyncio.create_task(load())
            await began.wait()
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
        assert kept.size == 0
        await load()
        assert kept.size > 0


async def test_the_oldest_are_forgotten(world: World) -> None:
    """Of all sessions together no more is kept than the limit says; pictures count."""
    async with world.at_work() as scene:
        ids = []
        for _ in range(3):
            session = await scene.engine.sessions.create("One of several")
            picture = {"type": "file", "mime": "image/png", "url": PICTURE}
            await scene.prompt([{"type": "text", "text": "say x"}, picture], session)
            ids.append(session.id)
        kept = Histories(scene.engine.conversations, 10**9)
        sizes = []
        for id in ids:
            before = kept.size
            with kept.of(id) as history:
                await history.turns([])
            sizes.append(kept.size - before)
        assert min(sizes) > len(PICTURE)
        small = Histories(scene.engine.conversations, sum(sizes) - 1)
        for id in ids:
            with small.of(id) as history:
                await history.turns([])
        assert small.size == sum(sizes[1:])
        nothing = Histories(scene.engine.conversations, 0)
        with nothing.of(ids[0]) as history:
            await history.turns([])
        assert nothing.size == 0


async def test_nothing_kept_is_no_trouble(world: World) -> None:
    """It only takes longer."""
    async with world.at_work(settings=AgentSettings(history_bytes=0)) as scene:
        for number in range(3):
            answer = await scene.prompt(f"say {number}")
            assert isinstance(answer.info, AssistantMessage)
            assert answer.info.error is None


class Machine:
    """Two engines on one database, and a session that both of them change."""

    def __init__(self, engines: list[Engine], agents: list[Agent], session: str) -> None:
        self._engines = engines
        self._agents = agents
        self._id = session
        self._kept = [Histories(each.conversations, 10**9) for each in engines]

    async def do(self, what: str, which: int, who: int) -> None:
        """Do one thing, if it can be done."""
        session = await self._engines[who].sessions.get(self._id)
        if what in ASKED:
            await self._ask(self._agents[who], session, what, which)
            return
        if what == "compact":
            await self._engines[who].upkeep.compact()
            return
        messages = (await session.messages(limit=1000)).messages
        if messages:
            await self._change(session, what, which, messages[which % len(messages)])

    async def _ask(self, agent: Agent, session: Session, what: str, which: int) -> None:
        match what:
            case "prompt":
                await agent.prompt(session, f"say {which}")
            case "work":
                await agent.prompt(session, f"write {which}.txt x\nsay done")
            case "fail":
                await agent.prompt(session, "fail context")
            case "note":
                await agent.prompt(session, f"note {which}", no_reply=True)
            case "shell":
                await agent.shell(session, "true")
            case "summarize":
                await agent.summarize(session, auto=which % 2 == 0)

    async def _change(
        self, session: Session, what: str, which: int, message: MessageWithParts
    ) -> None:
        id, part = message.info.id, message.parts[which % len(message.parts)]
        match what:
            case "revert":
                await session.revert(id)
            case "unrevert":
                await session.unrevert()
            case "fork":
                self._id = (await session.fork(id)).id
            case "remove":
                await session.remove_message(id)
            case "interrupt" if isinstance(message.info, AssistantMessage):
                error = aborted("Aborted")
                await session.put_message(msgspec.structs.replace(message.info, error=error))
            case "edit" if isinstance(part, TextPart):
                await session.put_part(msgspec.structs.replace(part, text=f"edited {which}"))
            case "remove part" if len(message.parts) > 1:
                await session.remove_part(id, part.id)

    async def check(self) -> None:
        """What each engine has kept is what a fresh reader finds."""
        for engine, kept in zip(self._engines, self._kept, strict=True):
            fresh = await History(engine.conversations, self._id).turns([])
            with kept.of(self._id) as history:
                assert await history.turns([]) == fresh


ASKED = ("prompt", "work", "fail", "note", "shell", "summarize")
CHANGED = ("revert", "unrevert", "fork", "remove", "interrupt", "edit", "remove part", "compact")


@asynccontextmanager
async def machine(world: World) -> AsyncIterator[Machine]:
    """Two engines with an agent each."""
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(world.open()) for _ in range(2)]
        agents = [
            await stack.enter_async_context(Agent(each, environ=world.environ, settings=QUICK))
            for each in engines
        ]
        session: Session = await engines[0].sessions.create("Given")
        yield Machine(engines, agents, session.id)


@settings(
    max_examples=max(15, settings().max_examples // 8),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from((*ASKED, *ASKED, *CHANGED)), st.integers(0, 20), st.integers(0, 1)
        ),
        min_size=10,
        max_size=25,
    )
)
async def test_what_is_kept_is_what_is_stored(
    steps: list[tuple[str, int, int]],
    patient: None,
    read: list[int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Whoever changed whatever, in this process or in another one."""
    world = World.made(tmp_path_factory.mktemp("kept"))
    async with machine(world) as both:
        for what, which, who in steps:
            try:
                await both.do(what, which, who)
            except KedgeError:
                continue  # it cannot be done now
            await both.check()
