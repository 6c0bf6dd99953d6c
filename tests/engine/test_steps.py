"""Steps: what the model says and does becomes messages, parts and events in the order clients
know."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from kedge.domain.errors import InvalidInput
from kedge.domain.events import MessageUpdated, PartDelta, PartUpdated, SessionStatusChanged
from kedge.domain.messages import AssistantMessage, MessageModel
from kedge.domain.parts import (
    Part,
    ReasoningPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    ToolRunning,
)
from kedge.domain.sessions import CacheCount, Todo, TokenCount
from kedge.domain.wire_errors import structured_output
from kedge.engine import parts as growing
from kedge.engine.engine import Engine
from kedge.engine.event_log import Event
from kedge.engine.session import Session
from kedge.engine.steps import Step
from tests.engine.engine_factory import stored_log
from tests.engine.event_log_fake import Reader


@pytest.fixture
async def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the clock by which progress is counted, without waiting."""
    ahead = [1000.0]
    monkeypatch.setattr(growing, "monotonic", lambda: ahead[0])

    def move(seconds: float) -> None:
        ahead[0] += seconds

    return move


def described(event: Event) -> str:
    """An event in a few words."""
    match event.properties:
        case MessageUpdated(info=AssistantMessage(time=time, finish=finish)):
            return f"answer {finish or ''} {'completed' if time.completed else ''}".strip()
        case MessageUpdated():
            return "prompt"
        case PartUpdated(part=ToolPart(state=state)):
            return f"tool {type(state).__name__.removeprefix('Tool').lower()}"
        case PartUpdated(part=TextPart(text=text)):
            return f"text {text!r}"
        case PartUpdated(part=part):
            return str(part.__struct_config__.tag)
        case SessionStatusChanged(status=status):
            return str(status.__struct_config__.tag)
        case _:
            return event.type


async def last_parts(session: Session) -> list[Part]:
    """The parts of the newest message."""
    return (await session.messages()).messages[-1].parts


async def progress_events(engine: Engine, part_id: str) -> list[Any]:
    """What the log holds about a part."""
    log = await stored_log(engine)
    frames = [json.loads(event.payload)["properties"] for event in log]
    return [each["part"] for each in frames if each.get("part", {}).get("id") == part_id]


async def test_the_events_of_a_turn_come_in_the_recorded_order(any_engine: Engine) -> None:
    """One prompt with one tool round gives what OpenCode gives, but for titles, diffs and
    snapshots."""
    session = await any_engine.sessions.create("s")
    async with any_engine.events.subscribe(session=session.id) as events:
        reader = Reader(events)
        async with session.turn("Write a file") as turn:
            async with turn.step() as step, step.tool("write", {"filePath": "x"}) as call:
                call.output = "Wrote file successfully."
            async with turn.step() as step, step.speak() as out:
                await out.write("Do")
                await out.write("ne.")
        await reader.until_type("session.idle")
        await reader.stop()
    assert [described(event) for event in reader.got] == [
        "prompt",
        "text 'Write a file'",
        "session.updated",
        "busy",
        "answer",
        "busy",
        "step-start",
        "tool pending",
        "tool running",
        "tool completed",
        "step-finish",
        "answer tool-calls",
        "answer tool-calls completed",
        "answer",
        "busy",
        "step-start",
        "text ''",
        "message.part.delta",
        "message.part.delta",
        "text 'Done.'",
        "step-finish",
        "answer stop",
        "answer stop completed",
        "idle",
        "session.idle",
    ]


async def test_an_answer_names_its_prompt_and_what_it_cost(any_engine: Engine) -> None:
    """Each step is a message that answers the prompt, and the session sums up what steps cost."""
    session = await any_engine.sessions.create("s")
    tokens = TokenCount(input=10, output=5, reasoning=1, cache=CacheCount(read=2, write=3))
    model = MessageModel(providerID="p", modelID="m")
    async with session.turn("Go", agent="plan") as turn:
        async with turn.step(model=model) as step:
            step.tokens, step.cost, step.finish = tokens, 0.25, "length"
        async with turn.step() as step:
            step.tokens, step.cost = tokens, 0.5
    prompt, first, second = [each.info for each in (await session.messages()).messages]
    assert isinstance(first, AssistantMessage)
    assert isinstance(second, AssistantMessage)
    assert first.parentID == second.parentID == prompt.id
    assert (first.providerID, first.modelID, first.mode, first.agent) == ("p", "m", "plan", "plan")
    assert (first.finish, first.cost, first.tokens, second.finish) == (
        "length",
        0.25,
        tokens,
        "stop",
    )
    assert (first.path.cwd, first.path.root) == (session.info.directory, session.info.directory)
    info = (await session.refresh()).info
    assert info.cost == 0.75
    assert (info.tokens.input, info.tokens.cache.write) == (20, 6)


