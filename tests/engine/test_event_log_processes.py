"""Subscriptions over real databases: several engines, other processes, restarts."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from kedge.domain.events import PartDelta
from kedge.domain.ids import IdMaker
from kedge.domain.messages import MessageTime, UserMessage
from kedge.domain.parts import TextPart
from kedge.engine.engine import Engine
from kedge.engine.prompts import NO_MODEL
from kedge.engine.session import Session
from kedge.store.port import StoredEvent
from tests.engine.engine_factory import EngineFactory, stored_log
from tests.engine.engine_processes import Child
from tests.engine.event_log_fake import Reader
from tests.support.timeouts import PATIENCE


def payloads(events: list[StoredEvent]) -> list[tuple[int, str]]:
    """What the log holds, to be compared with what a reader got."""
    return [(event.seq, event.payload) for event in events]


def kept(reader: Reader) -> list[tuple[int, str]]:
    """What a reader got that is stored."""
    return [(event.seq, event.payload) for event in reader.got if event.seq]


async def prompt(engine: Engine, session: Session, text: str) -> None:
    """Store a message with one part; a long text goes another way than a short one."""
    ids = IdMaker()
    message = UserMessage(
        id=ids.message(),
        sessionID=session.id,
        time=MessageTime(created=engine.clock.now()),
        agent="build",
        model=NO_MODEL,
    )
    await session.put_message(message)
    part = TextPart(id=ids.part(), sessionID=session.id, messageID=message.id, text=text)
    await session.put_part(part)


async def test_writers_everywhere_and_no_event_lost_or_doubled(
    any_place: EngineFactory, children: AsyncExitStack
) -> None:
    """With writers in this process, in a second engine and in two others, all readers get the
    log."""
    async with any_place.open() as engine, any_place.open() as second:
        sessions = [await engine.sessions.create(f"s{n}") for n in range(4)]
        writers = [
            await children.enter_async_context(Child(any_place, "rename", session.id, "60"))
            for session in sessions[:2]
        ]
        readers = [
            Reader(await each.events.subscribe(after=each.events.start).__aenter__())
            for each in (engine, second, engine)
        ]
        only = engine.events.subscribe(after=engine.events.start, session=sessions[0].id)
        chosen = Reader(await only.__aenter__())
        for writer in writers:
            assert await writer.hear() == "ready"
            await writer.say()
        mine, yours = sessions[2], await second.sessions.get(sessions[3].id)
        for n in range(15):
            await asyncio.gather(
                prompt(engine, mine, "x" * (100_000 if n % 3 == 0 else 10)),
                prompt(second, yours, "y" * (100_000 if n % 5 == 0 else 10)),
            )
            if n % 5 == 0:
                late = engine.events.subscribe(after=engine.events.start)
                readers.append(Reader(await late.__aenter__()))
        for writer in writers:
            assert await writer.hear() == "done"
        log = await stored_log(engine)
        for reader in readers:
            await reader.until(log[-1].seq)
            assert kept(reader) == payloads(log)
            await reader.stop()
        due = [event for event in log if event.session_id == sessions[0].id]
        await chosen.until(due[-1].seq)
        assert kept(chosen) == payloads(due)
        await chosen.stop()


async def test_the_first_subscriber_hears_another_process_without_any_commit_here(
    any_place: EngineFactory, children: AsyncExitStack
) -> None:
    """A process that never writes follows one that does."""
    async with any_place.open() as engine:
        session = await engine.sessions.create("s")
        writer = await children.enter_async_context(Child(any_place, "rename", session.id, "5"))
        assert await writer.hear() == "ready"
        async with engine.events.subscribe() as events:
            await writer.say()
            async with asyncio.timeout(PATIENCE):
                titles = [(await anext(events)).properties for _ in range(5)]
    assert [each.info.title for each in titles] == [  # type: ignore[union-attr]
        f"{session.id} {n}" for n in range(5)
    ]


async def test_a_cursor_survives_the_engine(any_place: EngineFactory) -> None:
    """A reader goes on after a restart where it stopped, and misses nothing written in between."""
    async with any_place.open() as engine:
        session = await engine.sessions.create("before")
        async with engine.events.subscribe(after=engine.events.start) as events:
            reader = Reader(events)
            await reader.until_type("session.created")
            await reader.stop()
        cursor = reader.place
    async with any_place.open() as engine:
        await (await engine.sessions.get(session.id)).update(title="between")
    async with (
        any_place.open() as engine,
        engine.events.subscribe(after=cursor, session=session.id) as events,
    ):
        again = Reader(events)
        await (await engine.sessions.get(session.id)).update(title="after")
        await again.meeting(lambda: len(again.got) == 2)
        await again.stop()
    titles = [each.properties.info.title for each in again.got]  # type: ignore[union-attr]
    assert titles == ["between", "after"]


async def test_deltas_reach_listeners_of_this_process_with_their_offsets(
    any_engine: Engine,
) -> None:
    """Pieces of a streamed text come between its stored states, unstored, each saying where it
    belongs."""
    session = await any_engine.sessions.create("s")
    start = len(await stored_log(any_engine))
    async with any_engine.events.subscribe(session=session.id) as events:
        reader = Reader(events)
        async with session.turn("Hi") as turn, turn.step() as step, step.speak() as out:
            for piece in ("Hel", "", "lo, ", "world"):
                await out.write(piece)
        await reader.until_type("session.idle")
        await reader.stop()
    deltas = [event for event in reader.got if isinstance(event.properties, PartDelta)]
    assert [(event.cursor, event.offset) for event in deltas] == [(None, 0), (None, 3), (None, 7)]
    texts = [event.properties.delta for event in deltas]  # type: ignore[union-attr]
    assert "".join(texts) == "Hello, world"
    assert kept(reader) == payloads(await stored_log(any_engine, start))


async def test_a_slow_reader_of_a_real_log_gets_everything(any_place: EngineFactory) -> None:
    """A reader that stalls while much is written is told so, and then gets all of it."""
    from kedge import Settings

    async with any_place.open(settings=Settings(queue_length=8)) as engine:
        session = await engine.sessions.create("s")
        start = len(await stored_log(engine))
        async with engine.events.subscribe() as events:
            for n in range(300):
                await session.update(title=f"t{n}")
            reader = Reader(events)
            log = await stored_log(engine, start)
            await reader.until(log[-1].seq)
            await reader.stop()
    assert reader.got[0].type == "server.resync"
    assert kept(reader) == payloads(log)


async def test_a_cursor_of_another_database_gives_a_resync(
    place: EngineFactory, folder: object
) -> None:
    """A cursor from one database is of no use in another, and the reader is told where to go on."""
    other = EngineFactory(place.folder, f"{place.database}.other")
    async with other.open() as engine:
        foreign = await engine.events.head()
    async with place.open() as engine, engine.events.subscribe(after=foreign) as events:
        event = await anext(events)
        head = await engine.events.head()
    assert (event.type, event.cursor) == ("server.resync", head)


@pytest.mark.parametrize("bulk", [False, True])
async def test_a_cancelled_write_that_was_stored_is_heard(engine: Engine, bulk: bool) -> None:
    """Whoever gives up waiting for a write does not hide it from subscribers if it was stored."""
    session = await engine.sessions.create("s")
    async with engine.events.subscribe() as events:
        reader = Reader(events)
        for n in range(20):
            text = "x" * (100_000 if bulk else 10)
            writing = asyncio.create_task(prompt(engine, session, text))
            for _ in range(n % 4):
                await asyncio.sleep(0)
            writing.cancel()
            await asyncio.wait({writing})
        await session.update(title="the end")
        await reader.until_type("session.updated")
        await reader.stop()
        log = await stored_log(engine, reader.got[0].seq - 1)
    assert kept(reader) == payloads(log)


async def test_closing_an_engine_ends_its_subscriptions(any_place: EngineFactory) -> None:
    """A reader in another task sees the end of its subscription when the engine is closed."""
    async with any_place.open() as engine:
        live = Reader(await engine.events.subscribe().__aenter__())
        replaying = Reader(await engine.events.subscribe(after=engine.events.start).__aenter__())
        await engine.sessions.create("s")
        await live.meeting(lambda: True)
    await live.finish()
    await replaying.finish()
    assert live.ended
    assert replaying.ended
