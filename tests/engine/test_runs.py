"""Who may run a session: leases between engines and processes, and what is left of a dead owner's
run."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kedge import Settings
from kedge.domain import wire
from kedge.domain.errors import EngineClosed, SessionBusy, StoreUnavailable, TurnAborted
from kedge.domain.messages import AssistantMessage
from kedge.domain.parts import TextPart, ToolError, ToolPart
from kedge.domain.sessions import Busy, Idle
from kedge.engine.engine import Engine
from kedge.engine.leases import LeaseKeeper
from kedge.engine.os_process import Owner, owner_lives, this_process
from kedge.engine.runs import INTERRUPTED
from kedge.engine.session import Session
from kedge.store.queries.leases import run_of
from kedge.store.queries.requests import add_request, ask_to_stop
from tests.engine.engine_factory import (
    EngineFactory,
    database_time,
    forge_lease,
    lease_row,
    stored_log,
)
from tests.engine.engine_processes import Child
from tests.engine.event_log_fake import Reader
from tests.support.timeouts import PATIENCE


async def last_answer(session: Session) -> tuple[AssistantMessage, list[Any]]:
    """The newest message, which is an answer, and its parts."""
    found = (await session.messages()).messages[-1]
    assert isinstance(found.info, AssistantMessage)
    return found.info, found.parts


def changed_owner(**changes: Any) -> str:  # noqa: ANN401 - any field
    """This process as an owner, but for some fields."""
    owner: Owner = msgspec.structs.replace(this_process("elsewhere"), **changes)
    return wire.encode(owner)


async def check_interrupted(session: Session) -> None:
    """The run of `child.work` was closed as a crash leaves it."""
    message, parts = await last_answer(session)
    assert message.error is not None
    assert message.error.name == "MessageAbortedError"
    assert message.time.completed is not None
    (text,) = [part for part in parts if isinstance(part, TextPart)]
    assert text.text == "half a sen", "what was stored of it stays"
    assert text.time is not None
    assert text.time.end is not None
    (tool,) = [part for part in parts if isinstance(part, ToolPart)]
    assert isinstance(tool.state, ToolError)
    assert tool.state.input == {"command": "make"}
    assert (tool.state.metadata or {})["interrupted"] is True
    assert await session.status() == Idle()


async def test_a_busy_session_takes_no_second_turn_in_the_same_engine(any_engine: Engine) -> None:
    """While a turn is open, another one is refused, and nothing of its prompt is stored."""
    session = await any_engine.sessions.create("s")
    async with session.turn("First"):
        assert await session.status() == Busy()
        assert await any_engine.statuses() == {session.id: Busy()}
        with pytest.raises(SessionBusy):
            async with session.turn("Second"):
                pytest.fail("two turns at once")
        assert len((await session.messages()).messages) == 1
    assert await session.status() == Idle()
    assert await any_engine.statuses() == {}
    async with session.turn("Third"):
        pass
    assert len((await session.messages()).messages) == 2


async def test_of_turns_that_start_together_one_runs(any_engine: Engine) -> None:
    """However many turns are started in one session at once, one runs undisturbed; the rest are
    refused."""
    session = await any_engine.sessions.create("s")
    entered, everybody_tried = asyncio.Event(), asyncio.Event()

    async def run(n: int) -> str:
        try:
            async with session.turn(f"{n}") as turn, turn.step() as step:
                entered.set()
                await everybody_tried.wait()
                await step.text("done")
        except SessionBusy:
            return "busy"
        return "ran"

    running = [asyncio.create_task(run(n)) for n in range(8)]
    await entered.wait()
    async with asyncio.timeout(PATIENCE):
        while sum(each.done() for each in running) < 7:
            await asyncio.wait(
                [each for each in running if not each.done()], return_when="FIRST_COMPLETED"
            )
    everybody_tried.set()
    assert sorted([await each for each in running]) == ["busy"] * 7 + ["ran"]
    assert len((await session.messages()).messages) == 2


async def test_a_busy_session_takes_no_second_turn_elsewhere(
    any_place: EngineFactory, children: AsyncExitStack
) -> None:
    """Another engine and another process see that the session is busy, and are refused."""
    async with any_place.open() as engine, any_place.open() as second:
        session = await engine.sessions.create("s")
        same = await second.sessions.get(session.id)
        async with session.turn("First"):
            assert await same.status() == Busy()
            assert await second.statuses() == {session.id: Busy()}
            with pytest.raises(SessionBusy):
                async with same.turn("Second"):
                    pytest.fail("two turns at once")
            child = Child(any_place, "begin", session.id)
            assert await (await children.enter_async_context(child)).hear() == "SessionBusy"
        assert await same.status() == Idle()
        child = Child(any_place, "begin", session.id)
        assert await (await children.enter_async_context(child)).hear() == "begun"


async def test_opening_an_engine_leaves_living_runs_alone(
    any_place: EngineFactory, children: AsyncExitStack
) -> None:
    """Recovery touches neither a run of another engine of this process nor one of another
    process."""
    async with any_place.open() as engine:
        mine, other = [await engine.sessions.create(name) for name in ("mine", "other")]
        child = await children.enter_async_context(Child(any_place, "work", other.id))
        await child.hear()
        async with mine.turn("First") as turn, turn.step() as step:
            async with any_place.open() as second:
                assert second.recovery.sessions == []
                assert await second.statuses() == {mine.id: Busy(), other.id: Busy()}
            await step.text("not disturbed")
        await child.say()
        assert await child.hear() == "stored"


async def test_a_killed_owner_is_recovered_from(
    any_place: EngineFactory, children: AsyncExitStack
) -> None:
    """After SIGKILL the next engine closes what was open, says so in events, and names the
    session."""
    async with any_place.open() as engine:
        session = await engine.sessions.create("s")
        child = await children.enter_async_context(Child(any_place, "work", session.id))
        part_id = await child.hear()
        assert await session.status() == Busy()
        head = len(await stored_log(engine)) and (await stored_log(engine))[-1].seq
        generation = (await lease_row(engine, session.id))[0]
        await child.kill()
        assert await session.status() == Idle(), "nobody runs it, whatever the row says"
        async with engine.events.subscribe(session=session.id) as events:
            reader = Reader(events)
            async with any_place.open() as second:
                assert second.recovery.sessions == [session.id]
                await check_interrupted(await second.sessions.get(session.id))
            await reader.until_type("session.idle")
            await reader.stop()
        message, _ = await last_answer(session)
        assert message.error is not None
        assert message.error.data == {"message": INTERRUPTED}
        after = await stored_log(engine, head)
        types = [event.type for event in after if event.session_id == session.id]
        assert types == [
            "message.part.updated",
            "message.part.updated",
            "message.updated",
            "session.status",
            "session.idle",
        ]
        assert [event.payload for event in reader.got] == [
            event.payload for event in after if event.session_id == session.id
        ]
        assert any(part_id in event.payload for event in after)
        new_generation, owner, *_ = await lease_row(engine, session.id)
        assert (new_generation > generation, owner) == (True, None)
        async with any_place.open() as third:
            assert third.recovery.sessions == [], "recovered once"


async def test_a_turn_takes_over_from_a_killed_owner(
    any_place: EngineFactory, children: AsyncExitStack
) -> None:
    """An engine that was open all the time starts a turn after the owner died, and closes its work
    first."""
    async with any_place.open() as engine:
        session = await engine.sessions.create("s")
        child = await children.enter_async_context(Child(any_place, "work", session.id))
        await child.hear()
        await child.kill()
        async with session.turn("Go on") as turn, turn.step() as step:
            await step.text("gladly")
        messages = (await session.messages()).messages
        assert [type(each.info).__name__ for each in messages] == [
            "UserMessage",
            "AssistantMessage",
            "UserMessage",
            "AssistantMessage",
        ]
        cut_off = messages[1].info
        assert isinstance(cut_off, AssistantMessage)
        assert cut_off.error is not None
        assert cut_off.error.name == "MessageAbortedError"


async def test_a_paused_owner_that_was_cut_off_changes_nothing(
    any_place: EngineFactory, children: AsyncExitStack
) -> None:
    """An owner that sleeps through the deletion of its session learns it at its next write."""
    async with any_place.open() as engine:
        session = await engine.sessions.create("s")
        child = await children.enter_async_context(Child(any_place, "work", session.id))
        await child.hear()
        child.pause()
        deleter = await children.enter_async_context(Child(any_place, "delete", session.id))
        assert await deleter.hear() == "deleted"
        await engine.sessions.restore(session.id)
        before = await session.messages(), (await stored_log(engine))[-1].seq
        child.resume()
        await child.say()
        assert await child.hear() == "LeaseLost"
        assert await child.process.wait() == 0
        assert (await session.messages(), (await stored_log(engine))[-1].seq) == before
        await check_interrupted(session)


async def test_every_turn_has_a_higher_generation(any_engine: Engine) -> None:
    """The generation rises with each turn and never falls, so that old owners are told apart."""
    session = await any_engine.sessions.create("s")
    seen = []
    for _ in range(3):
        async with session.turn("x") as turn:
            seen.append(turn.fence.generation)
    assert seen == sorted(set(seen))
    assert (await lease_row(any_engine, session.id))[:2] == (seen[-1], None)


@pytest.mark.parametrize(
    "changes",
    [
        {"machine": "another machine"},
        {"namespace": "pid:[1]", "pid": 2**22},
        {"boot": "another boot", "pid": 2**22},
        {"namespace": "pid:[1]", "start": "another time"},
    ],
    ids=["machine", "container", "boot", "container with this pid"],
)
async def test_who_cannot_be_looked_up_is_judged_by_the_clock(
    any_place: EngineFactory, changes: dict[str, Any]
) -> None:
    """An owner elsewhere keeps its session until the lease expires on the database's clock, no
    longer."""
    # No longer than the database's server has been up, for sure.
    shortest = Settings(lease_time=0.1)
    async with any_place.open(settings=shortest) as engine:
        session = await engine.sessions.create("s")
        owner = changed_owner(**changes)
        now = await database_time(engine)
        await forge_lease(engine, session.id, owner, expires=now + 3_600_000, status=Busy())
        assert await session.status() == Busy()
        with pytest.raises(SessionBusy):
            async with session.turn("x"):
                pytest.fail("taken from somebody who may live")
        async with any_place.open(settings=shortest) as second:
            assert second.recovery.sessions == []
        await forge_lease(engine, session.id, owner, expires=now - 1, status=Busy())
        assert await session.status() == Idle()
        async with any_place.open(settings=shortest) as second:
            assert second.recovery.sessions == [session.id]


@pytest.mark.parametrize(
    "changes", [{"start": "1"}, {"pid": 2**22 + 1}], ids=["pid used again", "pid gone"]
)
async def test_who_can_be_looked_up_is_judged_by_its_process(
    engine: Engine, changes: dict[str, Any]
) -> None:
    """On this machine a dead owner's session is free at once, however long its lease would last."""
    session = await engine.sessions.create("s")
    now = await database_time(engine)
    owner = changed_owner(**changes)
    await forge_lease(engine, session.id, owner, expires=now + 3_600_000, status=Busy())
    assert await session.status() == Idle()
    async with session.turn("x") as turn:
        assert turn.fence.generation > 7