async def test_pieces_add_up_to_the_text(any_engine: Engine) -> None:
    """What listeners hear piece by piece is what is stored in the end, surrogates and all."""
    session = await any_engine.sessions.create("s")
    async with any_engine.events.subscribe(session=session.id) as events:
        reader = Reader(events)
        async with session.turn("Go") as turn, turn.step() as step:
            async with step.think() as thought:
                for piece in ("I ", "\ud83d", "\ude00", "", "\x00 think"):
                    await thought.write(piece)
            async with step.speak() as out:
                for piece in ("é", "\U0001f600", "x"):
                    await out.write(piece)
        await reader.until_type("session.idle")
        await reader.stop()
    heard: dict[str, str] = {}
    for event in reader.got:
        if isinstance(event.properties, PartDelta):
            before = heard.get(event.properties.partID, "")
            assert event.offset == len(before)
            heard[event.properties.partID] = before + event.properties.delta
    parts = await last_parts(session)
    said = {part.id: part.text for part in parts if isinstance(part, TextPart | ReasoningPart)}
    assert heard == said
    assert list(said.values()) == ["I \ufffd\ufffd\x00 think", "é\U0001f600x"]


async def test_progress_of_a_text_is_stored_twice_a_second_and_replaced(
    any_engine: Engine, pass_time: Callable[[float], None]
) -> None:
    """The log keeps one state of a growing text, the newest that was due, and in the end the
    whole."""
    session = await any_engine.sessions.create("s")
    async with session.turn("Go") as turn, turn.step() as step:
        async with step.speak() as out:
            part_id = ""
            for n in range(1, 31):
                pass_time(0.1)
                await out.write("x")
                parts = [p for p in await last_parts(session) if isinstance(p, TextPart)]
                part_id = parts[0].id
                assert len(parts[0].text) in range(n - 5, n + 1), "never half a second behind"
            stored = await progress_events(any_engine, part_id)
            assert len(stored) == 2, "its beginning and the newest progress"
            assert stored[0]["text"] == ""
            assert stored[1]["text"] == "x" * len(stored[1]["text"])
        stored = await progress_events(any_engine, part_id)
        assert [len(each["text"]) for each in stored] == [0, 30]
        assert stored[-1]["time"]["end"]


async def test_a_text_that_comes_at_once_is_stored_at_its_ends_only(engine: Engine) -> None:
    """Fast pieces cost no transaction each."""
    session = await engine.sessions.create("s")
    async with session.turn("Go") as turn, turn.step() as step:
        before = (await stored_log(engine))[-1].seq
        async with step.speak() as out:
            for _ in range(100):
                await out.write("x")
        assert len(await stored_log(engine, before)) == 2


async def test_progress_of_a_tool_is_stored_twice_a_second_and_replaced(
    any_engine: Engine, pass_time: Callable[[float], None]
) -> None:
    """A running tool shows its newest state; the log keeps one, and none once the tool has
    ended."""
    session = await any_engine.sessions.create("s")
    async with session.turn("Go") as turn, turn.step() as step:
        async with step.tool("bash", {"command": "make"}) as call:
            for n in range(10):
                await call.progress(title="Making", output=f"line {n}")
                pass_time(0.2)
            stored = await progress_events(any_engine, call.part.id)
            assert [each["state"]["status"] for each in stored] == ["pending", "running", "running"]
            assert stored[-1]["state"]["metadata"] == {"output": "line 9"}
            call.output, call.title = "all", "Made"
        stored = await progress_events(any_engine, call.part.id)
        assert [each["state"]["status"] for each in stored] == ["pending", "running", "completed"]
        assert isinstance(call.part.state, ToolCompleted)
        assert call.part.state.title == "Made"
        assert call.part.state.metadata == {"output": "line 9"}


