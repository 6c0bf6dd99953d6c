"""Turns: how they begin and end, whoever ends them; what happens inside of a step is tested beside
this."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from kedge._async import to_the_end
from kedge.domain.errors import (
    InvalidId,
    InvalidInput,
    LeaseLost,
    SessionNotFound,
    TurnAborted,
)
from kedge.domain.messages import AssistantMessage, MessageModel, UserMessage
from kedge.domain.parts import FilePart, Part, TextPart, ToolError, ToolPart
from kedge.domain.sessions import Busy, Idle, Retry
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.engine.turns import Turn
from tests.engine.engine_factory import EngineFactory, lease_row, stored_log
from tests.engine.engine_processes import Child
from tests.support.timeouts import PATIENCE

never = asyncio.Event


async def answers(session: Session) -> list[AssistantMessage]:
    """The assistant messages of a session."""
    found = (await session.messages()).messages
    return [each.info for each in found if isinstance(each.info, AssistantMessage)]


async def errors_told(engine: Engine, session: Session) -> int:
    """How often listeners were told of an error in the session."""
    log = await stored_log(engine)
    return sum(e.type == "session.error" and e.session_id == session.id for e in log)


async def check_closed(session: Session, name: str, message: str) -> None:
    """The last answer is complete with an error, its parts are ended, and the session is idle."""
    last = (await session.messages()).messages[-1]
    assert isinstance(last.info, AssistantMessage)
    assert last.info.error is not None
    assert (last.info.error.name, last.info.error.data["message"]) == (name, message)
    assert last.info.time.completed is not None
    for part in last.parts:
        if isinstance(part, ToolPart):
            assert isinstance(part.state, ToolError)
            assert (part.state.metadata or {}).get("interrupted") is True
        if isinstance(part, TextPart):
            assert part.time is not None
            assert part.time.end is not None
    assert await session.status() == Idle()


async def in_tool(turn: Turn, ready: asyncio.Event) -> None:
    """Be in a tool call for ever."""
    async with turn.step() as step, step.tool("bash", {"command": "sleep"}):
        ready.set()
        await never().wait()


async def in_stream(turn: Turn, ready: asyncio.Event) -> None:
    """Be in the middle of a text for ever."""
    async with turn.step() as step, step.speak() as out:
        await out.write("so f")
        ready.set()
        await never().wait()


async def in_parallel_tools(turn: Turn, ready: asyncio.Event) -> None:
    """Be in several tool calls at once for ever."""
    async with turn.step() as step:

        async def call(n: int) -> None:
            async with step.tool("bash", {"n": n}):
                if n == 2:
                    ready.set()
                await never().wait()

        async with asyncio.TaskGroup() as group:
            for n in range(3):
                group.create_task(call(n))


Body = Callable[[Turn, asyncio.Event], Awaitable[None]]
every_body = pytest.mark.parametrize("body", [in_tool, in_stream, in_parallel_tools])


async def start(session: Session, body: Body) -> asyncio.Task[None]:
    """A turn that runs in a task of its own and is in the middle of something."""
    ready = asyncio.Event()

    async def run() -> None:
        async with session.turn("Go") as turn:
            await body(turn, ready)

    task = asyncio.create_task(run())
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({task, waiting}, timeout=PATIENCE, return_when="FIRST_COMPLETED")
    assert ready.is_set()
    return task


@every_body
async def test_abort_in_the_same_engine(any_engine: Engine, body: Body) -> None:
    """Abort ends the turn wherever it is, answers when it is over, and everything is closed by
    then."""
    session = await any_engine.sessions.create("s")
    task = await start(session, body)
    assert await session.abort() is True
    await check_closed(session, "MessageAbortedError", "Aborted")
    with pytest.raises(TurnAborted):
        await task
    assert await errors_told(any_engine, session) == 1
    if body is in_stream:
        last = (await session.messages()).messages[-1]
        assert [part.text for part in last.parts if isinstance(part, TextPart)] == ["so f"]


@every_body
async def test_abort_from_another_engine(any_place: EngineFactory, body: Body) -> None:
    """An abort asked of one engine ends a turn that another engine of this process runs."""
    async with any_place.open() as engine, any_place.open() as second:
        session = await engine.sessions.create("s")
        task = await start(session, body)
        assert await (await second.sessions.get(session.id)).abort() is True
        await check_closed(session, "MessageAbortedError", "Aborted")
        with pytest.raises(TurnAborted):
            await task


async def test_abort_from_another_process(
    any_place: EngineFactory, children: AsyncExitStack
) -> None:
    """Processes abort each other's turns, both ways."""
    async with any_place.open() as engine:
        session = await engine.sessions.create("s")
        task = await start(session, in_tool)
        child = await children.enter_async_context(Child(any_place, "abort", session.id))
        assert await child.hear() is True
        await check_closed(session, "MessageAbortedError", "Aborted")
        with pytest.raises(TurnAborted):
            await task
        worker = await children.enter_async_context(Child(any_place, "work", session.id))
        await worker.hear()
        assert await session.abort() is True
        assert await worker.hear() == "TurnAborted"
        await check_closed(session, "MessageAbortedError", "Aborted")


