"""What a revert left alone, and what somebody wrote while it was pending, once it is final."""

from functools import partial
from pathlib import Path

import msgspec
import pytest

from kedge.domain.errors import FileChanged
from kedge.domain.sessions import Todo
from kedge.engine.engine import Engine
from tests.engine.revert.scene import names, put, shell, told, turn


async def test_undoing_the_next_prompt_undoes_nothing_from_before_it(
    engine: Engine, folder: Path
) -> None:
    """Also if an earlier revert took all messages away and was asked to leave files alone."""
    session = await engine.sessions.create()
    first = await turn(session, (folder / "a", "1\n"), (folder / "b", "1\n"))
    await session.revert(first, files=["b"])
    second = await turn(session, (folder / "c", "2\n"))
    assert told(await session.revert(second)) == {"c": "deleted"}
    assert names(folder) == ["a"]
    assert [diff.file for diff in await session.diff()] == ["a"]
    third = await turn(session, (folder / "a", "3\n"))
    assert told(await session.revert(third)) == {"a": "restored"}
    assert (folder / "a").read_text() == "1\n"


async def test_what_was_read_in_a_turn_that_is_gone_was_not_read(
    engine: Engine, folder: Path
) -> None:
    """An edit has to read it again."""
    put(folder / "a", "by a person\n")
    session = await engine.sessions.create()
    async with (
        session.turn("Read it") as begun,
        begun.step() as step,
        step.tool("read", {}, reads=[folder / "a"]),
    ):
        pass
    await session.revert(begun.message.id)
    async with session.turn("Write it") as begun, begun.step() as step:
        with pytest.raises(FileChanged, match="read it first"):
            async with step.tool("write", {}, writes=[folder / "a"]):
                pass


async def test_a_message_stored_while_a_revert_is_pending_is_not_hidden(
    engine: Engine, folder: Path
) -> None:
    """It makes the revert final, as a prompt does."""
    session = await engine.sessions.create()
    first = await turn(session, (folder / "a", "1\n"))
    await session.revert(first)
    old = (await session.message(first)).info
    new = msgspec.structs.replace(old, id=engine.ids.message())
    await session.put_message(new)
    await session.refresh()
    assert session.info.revert is None
    await turn(session)
    ids = [each.info.id for each in (await session.messages()).messages]
    assert ids[0] == new.id
    assert len(ids) == 3
    assert [tail.messages for tail in await session.tails()] == [2]


async def test_todos_written_while_a_revert_is_pending_stay(engine: Engine, folder: Path) -> None:
    """The revert can still be taken back; made final, the newer list is kept."""
    session = await engine.sessions.create()
    first = await turn(session, (folder / "a", "1\n"))
    await session.revert(first)
    todos = [Todo(content="x", status="pending", priority="high")]
    await session.set_todos(todos)
    assert told(await session.unrevert()) == {"a": "recreated"}
    await session.revert(first)
    await session.set_todos(todos)
    await turn(session)
    assert await session.todos() == todos


async def test_calls_are_told_of_again_where_their_changes_were_left(
    engine: Engine, folder: Path
) -> None:
    """A later revert that undoes what a shell command did says what was not looked at."""
    session = await engine.sessions.create()
    first = await turn(session)
    left = await shell(session, partial(put, folder / "a", "1\n"), title="left")
    await shell(session, partial(put, folder / "b", "1\n"), title="undone")
    await session.revert(left, files=["b"])
    await turn(session)
    receipt = await session.revert(first)
    assert told(receipt) == {"a": "deleted"}
    (note,) = receipt.notes
    assert note.endswith("bash (left)")
