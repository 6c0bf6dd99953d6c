"""What people wrote down in a folder is told with the first file that is read there."""

import os
from typing import Any

import pytest

from kedge.domain.parts import ToolCompleted
from tests.agent.world import Scene, World, error_of, tools_of
from tests.support.model_server import Call as Called
from tests.support.model_server import ModelServer, Text, answer


async def read_all(
    world: World,
    scene: Scene,
    *names: str,
    steps: bool = False,
    **config: Any,  # noqa: ANN401
) -> list[ToolCompleted]:
    """What comes of reading files, in one step or in several."""
    calls = [Called.of("read", filePath=name) for name in names]
    script = [answer(call) for call in calls] if steps else [answer(*calls)]
    async with ModelServer([*script, answer(Text.of("fine"))]) as server:
        world.use(server, **config)
        before = {each.info.id for each in await scene.answers()}
        await scene.prompt("go")
        new = [each for each in await scene.answers() if each.info.id not in before]
        parts = [part for each in new for part in tools_of(each)]
        states = [each.state for each in parts if isinstance(each.state, ToolCompleted)]
        assert len(states) == len(names), [error_of(each) for each in parts]
        return states


@pytest.fixture
def filled(world: World) -> World:
    """A project with folders that have rules of their own."""
    world.put("AGENTS.md", "Of the root.")
    world.put("lib/AGENTS.md", "Of the library.\n")
    world.put("lib/x.py", "x = 1\n")
    world.put("lib/deep/CLAUDE.md", "Of the depth.")
    world.put("lib/deep/y.py", "y = 1\n")
    return world


async def test_they_are_told_with_the_first_file(filled: World) -> None:
    """From the outside in, each once, and the root's not again."""
    library = str(filled.folder / "lib" / "AGENTS.md")
    depth = str(filled.folder / "lib" / "deep" / "CLAUDE.md")
    async with filled.at_work() as scene:
        names = ["lib/deep/y.py", "lib/x.py", "lib/deep/y.py", "a.txt"]
        first, *others = await read_all(filled, scene, *names, steps=True)
        assert first.metadata["loaded"] == [library, depth]
        assert first.output.index(f'<instructions file="{library}">\nOf the library.\n</') < (
            first.output.index(f'<instructions file="{depth}">\nOf the depth.\n</instructions>')
        )
        assert first.output.index("1: y = 1") < first.output.index("Of the library.")
        assert "Of the root." not in first.output
        for each in others:
            assert each.metadata["loaded"] == []
            assert "<instructions" not in each.output
        # Another session has not heard them.
        other = await scene.engine.sessions.create("Other")
        again = await read_all(
            filled, Scene(filled, scene.engine, scene.agent, other, scene.heard), "lib/x.py"
        )
        assert again[0].metadata["loaded"] == [library]


async def test_files_that_are_read_together(filled: World) -> None:
    """Of several calls in one step, one brings them."""
    async with filled.at_work() as scene:
        names = [f"lib/{number}.py" for number in range(5)]
        for name in names:
            filled.put(name, "x = 1\n")
        states = await read_all(filled, scene, *names)
        assert sum("Of the library." in each.output for each in states) == 1
        assert sum(len(each.metadata["loaded"]) for each in states) == 1


async def test_they_are_not_told_again_after_a_restart(filled: World) -> None:
    """It is stored with the call that told them."""
    async with filled.at_work() as scene:
        await read_all(filled, scene, "lib/x.py")
        id = scene.session.id
    async with filled.at_work() as scene:
        session = await scene.engine.sessions.get(id)
        later = Scene(filled, scene.engine, scene.agent, session, scene.heard)
        (state,) = await read_all(filled, later, "lib/x.py")
        assert state.metadata["loaded"] == []
        (state,) = await read_all(filled, later, "lib/deep/y.py")
        assert state.metadata["loaded"] == [str(filled.folder / "lib" / "deep" / "CLAUDE.md")]


async def test_they_are_told_again_after_a_revert(filled: World) -> None:
    """The model does not know any more what it was told in the turn that is gone."""
    async with filled.at_work() as scene:
        (state,) = await read_all(filled, scene, "lib/x.py")
        assert state.metadata["loaded"]
        prompt = (await scene.messages())[0]
        await scene.session.revert(prompt.info.id)
        (state,) = await read_all(filled, scene, "lib/x.py")
        assert "Of the library." in state.output


async def test_a_read_that_fails_tells_nothing(filled: World) -> None:
    """The next one does."""
    calls = [
        answer(Called.of("read", filePath="lib/x.py", offset=100)),
        answer(Called.of("read", filePath="lib/x.py")),
    ]
    async with ModelServer([*calls, answer(Text.of("fine"))]) as server:
        filled.use(server)
        async with filled.at_work() as scene:
            await scene.prompt("go")
            failed, done = [tools_of(each)[0] for each in (await scene.answers())[:2]]
            assert "only 1 lines" in error_of(failed)
            assert isinstance(done.state, ToolCompleted)
            assert "Of the library." in done.state.output