async def test_abort_of_an_idle_session_only_says_that_it_is_idle(engine: Engine) -> None:
    """There is nothing to stop; clients that wait for the end hear of it all the same."""
    session = await engine.sessions.create("s")
    before = await stored_log(engine)
    assert await session.abort() is True
    told = (await stored_log(engine))[len(before) :]
    assert [event.type for event in told] == ["session.status", "session.idle"]
    assert isinstance(await session.status(), Idle)


async def test_two_aborts_at_once_are_one(any_engine: Engine) -> None:
    """Aborting twice gives one interruption, and the task can go on living afterwards."""
    session = await any_engine.sessions.create("s")
    caught = asyncio.Event()

    async def run() -> int:
        with pytest.raises(TurnAborted):  # noqa: PT012 - the block is what is tested
            async with session.turn("Go") as turn, turn.step():
                started.set()
                await never().wait()
        caught.set()
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    started = asyncio.Event()
    task = asyncio.create_task(run())
    await started.wait()
    assert list(await asyncio.gather(session.abort(), session.abort())) == [True, True]
    assert await task == 0, "no cancellation is left over"
    assert await errors_told(any_engine, session) == 1
    assert (await lease_row(any_engine, session.id))[1] is None


@pytest.mark.parametrize("delay", range(12))
async def test_an_abort_at_the_very_end_leaves_the_session_idle(engine: Engine, delay: int) -> None:
    """Whenever an abort meets the end of a turn, the lease is given back and the task goes on."""
    session = await engine.sessions.create("s")

    async def run() -> str:
        try:
            async with session.turn("Go") as turn, turn.step() as step:
                ready.set()
                await step.text("x" * 70_000)
        except TurnAborted:
            return "aborted"
        await asyncio.sleep(0)
        return "finished"

    ready = asyncio.Event()
    task = asyncio.create_task(run())
    await ready.wait()
    for _ in range(delay):
        await asyncio.sleep(0)
    stop = engine.runs._stoppers.get(session.id)
    if stop is not None:
        stop(None)
    assert await task in ("aborted", "finished")
    assert (await lease_row(engine, session.id))[1] is None
    assert (await answers(session))[-1].time.completed is not None
    async with session.turn("Next"):
        pass


@pytest.mark.parametrize("delay", range(12))
async def test_a_cancellation_at_any_time_leaves_the_session_idle(
    any_engine: Engine, delay: int
) -> None:
    """A task that is cancelled from outside stays cancelled, and its session is free afterwards."""
    session = await any_engine.sessions.create("s")

    async def run() -> None:
        async with session.turn("y" * 70_000) as turn, turn.step() as step:
            await step.text("x" * 70_000)

    task = asyncio.create_task(run())
    for _ in range(delay * 3):
        await asyncio.sleep(0)
    finished = task.done()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled() or finished
    assert await session.status() == Idle()
    assert not any_engine.runs._stoppers
    found = await any_engine.runs._held()
    assert found == [], "no lease is left behind"
    for each in await answers(session):
        assert each.time.completed is not None


