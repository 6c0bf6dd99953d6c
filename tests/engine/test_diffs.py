"""Diffs and files as of a message, of sessions whose turns really changed files."""

from pathlib import Path

from kedge.domain.sessions import FileDiff, SessionSummary
from kedge.engine.diffs.summaries import Summaries
from kedge.engine.engine import Engine
from kedge.engine.turns import Turn


def save(path: Path, content: str) -> None:
    """Write a file as a tool does."""
    path.write_text(content)


async def write(turn: Turn, path: Path, content: str) -> str:
    """A step whose tool reads and writes a file; the id of its message."""
    async with turn.step() as step:
        async with step.tool("read", {}, reads=[path]):
            pass
        async with step.tool("write", {}, writes=[path]):
            save(path, content)
    return step.message.id


async def shell(turn: Turn, path: Path, content: str) -> str:
    """A step whose shell writes a file; the id of its message."""
    async with turn.step() as step, step.tool("bash", {}, effects="unknown"):
        save(path, content)
    return step.message.id


def counted(diffs: list[FileDiff]) -> list[tuple[str | None, int, int]]:
    """Files with their additions and deletions."""
    return [(diff.file, diff.additions, diff.deletions) for diff in diffs]


async def test_turns_and_their_diffs(engine: Engine, folder: Path) -> None:
    """What tools wrote and what a shell did is in the diff; what a person did in between is not."""
    session = await engine.sessions.create()
    file, made = folder / "a", folder / "made"
    file.write_text("1\n2\n3\n4\n5\n")
    async with session.turn("one") as turn:
        summaries = Summaries(session)
        first = await write(turn, file, "mine\n2\n3\n4\n5\n")
        assert await summaries.summary() == SessionSummary(additions=1, deletions=1, files=1)
        second = await shell(turn, made, "new\n")
        assert await summaries.summary() == SessionSummary(additions=2, deletions=1, files=2)
    file.write_text("mine\n2\ntheirs\n4\n5\n")
    async with session.turn("two") as later:
        third = await write(later, file, "mine\n2\ntheirs\n4\nmine too\n")

    assert counted(await session.diff()) == [("a", 2, 2), ("made", 1, 0)]
    assert counted(await session.diff(turn.message.id)) == [("a", 1, 1), ("made", 1, 0)]
    assert counted(await session.diff(second)) == [("made", 1, 0)]
    assert counted(await session.diff(first, until=third)) == [("a", 1, 1), ("made", 1, 0)]
    turn_diffs = await engine.diffs.turn_diffs(session, later.message.id)
    assert counted(turn_diffs) == [("a", 1, 1)]
    assert turn_diffs[0].patch is None


async def test_turns_and_their_files(engine: Engine, folder: Path) -> None:
    """Every message shows the files as they were then; nothing on disk changes by looking."""
    session = await engine.sessions.create()
    file = folder / "a"
    file.write_text("0")
    async with session.turn("one") as turn:
        first = await write(turn, file, "1")
        second = await shell(turn, folder / "made", "new")
    file.write_text("by hand")
    async with session.turn("two") as later:
        third = await write(later, file, "2")
    file.unlink()
    messages = (turn.message.id, first, second, later.message.id, third)
    seen = [await session.file(message, "a") for message in messages]
    assert seen == [b"0", b"1", b"1", b"by hand", b"2"]
    assert [[entry.name for entry in await session.tree(message)] for message in messages] == [
        ["a"],
        ["a"],
        ["a", "made"],
        ["a", "made"],
        ["a", "made"],
    ]
    assert not file.exists()