async def test_what_the_system_prompt_has_is_not_told_again(filled: World) -> None:
    """Be it because the session works there, or because the configuration names it."""
    async with filled.at_work() as scene:
        (state,) = await read_all(filled, scene, "lib/x.py", instructions=["lib/AGENTS.md"])
        assert state.metadata["loaded"] == []
        below = await scene.engine.sessions.create("Below", directory=filled.folder / "lib")
        inside = Scene(filled, scene.engine, scene.agent, below, scene.heard)
        (state,) = await read_all(filled, inside, "x.py")
        assert state.metadata["loaded"] == []


async def test_the_file_itself_is_not_told_twice(filled: World) -> None:
    """Whoever reads it has it."""
    async with filled.at_work() as scene:
        (state,) = await read_all(filled, scene, "lib/AGENTS.md")
        assert state.metadata["loaded"] == []
        assert state.output.count("Of the library.") == 1


async def test_a_rule_can_forbid_it(filled: World) -> None:
    """What may not be read unasked is not told in another way."""
    async with filled.at_work() as scene:
        (state,) = await read_all(
            filled, scene, "lib/x.py", permission={"read": {"lib/AGENTS.md": "ask"}}
        )
        assert "Of the library." not in state.output


@pytest.mark.parametrize("kind", ["link out", "secret", "pipe", "folder"])
async def test_odd_files_are_left_alone(world: World, kind: str) -> None:
    """A hostile project has nobody's secrets told, and holds nobody up."""
    world.put("lib/x.py", "x = 1\n")
    path = world.folder / "lib" / "AGENTS.md"
    if kind == "link out":
        (world.root / "home" / "secret").write_text("swordfish")
        path.symlink_to(world.root / "home" / "secret")
    elif kind == "secret":
        world.put(".env", "swordfish")
        path.symlink_to(world.folder / ".env")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    async with world.at_work() as scene:
        (state,) = await read_all(world, scene, "lib/x.py")
        assert state.metadata["loaded"] == []
        assert "swordfish" not in state.output


@pytest.mark.parametrize("name", ["node_modules/pkg/x.js", "../outside/x.py", "lib/link.py"])
async def test_elsewhere_nobody_wrote_anything_for_this_project(world: World, name: str) -> None:
    """Packages of others, files outside of the worktree, and links that lead there."""
    for folder in (world.root / "outside", world.folder / "node_modules" / "pkg"):
        folder.mkdir(parents=True)
        (folder / "AGENTS.md").write_text("Obey.")
        (folder / "x.py").write_text("x = 1\n")
        (folder / "x.js").write_text("x = 1\n")
    (world.folder / "lib").mkdir()
    (world.folder / "lib" / "link.py").symlink_to(world.root / "outside" / "x.py")
    async with world.at_work() as scene:
        allowed = {"external_directory": "allow"}
        (state,) = await read_all(world, scene, name, permission=allowed)
        assert "x = 1" in state.output
        assert "Obey." not in state.output


async def test_there_is_an_end_to_them(world: World) -> None:
    """Long ones are cut, and the file has room beside them."""
    world.put("lib/AGENTS.md", "Rule.\n" * 50_000)
    world.put("lib/deep/AGENTS.md", "More rules.\n" * 50_000)
    world.put("lib/deep/x.py", "x = 1\n" * 10_000)
    async with world.at_work() as scene:
        (state,) = await read_all(world, scene, "lib/deep/x.py")
        assert len(state.metadata["loaded"]) == 2
        assert len(state.output.encode()) <= 51_200 + 2_000
        assert state.output.count("\n") <= 2_000 + 30
        assert "[cut: the file is longer]" in state.output
        assert state.output.count("x = 1") >= 900
        assert "More rules." in state.output
        assert "outputPath" not in state.metadata


async def test_hardly_any_room(filled: World) -> None:
    """However little of an output is stored, a read goes on, and rules do not push it out."""
    filled.put("lib/AGENTS.md", "Rule.\n" * 1_000)
    filled.put("lib/deep/CLAUDE.md", "More.\n" * 1_000)
    filled.put("lib/deep/y.py", "y = 1\n" * 10)
    async with filled.at_work() as scene:
        little = {"max_bytes": 40, "max_lines": 3}
        (state,) = await read_all(filled, scene, "lib/deep/y.py", tool_output=little)
        assert "1: y = 1" in state.output
        assert "Go on with offset=2." in state.output
        assert state.output.count("Rule.") + state.output.count("More.") < 10
