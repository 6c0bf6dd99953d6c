"""Undo and redo of calls where more has happened: edits in between, reverts that are not final,
files taken back by themselves, subtasks."""

import asyncio
from pathlib import Path

import pytest

from kedge.domain.errors import CallNotFound
from kedge.domain.receipts import RevertStrategy
from kedge.domain.sessions import SessionSummary
from kedge.engine.engine import Engine
from kedge.testing.replay import both
from tests.engine.revert.scene import lines, names, put, told, turn
from tests.engine.undo.test_undo import call, changed, mark


@pytest.mark.parametrize("is_made", [False, True])
async def test_an_edit_between_undo_and_redo(engine: Engine, folder: Path, is_made: bool) -> None:
    """All of it was the session's own work: it goes as a whole, and comes back."""
    path = folder / "file"
    session = await engine.sessions.create()
    if is_made:
        first = await turn(session, (path, lines()))
    else:
        put(path, lines())
        first = await turn(session, (folder / "other", "1\n"))
    part = await call(session, path, lines((1, "one")))
    await session.undo(parts=[part])
    await call(session, path, lines((7, "seven")))
    assert told(await session.redo(parts=[part]))["file"] == "merged"
    whole = path.read_text()
    assert whole == lines((1, "one"), (7, "seven"))
    without = "deleted" if is_made else "restored"
    for _ in range(2):
        assert told(await session.revert(first))["file"] == without
        assert path.exists() == (not is_made)
        await session.unrevert()
        assert path.read_text() == whole
        assert told(await session.undo(files=["."]))["file"] == without
        assert path.exists() == (not is_made)
        assert set(told(await session.redo(files=["."])).values()) <= {"recreated", "restored"}
        assert path.read_text() == whole


async def test_a_part_of_an_undo_comes_back(engine: Engine, folder: Path) -> None:
    """The rest of it is no change by others either."""
    path = folder / "file"
    session = await engine.sessions.create()
    made = await call(session, path, lines())
    parts = []
    for n in (1, 4, 7):
        text = path.read_text().replace(f"{n}\n", f"call {n}\n")
        parts.append(await call(session, path, text))
    await session.undo(parts=parts[:2])
    last = await call(session, path, path.read_text() + "9\n")
    await session.redo(parts=parts[:1])
    assert path.read_text() == lines((1, "call 1"), (7, "call 7"), (9, "9"), count=10)
    assert told(await session.undo(parts=[made, parts[0], parts[2], last])) == {"file": "deleted"}
    assert told(await session.redo(files=["file"])) == {"file": "recreated"}
    whole = lines((1, "call 1"), (4, "call 4"), (7, "call 7"), (9, "9"), count=10)
    assert path.read_text() == whole


async def test_overwriting_leaves_what_a_revert_hides(engine: Engine, folder: Path) -> None:
    """That is not undone, and comes back with the turn."""
    path = folder / "file"
    put(path, lines())
    session = await engine.sessions.create()
    first = await call(session, path, lines((1, "one")))
    second = await call(session, path, lines((1, "two")))
    third = await turn(session, (path, lines((1, "two"), (6, "three"))))
    await session.revert(third)
    assert told(await session.undo(parts=[first], strategy="overwrite")) == {"file": "restored"}
    await session.unrevert()
    assert path.read_text() == lines((6, "three"))
    assert await changed(session) == {"file": (1, 1)}
    await session.redo(parts=[first, second])
    assert path.read_text() == lines((1, "two"), (6, "three"))


@pytest.mark.parametrize("strategy", ["merge", "overwrite"])
async def test_what_a_revert_hides_in_a_subtask_is_not_undone(
    engine: Engine, folder: Path, strategy: RevertStrategy
) -> None:
    """As little as what a revert of the session itself hides; it comes back."""
    path = folder / "file"
    put(path, lines())
    parent = await engine.sessions.create()
    async with (
        parent.turn("Go on") as begun,
        begun.step() as step,
        step.tool("task", {}, effects="none") as task,
    ):
        child = await engine.sessions.create(parent=parent.id)
        await turn(child, (path, lines((1, "one"))))
        second = await turn(child, (path, lines((1, "one"), (5, "two"))))
    await child.revert(second)
    receipt = await parent.undo(parts=[task.part.id], strategy=strategy)
    assert told(receipt) == {"file": "restored"}
    assert path.read_text() == lines()
    await child.unrevert()
    assert path.read_text() == lines((5, "two"))
    await parent.redo(parts=[task.part.id])
    assert path.read_text() == lines((1, "one"), (5, "two"))


