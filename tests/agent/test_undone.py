"""What the model, and what compactions and forks make of calls that were undone."""

from kedge.domain.parts import ToolCompleted, ToolPart
from kedge.engine.session import Session
from kedge.testing.replay import both
from tests.agent.test_compaction import seen, small
from tests.agent.world import World

_NOTE = "[What this call changed in files was undone later.]"


async def calls(session: Session) -> list[ToolPart]:
    """The calls of a session, oldest first."""
    found = (await session.messages(limit=1000)).messages
    return [part for each in found for part in each.parts if isinstance(part, ToolPart)]


async def test_the_model_is_told(any_world: World) -> None:
    """Behind the result of the call, in the kept conversation too; a redo takes it back."""
    async with any_world.at_work() as scene:
        await scene.prompt("write one.txt 1\nwrite two.txt 2")
        await scene.prompt("say and on")
        before = await seen(scene)
        first, _ = await calls(scene.session)
        await scene.session.undo(calls=[first.callID])
        told = await seen(scene)
        assert isinstance(first.state, ToolCompleted)
        assert [each for each in told if each.endswith(_NOTE)] == [
            f"{first.state.output}\n\n{_NOTE}"
        ]
        assert [each.removesuffix(f"\n\n{_NOTE}") for each in told] == before
        await scene.prompt("say more")
        assert (await seen(scene))[: len(told)] == told
        await scene.session.redo(parts=[first.id])
        assert (await seen(scene))[: len(before)] == before


async def test_calls_that_a_summary_stands_for(any_world: World) -> None:
    """They can be undone and redone; the summary stays."""
    small(any_world, 100_000, tail_turns=0)
    async with any_world.at_work() as scene:
        await scene.prompt("write one.txt 1")
        await scene.prompt("write two.txt 2")
        first, _ = await calls(scene.session)
        await scene.session.undo(parts=[first.id])
        await scene.agent.summarize(scene.session)
        await scene.prompt("say three")
        assert (await calls(scene.session))[0].undone is not None
        compacted = await seen(scene)
        assert (await scene.session.redo(parts=[first.id])).applied
        assert any_world.read("one.txt") == "1\n"
        _, second = await calls(scene.session)
        assert (await scene.session.undo(parts=[second.id])).applied
        assert await seen(scene) == compacted
        log, stored = await both(scene.engine.store)
        assert log == stored