async def test_parts_are_in_the_order_they_were_made(any_engine: Engine) -> None:
    """Part ids ascend as the model speaks, so that clients that sort by id show what happened."""
    session = await any_engine.sessions.create("s")
    async with session.turn("Go") as turn, turn.step() as step:
        async with step.think() as thought:
            await thought.write("hm")
        await step.text("I will")
        async with step.tool("read", {}):
            pass
        async with step.speak() as out:
            await out.write("done")
    parts = await last_parts(session)
    assert [type(part) for part in parts] == [
        StepStartPart,
        ReasoningPart,
        TextPart,
        ToolPart,
        TextPart,
        StepFinishPart,
    ]
    ids = [part.id for part in parts]
    assert ids == sorted(ids)


@pytest.mark.parametrize("way", ["gather", "group"])
async def test_tools_run_side_by_side(any_engine: Engine, way: str) -> None:
    """Parallel calls each keep their own state, whatever order they end in."""
    session = await any_engine.sessions.create("s")
    all_in = asyncio.Barrier(4)

    async def call(step: Step, n: int) -> None:
        async with step.tool("bash", {"n": n}, call_id=f"call_{n}") as tool:
            await all_in.wait()
            states = [p.state for p in await last_parts(session) if isinstance(p, ToolPart)]
            assert any(isinstance(state, ToolRunning) for state in states)
            if n == 2:
                tool.fail("no")
            tool.output = f"out {n}"

    async with session.turn("Go") as turn, turn.step() as step:
        if way == "gather":
            await asyncio.gather(*(call(step, n) for n in range(4)))
        else:
            async with asyncio.TaskGroup() as group:
                for n in range(4):
                    group.create_task(call(step, n))
    tools = [part for part in await last_parts(session) if isinstance(part, ToolPart)]
    assert sorted(tool.callID for tool in tools) == [f"call_{n}" for n in range(4)]
    for tool in tools:
        n = tool.state.input["n"]
        if n == 2:
            assert isinstance(tool.state, ToolError)
            assert tool.state.error == "no"
        else:
            assert isinstance(tool.state, ToolCompleted)
            assert tool.state.output == f"out {n}"


async def test_a_tool_that_was_left_behind_changes_nothing(any_engine: Engine) -> None:
    """A call that goes on after its step failed cannot reopen what was closed."""
    session = await any_engine.sessions.create("s")
    release, running = asyncio.Event(), asyncio.Event()

    async def slow(step: Step) -> None:
        async with step.tool("bash", {"n": 1}):
            running.set()
            await release.wait()

    async def quick() -> None:
        await running.wait()
        raise ValueError("quick")

    async with session.turn("Go") as turn:
        with pytest.raises(ValueError, match="quick"):  # noqa: PT012 - the block is what is tested
            async with turn.step() as step:
                left_behind = asyncio.create_task(slow(step))
                await asyncio.gather(left_behind, quick())
        closed = await last_parts(session)
        release.set()
        with pytest.raises(InvalidInput, match="inside its"):
            await left_behind
        assert await last_parts(session) == closed
    (tool,) = [part for part in closed if isinstance(part, ToolPart)]
    assert isinstance(tool.state, ToolError)


async def test_todos_are_kept_with_the_message_that_wrote_them(any_engine: Engine) -> None:
    """A step's todo list is the session's, and its history says which message wrote it."""
    session = await any_engine.sessions.create("s")
    lists = [[Todo(content=text, status="pending", priority="high")] for text in ("a", "b")]
    wrote = []
    for todos in lists:
        async with session.turn("Go") as turn, turn.step() as step:
            await step.set_todos(todos)
            wrote.append(step.message.id)
    assert await session.todos() == lists[-1]
    history = await session.todo_history()
    assert [(each.messageID, each.todos) for each in history] == list(
        zip(wrote, lists, strict=True)
    )


