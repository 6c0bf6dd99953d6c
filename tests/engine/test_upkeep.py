"""What an engine does in the background: search index, purge, compaction."""

import asyncio
import logging
from contextlib import AsyncExitStack

import pytest

from kedge import Settings
from kedge.domain.errors import SessionNotFound, StoreUnavailable
from kedge.domain.messages import AssistantMessage
from kedge.engine import upkeep
from kedge.engine.engine import Engine
from kedge.testing.clock import ManualClock
from tests.engine.engine_factory import EngineFactory, stored_log
from tests.engine.engine_processes import Child
from tests.support.timeouts import PATIENCE

NOW = 1_800_000_000_000
DAY = 86_400_000


async def test_deleted_sessions_are_purged_when_their_time_is_over(
    any_place: EngineFactory,
) -> None:
    """Until the retention time has passed a session can be restored, and not after the next
    purge."""
    clock = ManualClock(NOW)
    async with any_place.open(clock=clock, settings=Settings(retention=86_400)) as engine:
        kept, gone, restored = [await engine.sessions.create(name) for name in "abc"]
        await gone.delete()
        await restored.delete()
        clock.advance(DAY - 1)
        assert await engine.upkeep.purge() == 0
        await engine.sessions.restore(restored.id)
        clock.advance(2)
        assert await engine.upkeep.purge() == 1
        assert (await engine.sessions.deleted()).sessions == []
        with pytest.raises(SessionNotFound):
            await engine.sessions.restore(gone.id)
        ids = {each.id for each in (await engine.sessions.list()).sessions}
        assert ids == {kept.id, restored.id}
        about_gone = [e.type for e in await stored_log(engine) if e.session_id == gone.id]
        assert about_gone == ["session.deleted"], "whoever replays learns that it is gone"


async def test_compaction_drops_what_later_events_made_pointless(any_place: EngineFactory) -> None:
    """Old titles go, the newest stays; nothing since the last round is touched."""
    clock = ManualClock(NOW)
    async with any_place.open(clock=clock) as engine:
        session = await engine.sessions.create("0")
        for n in range(1, 6):
            await session.update(title=str(n))
        assert await engine.upkeep.compact() == 0, "the first round only marks its place"
        await session.update(title="new")
        assert await engine.upkeep.compact() == 4
        log = [event for event in await stored_log(engine) if event.session_id == session.id]
        assert [event.type for event in log] == ["session.created"] + ["session.updated"] * 2
        assert await engine.upkeep.compact(every=60) == 0, "not due yet"


async def test_the_index_is_filled_by_itself(any_engine: Engine) -> None:
    """Indexing twice finds nothing new the second time, and everything the first."""
    session = await any_engine.sessions.create("findable")
    await any_engine.upkeep.index()
    await any_engine.upkeep.index()
    hits = (await any_engine.sessions.search("findable")).hits
    assert [hit.session.id for hit in hits] == [session.id]


async def test_background_work_that_fails_is_done_again(
    place: EngineFactory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A database that is away for a while stops no background work for good."""
    monkeypatch.setattr("kedge.engine.upkeep._INDEX_EVERY", 0.001)
    tried, second = 0, asyncio.Event()

    async def index(self: object) -> None:
        nonlocal tried
        tried += 1
        if tried > 1:
            second.set()
        raise StoreUnavailable("away")

    monkeypatch.setattr("kedge.engine.upkeep.Upkeep.index", index)
    with caplog.at_level(logging.WARNING):
        async with place.open():
            await asyncio.wait_for(second.wait(), PATIENCE)
    assert "background work failed: away" in caplog.text


async def test_the_run_of_a_process_that_dies_is_ended_by_those_that_live(
    any_place: EngineFactory, children: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that is open hears of the end of a killed process without being opened again."""
    monkeypatch.setattr(upkeep, "_RECOVER_EVERY", 0.01)
    async with any_place.open() as engine:
        session = await engine.sessions.create("cut off")
        child = await children.enter_async_context(Child(any_place, "work", session.id))
        await child.hear()
        async with engine.events.subscribe(session=session.id) as events:
            child.process.kill()
            async for event in events:
                if event.type == "session.idle":
                    break
        message = (await session.messages()).messages[-1].info
        assert isinstance(message, AssistantMessage)
        assert message.error is not None
        assert message.time.completed is not None
