"""Marks of pruned outputs and the clock: a message is newer than the marks before it."""

from kedge.domain.parts import ToolCompleted, ToolPart
from kedge.engine.compactions import prune_outputs
from kedge.engine.session import Session
from kedge.testing.clock import ManualClock
from kedge.testing.replay import both
from tests.engine.engine_factory import EngineFactory


async def marks(session: Session) -> list[bool]:
    """Whether each output is pruned."""
    return [
        part.state.time.compacted is not None
        for message in (await session.messages()).messages
        for part in message.parts
        if isinstance(part, ToolPart) and isinstance(part.state, ToolCompleted)
    ]


async def speak(session: Session) -> str:
    """A turn without any tools; gives the id of its prompt."""
    async with session.turn("Go on") as turn:
        pass
    return turn.message.id


async def test_a_copy_goes_on_after_the_marks_that_it_has(any_place: EngineFactory) -> None:
    """Also if the clock goes back after them."""
    clock = ManualClock(1_800_000_000_000)
    async with any_place.open(clock=clock) as engine:
        session = await engine.sessions.create()
        async with session.turn("Read") as turn:
            async with turn.step() as step, step.tool("read", {}) as call:
                call.output = "long"
            clock.advance(60_000)
            await prune_outputs(turn, [(call.part.messageID, call.part.id)])
        clock.advance(-30_000)
        cut = await speak(session)
        fork = await session.fork()
        early = await session.fork(cut)
        await session.revert(cut)
        await speak(session)
        (tail,) = await session.tails()
        restored = await session.restore_tail(tail.id)
        for copy in (session, fork, early, restored):
            later = await speak(copy)
            assert await marks(copy) == [True]
            await copy.revert(later)
            await speak(copy)
            assert await marks(copy) == [True]
        replayed, tables = await both(engine.store)
        assert replayed == tables
