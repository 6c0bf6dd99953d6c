"""What stands of a session's changes is what is on disk, however often the boundary was moved."""

from pathlib import Path

from kedge.engine.engine import Engine
from kedge.engine.session import Session
from tests.engine.repositories import repository
from tests.engine.revert.scene import names, put, told, turn


async def _changed(session: Session) -> list[str]:
    return [diff.file or "" for diff in await session.diff()]


async def test_what_a_subtask_does_after_the_revert_stays_its_own(
    engine: Engine, folder: Path
) -> None:
    """The parent's next prompt takes along what the revert undid, and nothing that came later."""
    parent = await engine.sessions.create()
    async with parent.turn("Go on") as begun, begun.step() as step, step.tool("task", {}):
        child = await engine.sessions.create(parent=parent.id)
        await turn(child, (folder / "early", "1\n"))
    await parent.revert(begun.message.id)
    assert await _changed(child) == []
    prompt = await turn(child, (folder / "late", "2\n"))
    assert await _changed(child) == ["late"]
    await turn(parent, (folder / "other", "3\n"))
    assert await _changed(child) == ["late"]
    assert told(await child.revert(prompt)) == {"late": "deleted"}
    assert names(folder) == ["other"]


async def test_a_conflict_in_the_worktree_of_a_subtask_stays_its_own(
    engine: Engine, folder: Path
) -> None:
    """Its paths are seen from another root than those of the receipt."""
    below = folder / "below"
    below.mkdir()
    repository(below)
    put(below / "x", "0\n")
    parent = await engine.sessions.create()
    async with parent.turn("Go on") as begun, begun.step() as step, step.tool("task", {}):
        child = await engine.sessions.create(parent=parent.id, directory=below)
        prompt = await turn(child, (below / "x", "1\n"), (below / "y", "1\n"))
    put(below / "x", "by a person\n")
    receipt = await parent.revert(begun.message.id)
    assert told(receipt) == {"below/x": "conflict", "below/y": "deleted"}
    assert parent.info.summary is not None
    assert parent.info.summary.files == 1
    assert await _changed(child) == ["x"]
    await turn(parent)
    assert await _changed(child) == ["x"]
    put(below / "x", "1\n")
    assert told(await child.revert(prompt)) == {"x": "restored"}
    assert (below / "x").read_text() == "0\n"


async def test_what_a_later_revert_did_not_look_at_stays_undone(
    engine: Engine, folder: Path
) -> None:
    """Also where its message is to be seen again."""
    session = await engine.sessions.create()
    first = await turn(session, (folder / "a", "1\n"), (folder / "b", "1\n"))
    second = await turn(session, (folder / "a", "2\n"), (folder / "b", "2\n"))
    await session.revert(first)
    assert told(await session.revert(second, files=["b"])) == {"a": "skipped", "b": "recreated"}
    assert await _changed(session) == ["b"]
    await turn(session, (folder / "c", "3\n"))
    assert names(folder) == await _changed(session) == ["b", "c"]
    assert session.info.summary is not None
    assert session.info.summary.files == 2
    assert told(await session.revert(first)) == {"b": "deleted", "c": "deleted"}


async def test_showing_messages_again_does_not_bring_files_back(
    engine: Engine, folder: Path
) -> None:
    """What was undone before stays undone, and is not told of as a change."""
    session = await engine.sessions.create()
    first = await turn(session, (folder / "a", "1\n"))
    second = await turn(session, (folder / "a", "2\n"))
    await session.revert(first)
    await session.revert(second, scope="messages")
    await turn(session, (folder / "c", "3\n"))
    assert names(folder) == await _changed(session) == ["c"]


async def test_where_a_later_revert_met_a_conflict_the_first_one_counts(
    engine: Engine, folder: Path
) -> None:
    """Nothing was written then: what was undone before is still undone."""
    session = await engine.sessions.create()
    first = await turn(session, (folder / "a", "1\n"))
    second = await turn(session, (folder / "a", "2\n"))
    await session.revert(first)
    put(folder / "a", "by a person\n")
    assert told(await session.revert(second)) == {"a": "conflict"}
    assert await _changed(session) == []
    await turn(session, (folder / "c", "3\n"))
    assert await _changed(session) == ["c"]


async def test_files_taken_back_further_than_messages_stay_so(engine: Engine, folder: Path) -> None:
    """What a files-only revert wrote after another one was not undone by that one."""
    put(folder / "a", "0\n")
    session = await engine.sessions.create()
    first = await turn(session, (folder / "a", "1\n"))
    second = await turn(session, (folder / "a", "2\n"))
    await session.revert(second)
    await session.revert(first, scope="files")
    assert (folder / "a").read_text() == "0\n"
    assert await _changed(session) == []
    await turn(session, (folder / "c", "3\n"))
    assert await _changed(session) == ["c"]


async def test_what_a_subtask_brings_back_itself_stays_its_own(
    engine: Engine, folder: Path
) -> None:
    """A revert of its parent that found it taken out already did not take it out."""
    parent = await engine.sessions.create()
    async with parent.turn("Go on") as begun, begun.step() as step, step.tool("task", {}):
        child = await engine.sessions.create(parent=parent.id)
        prompt = await turn(child, (folder / "file", "1\n"))
    await child.revert(prompt)
    assert told(await parent.revert(begun.message.id)) == {"file": "unchanged"}
    await child.unrevert()
    await turn(parent, (folder / "other", "2\n"))
    assert await _changed(child) == ["file"]
    assert told(await child.revert(prompt)) == {"file": "deleted"}
