"""Sessions and their subtasks: what is done to a session is done to all below it."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from kedge.domain.errors import QuestionRejected, SessionNotFound, TurnAborted
from kedge.domain.events import SessionDeleted, SessionIdle, SessionUpdated
from kedge.domain.messages import AssistantMessage
from kedge.domain.sessions import Idle
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.testing.clock import ManualClock
from tests.engine.engine_factory import EngineFactory, stored_log
from tests.engine.engine_processes import Child

NOW = 1_800_000_000_000


async def family(engine: Engine) -> dict[str, Session]:
    """A session with two subtasks, each of which has one of its own."""
    top = await engine.sessions.create("top")
    found = {"top": top}
    for name in ("a", "b"):
        found[name] = await engine.sessions.create(name, parent=top.id)
        below = f"{name}{name}"
        found[below] = await engine.sessions.create(below, parent=found[name].id)
    return found


DEPTH_FIRST = ["bb", "b", "aa", "a", "top"]
"""Each after what is below it; of neighbours the newer one first."""


async def run(session: Session, entered: asyncio.Event) -> None:
    """A turn that ends only when it is stopped."""
    async with session.turn("Go") as turn, turn.step() as step, step.tool("wait", {}):
        entered.set()
        await asyncio.Event().wait()


async def start(session: Session) -> asyncio.Task[None]:
    """Begin such a turn."""
    entered = asyncio.Event()
    task = asyncio.create_task(run(session, entered))
    await entered.wait()
    return task


async def ended(*running: asyncio.Task[None]) -> None:
    """Wait for turns that are stopped."""
    for error in await asyncio.gather(*running, return_exceptions=True):
        assert isinstance(error, TurnAborted)


async def error_of(session: Session) -> str | None:
    """What the last answer says about its end."""
    last = (await session.messages()).messages[-1].info
    assert isinstance(last, AssistantMessage)
    return last.error.name if last.error else None


async def told(engine: Engine, kind: str, after: int, tree: dict[str, Session]) -> list[str]:
    """The sessions of a tree about which an event of this type was stored, in order."""
    names = {session.id: name for name, session in tree.items()}
    log = await stored_log(engine, after)
    return [names[each.session_id or ""] for each in log if each.type == kind]


async def head(engine: Engine) -> int:
    """The number of the newest event."""
    return (await stored_log(engine))[-1].seq


async def test_an_abort_stops_all_below(any_engine: Engine) -> None:
    """Each run ends as aborted, and all are idle when the call returns."""
    tree = await family(any_engine)
    running = [await start(session) for session in tree.values()]
    assert await tree["top"].abort() is True
    assert [await session.status() for session in tree.values()] == [Idle()] * 5
    await ended(*running)
    assert {await error_of(session) for session in tree.values()} == {"MessageAbortedError"}


async def test_requests_go_out_depth_first_and_at_once(any_engine: Engine) -> None:
    """No run can go on because a subtask of it has ended before it was asked to."""
    tree = await family(any_engine)
    running = [await start(session) for session in tree.values()]
    before = await head(any_engine)
    await tree["top"].abort()
    await ended(*running)
    log = [each.type for each in await stored_log(any_engine, before)]
    assert log[:5] == ["kedge.request"] * 5
    assert await told(any_engine, "kedge.request", before, tree) == DEPTH_FIRST


async def test_an_abort_of_a_subtask_leaves_what_is_above_and_beside(any_engine: Engine) -> None:
    """Only the subtask and what is below it stop."""
    tree = await family(any_engine)
    running = {name: await start(session) for name, session in tree.items()}
    assert await tree["a"].abort() is True
    stopped = {name for name, session in tree.items() if await session.status() == Idle()}
    assert stopped == {"a", "aa"}
    await tree["top"].abort()
    await ended(*running.values())


async def test_an_abort_of_an_idle_session_stops_what_runs_below(any_engine: Engine) -> None:
    """A subtask may go on in the background; the session tells that it is idle after it is."""
    tree = await family(any_engine)
    task = await start(tree["bb"])
    before = await head(any_engine)
    assert await tree["top"].abort() is True
    await ended(task)
    assert await told(any_engine, SessionIdle.type, before, tree) == ["bb", "top"]


async def test_who_is_busy_tells_once_that_it_is_idle(any_engine: Engine) -> None:
    """Programs notify people of that."""
    tree = await family(any_engine)
    running = [await start(tree[name]) for name in ("top", "a")]
    before = await head(any_engine)
    await tree["top"].abort()
    await ended(*running)
    assert sorted(await told(any_engine, SessionIdle.type, before, tree)) == ["a", "top"]


async def test_a_subtask_that_begins_during_the_abort_is_stopped_too(any_engine: Engine) -> None:
    """Here the run of the session begins one more while it is being stopped."""
    top = await any_engine.sessions.create("top")
    begun: list[asyncio.Task[None]] = []
    late: list[Session] = []
    entered = asyncio.Event()

    async def stubborn() -> None:
        async with top.turn("Go") as turn, turn.step() as step, step.tool("task", {}):
            try:
                entered.set()
                await asyncio.Event().wait()
            finally:
                late.append(await any_engine.sessions.create("late", parent=top.id))
                begun.append(await start(late[0]))

    task = asyncio.create_task(stubborn())
    await entered.wait()
    assert await top.abort() is True
    assert await late[0].status() == Idle()
    await ended(task)
    await ended(*begun)


async def test_subtasks_of_other_processes_are_stopped(
    any_place: EngineFactory, children: AsyncExitStack
) -> None:
    """Each run is under a lease of its own, wherever it is."""
    async with any_place.open() as engine:
        top = await engine.sessions.create("top")
        below = [await engine.sessions.create(parent=top.id) for _ in range(2)]
        running = [
            await children.enter_async_context(Child(any_place, "work", each.id)) for each in below
        ]
        for child in running:
            await child.hear()
        task = await start(top)
        assert await top.abort() is True
        assert [await each.status() for each in (*below, top)] == [Idle()] * 3
        await ended(task)
        assert {await error_of(each) for each in below} == {"MessageAbortedError"}


async def test_what_a_dead_process_left_below_is_ended(
    any_place: EngineFactory, children: AsyncExitStack
) -> None:
    """Its subtask would be busy until it is looked at."""
    async with any_place.open() as engine:
        top = await engine.sessions.create("top")
        below = await engine.sessions.create(parent=top.id)
        child = await children.enter_async_context(Child(any_place, "work", below.id))
        await child.hear()
        await child.kill()
        assert await top.abort() is True
        assert await below.status() == Idle()
        assert await error_of(below) == "MessageAbortedError"


async def test_questions_of_what_is_below_end(any_engine: Engine) -> None:
    """A person is no longer asked by a subtask that was stopped."""
    from kedge.domain.questions import QuestionInfo

    top = await any_engine.sessions.create("top")
    below = await any_engine.sessions.create(parent=top.id)

    async def ask() -> None:
        async with below.turn("Ask") as turn, turn.step():
            question = QuestionInfo(question="Which?", header="Which", options=[])
            await any_engine.asks.question(turn, [question])

    async with any_engine.events.subscribe(session=below.id) as events:
        task = asyncio.create_task(ask())
        async for event in events:
            if event.type == "question.asked":
                break
    assert await top.abort() is True
    with pytest.raises((TurnAborted, QuestionRejected)):
        await task
    assert await any_engine.asks.questions() == []


async def test_prompts_that_wait_below_are_not_run(any_place: EngineFactory) -> None:
    """What was queued for a subtask is told that it was aborted."""
    async with any_place.open() as engine:
        top = await engine.sessions.create("top")
        below = await engine.sessions.create(parent=top.id)
        task = await start(below)
        assert await below.queue("And this")
        await top.abort()
        await ended(task)
        assert await error_of(below) == "MessageAbortedError"
        async with below.turn("Another", takes_up=True) as turn:
            assert turn.prompts == [turn.message.id]


async def test_a_deletion_tells_of_each_after_its_subtasks(any_engine: Engine) -> None:
    """As OpenCode does: what is below first."""
    tree = await family(any_engine)
    task = await start(tree["bb"])
    before = await head(any_engine)
    await tree["top"].delete()
    await ended(task)
    assert await told(any_engine, SessionDeleted.type, before, tree) == DEPTH_FIRST


async def test_what_was_deleted_before_stays_deleted(any_place: EngineFactory) -> None:
    """Also if it was in the very same millisecond, and whatever is above it went in between."""
    async with any_place.open(clock=ManualClock(NOW)) as engine:
        tree = await family(engine)
        await tree["aa"].delete()
        await tree["a"].delete()
        await tree["bb"].delete()
        await tree["top"].delete()
        before = await head(engine)
        await engine.sessions.restore(tree["top"].id)
        assert await told(engine, SessionUpdated.type, before, tree) == ["top", "b"]
        for name in ("a", "aa", "bb"):
            with pytest.raises(SessionNotFound):
                await engine.sessions.get(tree[name].id)
        await engine.sessions.restore(tree["a"].id)
        with pytest.raises(SessionNotFound):
            await engine.sessions.get(tree["aa"].id)


async def test_archiving_takes_all_below_along(any_engine: Engine) -> None:
    """And back again; what was archived by itself keeps its own time."""
    tree = await family(any_engine)
    await tree["b"].update(archived=5)
    await tree["top"].update(archived=7)

    async def times() -> dict[str, float | None]:
        return {name: (await each.refresh()).info.time.archived for name, each in tree.items()}

    assert await times() == {"top": 7, "a": 7, "aa": 7, "b": 5, "bb": 5}
    await tree["top"].update(archived=8)
    await tree["aa"].update(archived=False)
    await tree["top"].update(archived=False)
    assert await times() == {"top": None, "a": None, "aa": None, "b": 5, "bb": 5}


async def test_a_long_line_of_subtasks_is_no_trouble(engine: Engine) -> None:
    """Deeper than Python's stack."""
    top = each = await engine.sessions.create("top")
    for _ in range(1200):
        each = await engine.sessions.create("below", parent=each.id)
    assert await top.abort() is True
    assert await top.diff() == []
    await top.delete()
    with pytest.raises(SessionNotFound):
        await engine.sessions.get(each.id)
    await engine.sessions.restore(top.id)
    await each.refresh()
