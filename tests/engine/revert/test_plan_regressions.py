"""What the programs of `test_whole` found, each as a test of its own."""

from pathlib import Path

from kedge.engine.engine import Engine
from tests.engine.revert.scene import put, told, tree, turn


async def test_a_file_that_a_declared_call_made_a_folder_comes_back(
    engine: Engine, folder: Path
) -> None:
    """What it declared was a file when the call began, so there is something to put back."""
    put(folder / "a", "old\n")
    before = tree(folder)
    session = await engine.sessions.create()
    async with session.turn("Go on") as begun, begun.step() as step:
        paths = ["a", "a/b"]
        async with step.tool("write", {}, reads=paths, writes=paths):
            put(folder / "a", None)
            put(folder / "a" / "b", "new\n")
    after = tree(folder)
    receipt = await session.revert(begun.message.id)
    assert told(receipt) == {"a": "recreated", "a/b": "deleted"}
    assert tree(folder) == before
    await session.unrevert()
    assert tree(folder) == after


async def test_a_folder_goes_though_somebody_else_deleted_what_was_in_it(
    engine: Engine, folder: Path
) -> None:
    """There is no file left to be touched, but the session made the folder, and it is empty."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "a" / "b", "new\n"))
    put(folder / "a" / "b", None)
    assert told(await session.revert(prompt)) == {"a/b": "unchanged"}
    assert tree(folder) == {}


async def test_a_file_takes_the_place_of_a_folder_with_empty_folders_in_it(
    engine: Engine, folder: Path
) -> None:
    """The dry run says so, and it is done."""
    put(folder / "a", "old\n")
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "a", None))
    (folder / "a" / "b" / "c").mkdir(parents=True)
    foretold = await session.revert(prompt, dry_run=True)
    assert told(foretold) == {"a": "recreated"}
    assert (await session.revert(prompt)).files == foretold.files
    assert (folder / "a").read_text() == "old\n"