async def test_a_step_is_used_inside_its_block_only(engine: Engine) -> None:
    """A step is entered once, and nothing can be written before or after."""
    session = await engine.sessions.create("s")
    async with session.turn("x") as turn:
        step = turn.step()
        with pytest.raises(InvalidInput, match="inside its"):
            await step.text("early")
        async with step:
            await step.text("in time")
        with pytest.raises(InvalidInput, match="inside its"):
            await step.text("late")
        with pytest.raises(InvalidInput, match="inside its"):
            await step.set_todos([])
        with pytest.raises(InvalidInput, match="only once"):
            await step.__aenter__()
    assert sum(isinstance(part, TextPart) for part in await last_parts(session)) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda step: step.text(5),
        lambda step: step.set_todos("x"),
        lambda step: step.set_todos([{"content": "only"}]),
    ],
)
async def test_wrong_values_are_refused(engine: Engine, wrong: Callable[[Any], Any]) -> None:
    """What a step is given is checked before it is stored, and the step can go on."""
    session = await engine.sessions.create("s")
    async with session.turn("x") as turn, turn.step() as step:
        with pytest.raises(InvalidInput):
            await wrong(step)
        with pytest.raises(InvalidInput):
            step.tool("bash", {"x": object()})
        await step.text("fine")
    assert (await session.messages()).messages[-1].info.time.created


async def test_a_large_output_is_stored_whole(any_engine: Engine) -> None:
    """Megabytes go the way of large values and come back as they were."""
    session = await any_engine.sessions.create("s")
    output = "é" * 1_000_000
    async with session.turn("x") as turn, turn.step() as step, step.tool("bash", {}) as call:
        call.output = output
    (tool,) = [part for part in await last_parts(session) if isinstance(part, ToolPart)]
    assert isinstance(tool.state, ToolCompleted)
    assert tool.state.output == output


async def test_what_a_step_leaves_open_is_closed_when_it_ends(any_engine: Engine) -> None:
    """A tool and a text that nobody ended are over with their step, and keep what they had."""
    session = await any_engine.sessions.create("s")
    async with session.turn("Go") as turn:
        async with turn.step() as step:
            out = step.speak()
            await out.__aenter__()
            await out.write("half a sen")
            call = step.tool("bash", {"command": "sleep"})
            await call.__aenter__()
        for late in (out.write("tence"), call.progress(output="late")):
            with pytest.raises(InvalidInput, match="inside its"):
                await late
    parts = await last_parts(session)
    (text,) = [part for part in parts if isinstance(part, TextPart)]
    (tool,) = [part for part in parts if isinstance(part, ToolPart)]
    assert text.text == "half a sen"
    assert text.time is not None
    assert text.time.end is not None
    assert isinstance(tool.state, ToolError)
    assert tool.state.metadata == {"interrupted": True}


async def test_a_text_that_an_error_cut_off_has_ended(any_engine: Engine) -> None:
    """An error that is caught inside the step ends the text where it was, so it can be found."""
    session = await any_engine.sessions.create("s")
    async with session.turn("Go") as turn, turn.step() as step:
        with contextlib.suppress(ValueError):
            async with step.speak() as out:
                await out.write("unmistakable")
                raise ValueError("cut")
        await step.text("and on")
    assert [hit.excerpt for hit in (await any_engine.sessions.search("unmistak")).hits] == [
        "unmistakable"
    ]


async def test_the_same_error_may_leave_two_steps(any_engine: Engine) -> None:
    """What is open is closed each time, though the error is told of once."""
    session = await any_engine.sessions.create("s")
    error = ValueError("again and again")
    async with session.turn("Go") as turn:
        for _ in range(2):
            with pytest.raises(ValueError, match="again"):
                async with turn.step() as step, step.tool("bash", {}):
                    raise error
    messages = [message.info for message in (await session.messages()).messages[1:]]
    assert len(messages) == 2
    for message in messages:
        assert isinstance(message, AssistantMessage)
        assert message.time.completed is not None


async def test_blocks_are_entered_once_and_used_inside(engine: Engine) -> None:
    """A stream or a tool is nothing before its block and nothing after it."""
    session = await engine.sessions.create("s")
    async with session.turn("Go") as turn, turn.step() as step:
        out = step.speak()
        with pytest.raises(InvalidInput, match="inside its"):
            await out.write("too early")
        async with out:
            await out.write("in time")
        with pytest.raises(InvalidInput, match="inside its"):
            await out.write("too late")
        call = step.tool("bash", {})
        async with call:
            pass
        with pytest.raises(InvalidInput, match="only once"):
            await call.__aenter__()
        with pytest.raises(InvalidInput, match="inside its"):
            await call.progress(output="late")


