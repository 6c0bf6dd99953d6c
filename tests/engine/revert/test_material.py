"""What a revert cannot undo is told, and left as it is."""

from pathlib import Path

from kedge.engine.settings import Settings
from tests.engine.engine_factory import EngineFactory
from tests.engine.repositories import repository
from tests.engine.revert.scene import put, told, turn


async def test_what_was_not_covered_is_skipped(place: EngineFactory, folder: Path) -> None:
    """With the reason; the path is not touched, whatever else was done to it."""
    async with place.open(settings=Settings(snapshot_file_size=100)) as engine:
        session = await engine.sessions.create()
        prompt = await turn(
            session, (folder / "large", "x" * 200), (folder / "small", "1"), (folder / "large", "2")
        )
        receipt = await session.revert(prompt)
        assert told(receipt) == {"large": "skipped", "small": "deleted"}
        assert receipt.files[0].reason == "what it did there could not be inspected: large"
        assert (folder / "large").read_text() == "2"


async def test_what_a_subtask_did_in_another_worktree_is_skipped(
    place: EngineFactory, folder: Path, tmp_path: Path
) -> None:
    """Its own session can undo it."""
    elsewhere = tmp_path / "elsewhere"
    put(elsewhere / "old", "old\n")
    async with place.open() as engine:
        session = await engine.sessions.create()
        async with session.turn("Go on") as begun, begun.step() as step, step.tool("task", {}):
            child = await engine.sessions.create(parent=session.id, directory=elsewhere)
            prompt = await turn(child, (elsewhere / "old", "new\n"))
        receipt = await session.revert(begun.message.id)
        assert told(receipt) == {str(elsewhere / "old"): "skipped"}
        assert (elsewhere / "old").read_text() == "new\n"
        assert told(await child.revert(prompt)) == {"old": "restored"}


async def test_a_session_below_the_root_names_files_from_its_directory(
    place: EngineFactory, folder: Path
) -> None:
    """A monorepo's sub-directory; receipts name them from the root of the worktree."""
    repository(folder)
    below = folder / "packages" / "one"
    put(below / "a", "base\n")
    async with place.open() as engine:
        session = await engine.sessions.create(directory=below)
        prompt = await turn(session, (below / "a", "1\n"), (folder / "top", "2\n"))
        receipt = await session.revert(prompt, files=["a"])
        assert told(receipt) == {"packages/one/a": "restored", "top": "skipped"}
        receipt = await session.revert(prompt, files=["../../top"])
        assert told(receipt) == {"packages/one/a": "skipped", "top": "deleted"}
