"""Words that were announced survive the process that announced them."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from typing import Any

import pytest

from kedge.domain.errors import InvalidInput, StoreFull
from kedge.domain.parts import ReasoningPart, TextPart
from kedge.engine import pieces
from kedge.engine.engine import Engine
from kedge.engine.parts import Stream
from kedge.engine.session import Session
from kedge.store.queries.pieces import add_pieces
from kedge.store.transaction import Script, rows
from kedge.testing.replay import both
from tests.engine.engine_factory import NEVER, EngineFactory
from tests.engine.engine_processes import Child
from tests.support.timeouts import PATIENCE

SAID = "abcdefghijklmnopqrstuvwxyz"


async def texts(session: Session) -> list[str]:
    """What the last answer said and thought."""
    parts = (await session.messages()).messages[-1].parts
    return [part.text for part in parts if isinstance(part, TextPart | ReasoningPart)]


async def kept(engine: Engine, session: Session) -> list[str]:
    """The parts of which the store has pieces."""

    def script() -> Script[list[str]]:
        return [id for (id,) in (yield from rows("piece_parts", session_id=session.id))]

    return await engine.store.scan(script)


def on_pieces(engine: Engine, monkeypatch: pytest.MonkeyPatch, before: Callable[[], Any]) -> None:
    """Have something awaited before pieces are stored; all else is stored as ever."""
    write = engine.store.write

    async def stopped(script: Any) -> Any:  # noqa: ANN401 - any script
        if isinstance(script, partial) and script.func is add_pieces:
            await before()
        return await write(script)

    monkeypatch.setattr(engine.store, "write", stopped)


@pytest.mark.parametrize(("kind", "last"), [("text", 8), ("reasoning", 12)])
async def test_a_killed_process_loses_fifty_milliseconds(
    any_place: EngineFactory, children: AsyncExitStack, kind: str, last: int
) -> None:
    """Of what was announced, a letter each 16 ms, the last four may be gone."""
    async with any_place.open() as engine:
        session = await engine.sessions.create("s")
        child = Child(any_place, "speak", session.id, kind, str(last))
        assert await (await children.enter_async_context(child)).hear_all() == []
    async with any_place.open() as engine:
        assert engine.recovery.sessions == [session.id]
        (text,) = await texts(await engine.sessions.get(session.id))
        assert SAID.startswith(text)
        assert len(text) >= last - 4
        replayed, state = await both(engine.store)
        assert replayed == state
        assert await kept(engine, session) == []


async def test_what_was_said_before_a_silence_is_stored(
    any_place: EngineFactory, children: AsyncExitStack
) -> None:
    """Nobody has to say more for it."""
    async with any_place.open() as engine:
        session = await engine.sessions.create("s")
        child = await children.enter_async_context(Child(any_place, "fall_silent", session.id))
        assert await child.hear() == "said"
        async with asyncio.timeout(PATIENCE):
            while not await kept(engine, session):
                pass
        await child.kill()
        assert await texts(session) == [""], "no event has told it"
        await engine.recovery.recover()
        assert engine.recovery.sessions == [session.id]
        assert await texts(session) == ["half a sen"]


async def test_streams_share_a_transaction(
    any_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many speak, and however often."""
    monkeypatch.setattr(pieces, "WINDOW", NEVER)
    transactions = count()

    async def counted() -> None:
        next(transactions)

    on_pieces(any_engine, monkeypatch, counted)
    sessions = [await any_engine.sessions.create("s") for _ in range(5)]
    async with AsyncExitStack() as stack:
        for session in sessions:
            turn = await stack.enter_async_context(session.turn("Speak"))
            step = await stack.enter_async_context(turn.step())
            out = await stack.enter_async_context(step.speak())
            await out.write("so ")
            await out.write("far")
        await any_engine.pieces.store()
        assert [len(await kept(any_engine, each)) for each in sessions] == [1] * 5
        assert next(transactions) == 1
    assert [await texts(each) for each in sessions] == [["so far"]] * 5


async def test_nothing_is_stored_after_the_end_of_its_part(
    any_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that ends, or is taken back, waits for its pieces that are on their way."""
    monkeypatch.setattr(pieces, "WINDOW", NEVER)
    started, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        started.set()
        await go_on.wait()

    on_pieces(any_engine, monkeypatch, wait)
    session = await any_engine.sessions.create("s")
    async with session.turn("Speak") as turn, turn.step() as step:
        one, two = step.speak(), step.speak()
        for out in (one, two):
            await out.__aenter__()
            await out.write("words")
        storing = asyncio.create_task(any_engine.pieces.store())
        await started.wait()
        ending = [
            asyncio.create_task(one.__aexit__(None, None, None)),
            asyncio.create_task(step.retract(two.part_id)),
        ]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(storing, *ending)
        assert await kept(any_engine, session) == []
        assert await texts(session) == ["words"]


async def test_text_that_cannot_be_stored_is_not_announced(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn hears why; what was said before is stored when that is possible again."""
    monkeypatch.setattr(pieces, "WINDOW", 0)
    failures = iter([StoreFull("no space")])

    async def fail() -> None:
        for failure in failures:
            raise failure

    on_pieces(engine, monkeypatch, fail)
    session = await engine.sessions.create("s")
    heard: list[str] = []
    monkeypatch.setattr(session, "delta", lambda message, part, text, offset: heard.append(text))
    async with session.turn("Speak") as turn, turn.step() as step, step.speak() as out:
        with pytest.raises(StoreFull):
            await out.write("one ")
        assert heard == []
        await out.write("two")
        assert heard == ["two"]
        assert await texts(await session.fork()) == ["one two"]
    assert await texts(session) == ["one two"]


async def test_what_was_said_while_storing_failed_follows_what_could_not_be_stored(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next transaction has both, of the same part and of others."""
    monkeypatch.setattr(pieces, "WINDOW", NEVER)
    started, go_on = asyncio.Event(), asyncio.Event()
    failures = iter([StoreFull("no space")])

    async def fail() -> None:
        started.set()
        await go_on.wait()
        for failure in failures:
            raise failure

    on_pieces(engine, monkeypatch, fail)
    session = await engine.sessions.create("s")
    async with (
        session.turn("Speak") as turn,
        turn.step() as step,
        step.speak() as one,
        step.think() as two,
    ):
        await one.write("one ")
        storing = asyncio.create_task(engine.pieces.store())
        await started.wait()
        await one.write("two")
        await two.write("three")
        go_on.set()
        with pytest.raises(StoreFull):
            await storing
        await engine.pieces.store()
        assert await texts(await session.fork()) == ["one two", "three"]


async def test_what_a_failed_step_had_announced_is_stored(
    any_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a text that nobody ended; it can say no more."""
    monkeypatch.setattr(pieces, "WINDOW", NEVER)
    session = await any_engine.sessions.create("s")
    spoken: list[Stream] = []

    async def fail() -> None:
        async with session.turn("Speak") as turn, turn.step() as step:
            spoken.append(await step.speak().__aenter__())
            await spoken[0].write("half a sen")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await texts(session) == ["half a sen"]
    with pytest.raises(InvalidInput):
        await spoken[0].write("tence")


async def test_a_fork_has_what_was_announced(
    any_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as it is stored."""
    monkeypatch.setattr(pieces, "WINDOW", 0)
    session = await any_engine.sessions.create("s")
    async with session.turn("Speak") as turn, turn.step() as step, step.speak() as out:
        await out.write("é\0")
        await out.write("😀")
        assert await texts(await session.fork()) == ["é\0😀"]
    replayed, state = await both(any_engine.store)
    assert replayed == state
