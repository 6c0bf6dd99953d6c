"""Tool calls whose arguments, or whose effects, are known only later than their names."""

from pathlib import Path

import pytest

from kedge.domain.errors import FileChanged, InvalidInput
from kedge.domain.events import PartUpdated
from kedge.domain.parts import (
    FilePart,
    ReasoningPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    ToolPending,
    ToolRunning,
)
from kedge.engine.engine import Engine
from tests.engine.engine_factory import stored_log


async def test_an_announced_call_is_pending_until_it_begins(engine: Engine) -> None:
    """It is stored once as pending, then as running with its arguments."""
    session = await engine.sessions.create()
    async with session.turn("go") as turn, turn.step() as step:
        call = step.tool("write", {}, call_id="c1")
        await call.announce()
        await step.text("said meanwhile")
        call.fill({"filePath": "a"})
        async with call:
            with pytest.raises(InvalidInput, match="at work"):
                call.fill({})
            call.note({"signature": "x"})
            call.attachments = [FilePart(mime="image/png", url="data:,x", **step.new_part())]
    parts = (await session.messages()).messages[-1].parts
    tool = next(part for part in parts if isinstance(part, ToolPart))
    assert parts.index(tool) == 1
    assert isinstance(tool.state, ToolCompleted)
    assert tool.state.input == {"filePath": "a"}
    assert tool.state.attachments is not None
    assert tool.metadata == {"signature": "x"}
    told = [engine.events.event_of(event).properties for event in await stored_log(engine)]
    parts = [each.part for each in told if isinstance(each, PartUpdated)]
    states = [type(part.state) for part in parts if isinstance(part, ToolPart)]
    assert states == [ToolPending, ToolRunning, ToolCompleted]


async def test_a_call_that_is_only_announced_is_interrupted(engine: Engine) -> None:
    """A step does not end before all that it has shown has ended."""
    session = await engine.sessions.create()
    async with session.turn("go") as turn, turn.step() as step:
        await step.tool("write", {}).announce()
    (tool,) = [p for p in (await session.messages()).messages[-1].parts if isinstance(p, ToolPart)]
    assert isinstance(tool.state, ToolError)


async def test_effects_are_declared_while_the_tool_works(engine: Engine) -> None:
    """What is written after that is the session's own, and can be undone."""
    session = await engine.sessions.create()
    file = Path(session.info.directory) / "a.txt"
    async with session.turn("go") as turn, turn.step() as step:
        async with step.tool("write", {}) as call:
            await call.declare(writes=["a.txt"])
            file.write_text("one")
            with pytest.raises(InvalidInput, match="once"):
                await call.declare(writes=["b.txt"])
        async with step.tool("bash", {}) as call:
            await call.declare(effects="unknown")
            (file.parent / "b.txt").write_text("two")
    assert [diff.file for diff in await session.diff()] == ["a.txt", "b.txt"]
    await session.revert(turn.message.id)
    assert not file.exists()


async def test_a_declaration_that_is_refused_leaves_nothing_locked(engine: Engine) -> None:
    """The call goes on without it, and the next one may write."""
    session = await engine.sessions.create()
    file = Path(session.info.directory) / "a.txt"
    file.write_text("mine")
    async with session.turn("go") as turn, turn.step() as step:
        async with step.tool("write", {}) as call:
            with pytest.raises(FileChanged):
                await call.declare(writes=["a.txt"])
            call.fail("read it first")
        async with step.tool("read", {}) as call:
            await call.declare(reads=["a.txt"])
        async with step.tool("write", {}) as call:
            await call.declare(writes=["a.txt"])
            file.write_text("ours")
    assert [diff.file for diff in await session.diff()] == ["a.txt"]


async def test_what_was_begun_can_be_taken_back(engine: Engine) -> None:
    """A retracted part is gone for those who listen and for those who read later."""
    session = await engine.sessions.create()
    async with session.turn("go") as turn, turn.step() as step:
        async with step.speak() as out:
            await out.write("half a sen")
        await step.retract(out.part_id)
        call = step.tool("write", {})
        await call.announce()
        await step.retract(call.part.id)
        async with step.think() as out:
            await out.write("again")
            out.note({"signature": "s"})
    parts = (await session.messages()).messages[-1].parts
    kept = [part for part in parts if isinstance(part, ReasoningPart)]
    assert [part.metadata for part in kept] == [{"signature": "s"}]
    assert [type(part).__name__ for part in parts] == [
        "StepStartPart",
        "ReasoningPart",
        "StepFinishPart",
    ]
    removed = [e for e in await stored_log(engine) if e.type == "message.part.removed"]
    assert len(removed) == 2