async def test_an_undo_between_a_revert_and_its_unrevert(engine: Engine, folder: Path) -> None:
    """The turn can be reverted again: nobody else has written what the unrevert brought back."""
    path = folder / "file"
    put(path, lines())
    session = await engine.sessions.create()
    part = await call(session, path, lines((1, "one")))
    second = await turn(session, (path, lines((1, "one"), (5, "two"))))
    await session.revert(second)
    await session.undo(parts=[part])
    for _ in range(2):
        await session.unrevert()
        assert path.read_text() == lines((5, "two"))
        assert told(await session.revert(second)) == {"file": "merged"}
        assert path.read_text() == lines()
    await session.redo(parts=[part])
    await session.unrevert()
    assert path.read_text() == lines((1, "one"), (5, "two"))


async def test_with_all_calls_goes_what_a_revert_of_files_wrote(
    engine: Engine, folder: Path
) -> None:
    """And it comes back with them, once the revert itself can no longer be taken back."""
    path = folder / "file"
    put(path, lines())
    session = await engine.sessions.create()
    first = await turn(session, (path, lines((1, "one"))))
    second = await turn(session, (path, lines((1, "one"), (6, "two"))))
    await session.revert(second, scope="files")
    assert told(await session.undo(files=["file"])) == {"file": "conflict"}
    assert path.read_text() == lines((1, "one"))
    await turn(session)
    assert told(await session.undo(files=["file"])) == {"file": "restored"}
    assert path.read_text() == lines()
    assert told(await session.redo(messages=[first, second])) == {"file": "restored"}
    assert path.read_text() == lines((1, "one"))
    assert await changed(session) == {"file": (1, 1)}


async def test_the_summary_when_nothing_is_left(engine: Engine, folder: Path) -> None:
    """It says so after an unrevert as well."""
    put(folder / "file", lines())
    session = await engine.sessions.create()
    part = await call(session, folder / "file", lines((1, "one")))
    await session.revert(await turn(session))
    await session.undo(parts=[part])
    await session.unrevert()
    assert session.info.summary == SessionSummary(additions=0, deletions=0, files=0)


async def test_a_subtask_elsewhere_goes_on(engine: Engine, folder: Path) -> None:
    """Undoing what was done to one file does not stop tasks that have not touched it."""
    session = await engine.sessions.create()
    await call(session, folder / "file", "1\n")
    async with (
        session.turn("Go on") as begun,
        begun.step() as step,
        step.tool("task", {}, effects="none"),
    ):
        child = await engine.sessions.create(parent=session.id)
        await call(child, folder / "other", "1\n")
    is_on, may_end = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        async with child.turn("Go on"):
            is_on.set()
            await may_end.wait()

    working = asyncio.create_task(work())
    await is_on.wait()
    assert told(await session.undo(files=["file"])) == {"file": "deleted"}
    may_end.set()
    await working
    assert names(folder) == ["other"]


@pytest.mark.parametrize("id", ["x" * 100_000, "\\%_" * 30_000, '"' * 100_000])
async def test_calls_with_long_ids(any_engine: Engine, folder: Path, id: str) -> None:
    """They are told from others that begin alike."""
    session = await any_engine.sessions.create()
    async with session.turn("Go on") as begun, begun.step() as step:
        for each in (id, f"{id}."):
            async with step.tool("write", {}, writes=[folder / f"{len(each)}"], call_id=each):
                put(folder / f"{len(each)}", "1\n")
    with pytest.raises(CallNotFound):
        await session.undo(calls=[id[:-1]])
    assert told(await session.undo(calls=[id])) == {f"{len(id)}": "deleted"}


async def test_many_calls_by_their_ids(any_engine: Engine, folder: Path) -> None:
    """Those of other programs, long ones and unknown ones among them."""
    ids = [f'call_"{n}\\é' for n in range(30)] + ["long" * 1000]
    session = await any_engine.sessions.create()
    async with session.turn("Go on") as begun, begun.step() as step:
        for n, id in enumerate(ids):
            async with step.tool("write", {}, writes=[folder / f"{n}"], call_id=id):
                put(folder / f"{n}", "1\n")
    with pytest.raises(CallNotFound, match="nope"):
        await session.undo(calls=[*ids, "nope"])
    assert set(told(await session.undo(calls=ids)).values()) == {"deleted"}
    assert names(folder) == []


async def test_a_subtask_in_the_trash(engine: Engine, folder: Path) -> None:
    """What it did goes and comes all the same, and is marked when it is restored."""
    parent = await engine.sessions.create()
    async with (
        parent.turn("Go on") as begun,
        begun.step() as step,
        step.tool("task", {}, effects="none") as task,
    ):
        child = await engine.sessions.create(parent=parent.id)
        part = await call(child, folder / "file", "1\n")
    await child.delete()
    assert told(await parent.undo(parts=[task.part.id])) == {"file": "deleted"}
    child = await engine.sessions.restore(child.id)
    assert await mark(child, part) is not None
    await child.delete()
    assert told(await parent.redo(parts=[task.part.id])) == {"file": "recreated"}
    child = await engine.sessions.restore(child.id)
    assert await mark(child, part) is None
    replayed, tables = await both(engine.store)
    assert replayed == tables