async def test_after_an_outage_others_get_time_to_renew_their_leases(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could renew while the database was away: an owner elsewhere whose lease has expired
    meanwhile keeps its session for as long as a lease lasts."""
    session = await engine.sessions.create("s")
    owner = changed_owner(machine="another machine")
    await forge_lease(engine, session.id, owner, expires=0, status=Busy())
    monkeypatch.setattr(engine.store, "available_since", time.monotonic())
    assert await session.status() == Busy()
    assert await engine.runs.dead_runs() == []
    with pytest.raises(SessionBusy):
        async with session.turn("too early"):
            pytest.fail("it is not known whether its owner lives")
    long_ago = time.monotonic() - engine.settings.lease_time
    monkeypatch.setattr(engine.store, "available_since", long_ago)
    assert await session.status() == Idle()
    async with session.turn("in time"):
        assert await session.status() == Busy()


async def test_a_living_process_keeps_its_session_although_the_lease_expired(
    engine: Engine,
) -> None:
    """On this machine an owner that could not renew in time still owns its session."""
    session = await engine.sessions.create("s")
    await forge_lease(engine, session.id, changed_owner(), expires=0, status=Busy())
    assert await session.status() == Busy()
    with pytest.raises(SessionBusy):
        async with session.turn("x"):
            pytest.fail("taken from somebody who lives")


async def test_a_lease_is_renewed_while_the_event_loop_is_busy(any_place: EngineFactory) -> None:
    """Renewal runs beside the event loop: a loop that is blocked does not lose its sessions."""
    async with any_place.open(settings=Settings(lease_time=0.15)) as engine:
        session = await engine.sessions.create("s")
        renewed = threading.Semaphore(0)
        renew = engine.store.run_blocking

        def counted(script: Any) -> Any:  # noqa: ANN401 - passed on
            result = renew(script)
            renewed.release()
            return result

        engine.store.run_blocking = counted  # type: ignore[method-assign]
        async with session.turn("x"):
            first = (await lease_row(engine, session.id))[2]
            # Those from before do not count, nor one that was just ending.
            while renewed.acquire(blocking=False):
                pass
            for _ in range(3):
                assert renewed.acquire(timeout=PATIENCE)
            assert (await lease_row(engine, session.id))[2] > first


def test_a_renewal_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """The keeper survives a database that is away for a while."""
    tried = threading.Semaphore(0)

    class Away:
        def run_blocking(self, script: object) -> None:
            tried.release()
            raise StoreUnavailable("away")

    keeper = LeaseKeeper(Away(), "me", 0.01)  # type: ignore[arg-type]  # as much as it uses
    keeper.start()
    keeper.start()
    for _ in range(3):
        assert tried.acquire(timeout=PATIENCE)
    keeper.stop()
    assert "cannot renew leases: away" in caplog.text
    assert not [each for each in threading.enumerate() if each.name == "kedge-leases"]


async def test_closing_an_engine_frees_a_run_that_does_not_stop(any_place: EngineFactory) -> None:
    """A task that ignores its cancellation cannot keep a session busy for as long as the process
    lives."""
    release = asyncio.Event()
    working = asyncio.Event()

    async def stubborn(session: Session) -> str:
        try:
            async with session.turn("x") as turn, turn.step():
                working.set()
                while not release.is_set():
                    try:
                        await release.wait()
                    except asyncio.CancelledError:
                        continue
        except Exception as error:  # noqa: BLE001 - the test looks at it
            return type(error).__name__
        return "ended well"

    async with any_place.open() as other:
        async with any_place.open(settings=Settings(stop_patience=0)) as engine:
            session = await engine.sessions.create("s")
            task = asyncio.create_task(stubborn(session))
            await working.wait()
        same = await other.sessions.get(session.id)
        assert await same.status() == Idle()
        message, _ = await last_answer(same)
        assert message.error is not None
        async with same.turn("Next"):
            pass
        release.set()
        assert await task == "EngineClosed"


async def test_requests_are_heard_again_after_the_database_was_away(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losing the database for a moment does not make an engine deaf to aborts."""
    session = await engine.sessions.create("s")
    scan = engine.store.scan
    away, failed = True, asyncio.Event()

    async def sometimes(script: Any) -> Any:  # noqa: ANN401 - passed on
        if away:
            failed.set()
            raise StoreUnavailable("away")
        return await scan(script)

    monkeypatch.setattr(engine.store, "scan", sometimes)
    with pytest.raises(TurnAborted):  # noqa: PT012 - the block is what is tested
        async with session.turn("x"):
            await failed.wait()
            away = False
            abort = asyncio.create_task(session.abort())
            await asyncio.wait_for(asyncio.Event().wait(), PATIENCE)
    assert await abort is True


async def test_a_first_turn_that_finds_no_database_fails_and_leaves_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a turn cannot even listen for requests it fails at once, and a later one works."""
    session = await engine.sessions.create("s")
    with monkeypatch.context() as patch:

        async def away(script: object) -> None:
            raise StoreUnavailable("away")

        patch.setattr(engine.store, "read", away)
        with pytest.raises(StoreUnavailable):
            async with asyncio.timeout(PATIENCE), session.turn("x"):
                pytest.fail("without a database")
    async with session.turn("y"):
        assert await session.status() == Busy()


def test_this_process_is_alive() -> None:
    """An owner made here and now names this very process."""
    owner = this_process("e")
    assert owner.pid == os.getpid()
    assert owner.start


async def test_an_abort_that_comes_late_leaves_the_next_turn_alone(
    any_place: EngineFactory,
) -> None:
    """A request is meant for the run that was going on, and for no other."""
    async with any_place.open() as engine, any_place.open() as other:
        session = await engine.sessions.create("s")
        async with session.turn("first"):
            request = partial(ask_to_stop, session.id, other.ids.request())
            generation = await other.store.read(partial(run_of, session.id))
        assert await other.store.write(request) is None, "nobody runs it"
        stale = partial(
            add_request, session.id, other.ids.request(), "abort", generation=generation[2]
        )
        await other.store.write(stale)
        async with session.turn("second") as turn, turn.step() as step:
            async with engine.events.subscribe() as events:
                await other.store.write(
                    partial(
                        add_request,
                        session.id,
                        other.ids.request(),
                        "abort",
                        generation=generation[2],
                    )
                )
                await anext(events)
            await step.text("still here")
        assert (await session.messages()).messages[-1].parts


async def test_an_engine_that_is_closed_owns_nothing(place: EngineFactory) -> None:
    """A turn that nobody ends does not keep its session busy once its engine is closed."""
    async with place.open() as engine:
        session = await engine.sessions.create("s")

        async def forgotten() -> AsyncIterator[None]:
            async with session.turn("never ended"):
                yield

        turn = forgotten()
        await anext(turn)
    async with place.open() as engine:
        again = await engine.sessions.get(session.id)
        assert await again.status() == Idle()
        async with again.turn("goes on"):
            pass
        with pytest.raises(EngineClosed):
            await anext(turn)


async def test_no_turn_begins_in_an_engine_that_closes(place: EngineFactory) -> None:
    """From the moment the engine is closed no lease is taken any more; closing twice is fine."""
    async with place.open() as engine:
        session = await engine.sessions.create("s")
        await engine.close()
        with pytest.raises(EngineClosed):
            async with session.turn("too late"):
                pass
        await engine.close()


def test_a_process_that_cannot_be_looked_at_is_taken_for_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the processes of others are hidden, one that is there is not judged dead."""
    other = msgspec.structs.replace(this_process("e"), pid=1, start="123")

    def hidden(self: Path, *args: object, **names: object) -> str:
        raise FileNotFoundError(self)

    monkeypatch.setattr(Path, "read_text", hidden)
    assert owner_lives(wire.encode(other), True, this_process("here"))
