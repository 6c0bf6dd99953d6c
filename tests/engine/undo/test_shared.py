"""A revert over a file of which a call was undone, and which several sessions changed at once."""

from pathlib import Path

from kedge.engine.engine import Engine
from tests.engine.revert.scene import lines, put, told


async def test_what_is_shared_is_told_of_where_an_earlier_call_is_undone(
    engine: Engine, folder: Path
) -> None:
    """It is not the session's to be undone, and the receipt must not say that nothing is left."""
    path = folder / "a.txt"
    put(path, lines())
    session, other = await engine.sessions.create(), await engine.sessions.create()
    async with (
        session.turn("Edit") as turn,
        turn.step() as step,
        step.tool("edit", {}, reads=[path], writes=[path]) as call,
    ):
        put(path, lines((1, "mine")))
    await session.undo(parts=[call.part.id])
    async with (
        session.turn("Run") as run,
        run.step() as step,
        other.turn("Run too") as beside,
        beside.step() as their_step,
        step.tool("bash", {}, effects="unknown"),
        their_step.tool("bash", {}, effects="unknown"),
    ):
        put(path, lines((7, "whose")))
    receipt = await session.revert(run.message.id)
    assert told(receipt) == {"a.txt": "shared"}
    assert "whose" in path.read_text()