async def test_a_cancellation_beside_an_abort_is_not_swallowed(any_engine: Engine) -> None:
    """When somebody cancels the task and somebody else aborts the turn, the task is cancelled."""
    session = await any_engine.sessions.create("s")
    task = await start(session, in_tool)
    any_engine.runs._stoppers[session.id](None)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    await check_closed(session, "MessageAbortedError", "Aborted")


async def test_a_time_out_around_a_turn_works(engine: Engine) -> None:
    """A deadline of the caller ends the turn as a cancellation, not as an abort."""
    session = await engine.sessions.create("s")
    with pytest.raises(TimeoutError):  # noqa: PT012 - the block is what is tested
        async with (
            asyncio.timeout(None) as limit,
            session.turn("Go") as turn,
            turn.step() as step,
            step.tool("bash", {"command": "sleep"}),
        ):
            limit.reschedule(asyncio.get_running_loop().time())
            await never().wait()
    await check_closed(session, "MessageAbortedError", "The turn was cancelled")


async def test_closing_the_engine_records_the_interruption(any_place: EngineFactory) -> None:
    """A turn that runs when its engine is closed is aborted and stored as such."""
    async with any_place.open() as engine:
        session = await engine.sessions.create("s")
        task = await start(session, in_tool)
    with pytest.raises(TurnAborted):
        await task
    async with any_place.open() as engine:
        assert engine.recovery.sessions == []
        await check_closed(await engine.sessions.get(session.id), "MessageAbortedError", "Aborted")


async def test_deleting_a_running_session_stops_it_and_its_subtasks(any_engine: Engine) -> None:
    """Delete ends the turns of a session and of its subtasks before it hides them."""
    parent = await any_engine.sessions.create("parent")
    child = await any_engine.sessions.create("child", parent=parent.id)
    tasks = [await start(each, in_tool) for each in (parent, child)]
    await parent.delete()
    for task, session in zip(tasks, (parent, child), strict=True):
        with pytest.raises(TurnAborted):
            await task
        with pytest.raises(SessionNotFound):
            await any_engine.sessions.get(session.id)
    await any_engine.sessions.restore(parent.id)
    for session in (parent, child):
        await check_closed(session, "MessageAbortedError", "Aborted")