async def test_a_cancelled_write_comes_before_what_follows_it(any_engine: Engine) -> None:
    """A tool whose progress was being stored when it was cancelled does not run for ever."""
    session = await any_engine.sessions.create("s")

    async def tool(step: Step) -> None:
        async with step.tool("bash", {"command": "make"}) as call:
            for n in range(1000):
                call._saved_at = 0.0  # Each piece of progress is due at once.
                await call.progress(output=str(n))

    async with session.turn("Go") as turn, turn.step() as step:
        for n in range(10):
            task = asyncio.create_task(tool(step))
            for _ in range(n):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    tools = [part for part in await last_parts(session) if isinstance(part, ToolPart)]
    assert all(isinstance(part.state, ToolError) for part in tools)


async def test_a_text_that_is_cancelled_while_it_ends_is_whole(any_engine: Engine) -> None:
    """Whenever the cancellation comes, what listeners have heard is stored."""
    session = await any_engine.sessions.create("s")

    async def speak(step: Step, all_spoken: asyncio.Barrier) -> None:
        async with step.speak() as out:
            await out.write("heard")
            await all_spoken.wait()

    async with session.turn("Go") as turn, turn.step() as step:
        for n in range(10):
            # Several at once: while one is stored, the others wait.
            all_spoken = asyncio.Barrier(4)
            tasks = [asyncio.create_task(speak(step, all_spoken)) for _ in range(3)]
            await all_spoken.wait()
            for _ in range(n):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    texts = [part.text for part in await last_parts(session) if isinstance(part, TextPart)]
    assert texts == ["heard"] * 30


async def test_a_step_that_cannot_store_its_end_is_closed_with_its_turn(any_engine: Engine) -> None:
    """The error may be caught and the turn go on: when it is over, nothing is open behind it."""
    session = await any_engine.sessions.create("s")
    async with session.turn("Go") as turn:
        with contextlib.suppress(InvalidInput):
            async with turn.step() as step:
                step.cost = "free"  # type: ignore[assignment]  # what is tested
    answer = (await session.messages()).messages[-1].info
    assert isinstance(answer, AssistantMessage)
    assert answer.time.completed is not None
    assert answer.error is not None


async def test_what_is_slow_to_store_is_stored_seldom(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long text, or a slow database, does not hold up the stream: most of the time is its own."""
    now = 0.0
    stored = 0
    put = Step.put

    async def slowly(step: Step, part: Part, **given: Any) -> None:  # noqa: ANN401 - as Step.put
        nonlocal now, stored
        now += 1
        stored += 1
        await put(step, part, **given)

    monkeypatch.setattr(growing, "monotonic", lambda: now)
    monkeypatch.setattr(Step, "put", slowly)
    session = await engine.sessions.create()
    async with session.turn("go") as turn, turn.step() as step, step.speak() as out:
        stored = 0
        for _ in range(1000):
            now += 0.1
            await out.write("x")
        assert 5 <= stored <= 12


async def test_a_step_can_have_an_answer_or_its_error(engine: Engine) -> None:
    """Both are told with the end of the message; the error also by itself, before it."""
    session = await engine.sessions.create()
    async with engine.events.subscribe(session=session.id) as events:
        async with session.turn("Well?") as turn:
            async with turn.step() as step:
                step.structured = {"size": 4}
            async with turn.step() as step:
                step.error = structured_output("it said nothing", 2)
        heard: list[Event] = []
        async for event in events:
            heard.append(event)
            if event.type == "session.idle":
                break
    answers = [each.info for each in (await session.messages()).messages[1:]]
    assert [getattr(each, "structured", None) for each in answers] == [{"size": 4}, None]
    assert [getattr(each, "error", None) for each in answers] == [None, step.error]
    told = [event.type for event in heard]
    assert told.count("session.error") == 1
    assert "message.updated" in told[told.index("session.error") :]


async def test_an_answer_that_is_no_json_is_refused(engine: Engine) -> None:
    """What cannot be stored is the caller's mistake."""
    session = await engine.sessions.create()
    with pytest.raises(InvalidInput):
        async with session.turn("Well?") as turn, turn.step() as step:
            step.structured = object()