async def test_a_turn_whose_session_vanishes_fails_and_lets_go(
    any_place: EngineFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that was cut off by a deletion says so, and its session can be restored and used."""
    from kedge import Settings

    async with any_place.open(settings=Settings(stop_patience=0)) as engine:
        session = await engine.sessions.create("s")
        with pytest.raises(LeaseLost):  # noqa: PT012 - the block is what is tested
            async with session.turn("Go") as turn, turn.step() as step:
                with monkeypatch.context() as patch:
                    patch.setattr(turn, "_over", True)  # As if it did not hear that it is to stop.
                    await session.delete()
                await step.text("too late")
        await engine.sessions.restore(session.id)
        assert await session.status() == Idle()
        async with session.turn("Again"):
            pass


class Broken(Exception):
    """What goes wrong in these tests."""


async def test_an_error_in_a_tool_is_recorded_once(any_engine: Engine) -> None:
    """An error that leaves tool, step and turn ends each of them and is told once."""
    session = await any_engine.sessions.create("s")
    with pytest.raises(Broken, match="no disk"):
        async with session.turn("Go") as turn, turn.step() as step, step.tool("write", {}):
            raise Broken("no disk")
    last = (await session.messages()).messages[-1]
    assert isinstance(last.info, AssistantMessage)
    assert last.info.error is not None
    assert (last.info.error.name, last.info.error.data) == ("UnknownError", {"message": "no disk"})
    (tool,) = [part for part in last.parts if isinstance(part, ToolPart)]
    assert isinstance(tool.state, ToolError)
    assert (tool.state.error, tool.state.metadata) == ("no disk", None)
    assert await errors_told(any_engine, session) == 1
    assert await session.status() == Idle()


async def test_an_error_that_was_caught_lets_the_turn_go_on(any_engine: Engine) -> None:
    """Whoever catches a step's error may make another step; whoever catches a tool's stays in the
    step."""
    session = await any_engine.sessions.create("s")
    async with session.turn("Go") as turn:
        with pytest.raises(Broken):
            async with turn.step():
                raise Broken
        async with turn.step() as step:
            with pytest.raises(Broken):
                async with step.tool("write", {}):
                    raise Broken("again")
            await step.text("better")
    first, second = await answers(session)
    assert first.error is not None
    assert first.error.data == {"message": "Broken"}
    assert (second.error, second.finish) == (None, "tool-calls")
    assert await errors_told(any_engine, session) == 1


async def test_an_error_between_steps_is_told(any_engine: Engine) -> None:
    """An error outside of a step closes no message but is told, and the session is idle."""
    session = await any_engine.sessions.create("s")
    with pytest.raises(Broken):  # noqa: PT012 - the block is what is tested
        async with session.turn("Go") as turn:
            async with turn.step() as step:
                await step.text("fine")
            raise Broken
    assert (await answers(session))[0].error is None
    assert await errors_told(any_engine, session) == 1
    assert await session.status() == Idle()


def test_a_keyboard_interrupt_is_an_interruption(place: EngineFactory) -> None:
    """Control-C in a tool is stored as an abort of the tool and of the turn."""

    async def run() -> None:
        async with place.open() as engine:
            session = await engine.sessions.create("s")
            ids.append(session.id)
            async with session.turn("Go") as turn, turn.step() as step, step.tool("bash", {}):
                raise KeyboardInterrupt

    async def look() -> None:
        async with place.open() as engine:
            session = await engine.sessions.get(ids[0])
            await check_closed(session, "MessageAbortedError", "The turn was cancelled")

    ids: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run())
    asyncio.run(look())


async def test_a_turn_in_a_turn_of_another_session(any_engine: Engine) -> None:
    """A subtask runs inside the turn of its parent, in the same task; aborting the parent ends
    both."""
    parent = await any_engine.sessions.create("parent")
    child = await any_engine.sessions.create("child", parent=parent.id)
    ready = asyncio.Event()

    async def run() -> None:
        async with (
            parent.turn("Do") as turn,
            turn.step() as step,
            step.tool("task", {}),
            child.turn("Do it") as inner,
        ):
            await in_tool(inner, ready)

    task = asyncio.create_task(run())
    await ready.wait()
    assert await parent.abort() is True
    with pytest.raises(TurnAborted, match=parent.id):
        await task
    for session in (parent, child):
        await check_closed(session, "MessageAbortedError", "Aborted")


async def test_the_status_says_what_a_turn_is_doing(any_engine: Engine) -> None:
    """A retry is shown to everybody while it lasts."""
    session = await any_engine.sessions.create("s")
    async with session.turn("Go") as turn:
        await turn.retrying(2, "Overloaded", 5000)
        assert await session.status() == Retry(attempt=2, message="Overloaded", next=5000)
        async with turn.step():
            pass
        await turn.set_status(Busy())
    assert await session.status() == Idle()


async def test_a_prompt_of_parts_is_stored_as_it_is(engine: Engine) -> None:
    """Parts keep their own ids and get the ids of the message they are put into."""
    session = await engine.sessions.create("s")
    parts: list[Part] = [
        TextPart(id="prt_1", sessionID="", messageID="", text="Look"),
        FilePart(id="prt_2", sessionID="", messageID="", mime="text/plain", url="file:///x"),
    ]
    model = MessageModel(providerID="p", modelID="m", variant="v")
    async with session.turn(parts, agent="plan", model=model, message_id="msg_mine"):
        pass
    (message,) = (await session.messages()).messages
    assert isinstance(message.info, UserMessage)
    assert (message.info.id, message.info.agent, message.info.model) == ("msg_mine", "plan", model)
    assert [(part.id, part.messageID, part.sessionID) for part in message.parts] == [
        ("prt_1", "msg_mine", session.id),
        ("prt_2", "msg_mine", session.id),
    ]
    info = (await session.refresh()).info
    assert info.agent == "plan"
    assert info.model is not None
    assert (info.model.id, info.model.providerID, info.model.variant) == ("m", "p", "v")


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        (None, InvalidInput),
        (5, InvalidInput),
        ([{"type": "nonsense"}], InvalidInput),
        ([TextPart(id='x","y', sessionID="", messageID="", text="")], InvalidId),
        ([TextPart(id="prt_1", sessionID="", messageID="", text=5)], InvalidInput),  # type: ignore[arg-type]
    ],
)
async def test_a_prompt_that_makes_no_sense_is_refused(
    engine: Engine,
    prompt: Any,  # noqa: ANN401 - wrong on purpose
    error: type[Exception],
) -> None:
    """A wrong prompt is a typed error before anything is stored."""
    session = await engine.sessions.create("s")
    with pytest.raises(error):
        session.turn(prompt)
    assert (await session.messages()).messages == []


async def test_a_turn_is_used_inside_its_block_only(engine: Engine) -> None:
    """A turn is entered once, and neither before nor after can anything be done with it."""
    session = await engine.sessions.create("s")
    turn = session.turn("x")
    with pytest.raises(InvalidInput, match="async with"):
        _ = turn.fence
    async with turn:
        pass
    with pytest.raises(InvalidInput, match="only once"):
        await turn.__aenter__()
    with pytest.raises(InvalidInput, match="over"):
        turn.step()
    with pytest.raises(LeaseLost):
        await turn.set_status(Busy())


async def test_a_turn_in_an_unknown_session_is_refused(any_engine: Engine) -> None:
    """A turn in a session that was deleted fails, and leaves nothing running."""
    session = await any_engine.sessions.create("s")
    await session.delete()
    with pytest.raises(SessionNotFound):
        async with session.turn("x"):
            pytest.fail("in a deleted session")
    assert not any_engine.runs._stoppers


async def test_work_is_carried_to_its_end() -> None:
    """A cancelled waiter waits on, and is cancelled when the work is done."""
    gate, done = asyncio.Event(), asyncio.Event()

    async def work() -> int:
        await gate.wait()
        done.set()
        return 5

    waiting = asyncio.create_task(to_the_end(work()))
    for _ in range(3):
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.set()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    assert done.is_set()
    assert await to_the_end(work()) == 5


async def test_a_prompt_of_plain_objects_gets_its_ids(engine: Engine) -> None:
    """A program need not make up ids for the parts of its prompt."""
    session = await engine.sessions.create("s")
    async with session.turn([{"type": "text", "text": "hello"}]) as turn:
        stored = await session.message(turn.message.id)
    (part,) = stored.parts
    assert isinstance(part, TextPart)
    assert part.text == "hello"
    assert part.id.startswith("prt_")


async def test_the_handle_knows_what_the_turn_did(engine: Engine) -> None:
    """After a turn, the session's cost, agent and model are those it left behind."""
    session = await engine.sessions.create("s")
    async with session.turn("work", agent="mine") as turn, turn.step() as step:
        step.cost = 0.5
    assert session.info.cost == 0.5
    assert session.info.agent == "mine"
    assert session.info == (await engine.sessions.get(session.id)).info


async def test_an_error_in_a_task_group_says_what_went_wrong(engine: Engine) -> None:
    """Not the group is told about, but the error in it."""
    session = await engine.sessions.create("s")

    async def fail() -> None:
        raise ValueError("the disk is on fire")

    with pytest.raises(ExceptionGroup):
        async with session.turn("work") as turn, turn.step(), asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())
    answer = (await session.messages()).messages[-1].info
    assert isinstance(answer, AssistantMessage)
    assert answer.error is not None
    assert answer.error.data == {"message": "the disk is on fire"}
