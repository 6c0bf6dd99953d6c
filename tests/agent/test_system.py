"""What every request begins with: where the model works, and what people wrote down for it."""

import os
from pathlib import Path
from typing import Any

import pytest

from kedge.agent.system import environment
from tests.agent.world import World
from tests.support.model_server import ModelServer, Request, Text, answer


async def asked(world: World, directory: Path | None = None, **config: Any) -> Request:  # noqa: ANN401 - any configuration
    """The request of a prompt in a directory."""
    async with ModelServer([answer(Text.of("fine"))]) as server:
        world.use(server, **config)
        async with world.at_work() as scene:
            session = scene.session
            if directory is not None:
                session = await scene.engine.sessions.create("Given", directory=directory)
            await scene.prompt("go", session)
        (request,) = server.requests
        return request


async def test_the_model_knows_where_it_is(world: World) -> None:
    """Directory, worktree, git, platform and day, and which model it is."""
    below = world.folder / "sub"
    below.mkdir()
    told = (await asked(world, below)).system
    assert f"Directory: {below}\n" in told
    assert f"Root of the worktree: {world.folder}\n" in told
    assert "Git repository: yes" in told
    assert "scripted/spoken" in told


@pytest.mark.parametrize(("milliseconds", "day"), [(0, "Thursday, 01 January 1970")])
def test_the_day_is_told(milliseconds: int, day: str) -> None:
    """As the clock of the engine has it."""
    told = environment("/w", "/w", is_git=False, now_ms=milliseconds, model="p/m")
    assert f"Today: {day}" in told
    assert "Git repository: no" in told


async def test_files_of_the_tree_are_told_from_the_root_down(world: World) -> None:
    """The nearest one comes last; what is outside of the worktree does not count."""
    (world.root / "AGENTS.md").write_text("Outside of everything.")
    world.put("AGENTS.md", "Tabs, not spaces.")
    world.put("sub/deep/AGENTS.md", "Here: spaces.")
    world.put("sub/CLAUDE.md", "Never seen.")
    world.put("other/AGENTS.md", "Elsewhere.")
    told = (await asked(world, world.folder / "sub" / "deep")).system
    assert told.index("Tabs, not spaces.") < told.index("Here: spaces.")
    for each in ("Outside of everything.", "Never seen.", "Elsewhere."):
        assert each not in told


async def test_the_other_name_counts_where_the_first_is_missing(world: World) -> None:
    """A project that has only CLAUDE.md is understood."""
    world.put("CLAUDE.md", "Be kind.")
    assert "Be kind." in (await asked(world)).system


async def test_what_a_person_keeps_for_all_projects_is_told_first(world: World) -> None:
    """Before what the project says."""
    own = world.config / "kedge" / "AGENTS.md"
    own.parent.mkdir()
    own.write_text("I am left-handed.")
    world.put("AGENTS.md", "Tabs, not spaces.")
    told = (await asked(world)).system
    assert told.index("I am left-handed.") < told.index("Tabs, not spaces.")


async def test_the_configuration_names_more(world: World) -> None:
    """Patterns are looked for in the directory and above; a file is told once."""
    world.put("docs/style.md", "Short words.")
    world.put("docs/more.md", "Long words.")
    world.put("AGENTS.md", "Only once.")
    told = (await asked(world, instructions=["docs/*.md", "AGENTS.md", "gone.md"])).system
    assert told.count("Short words.") == 1
    assert told.count("Long words.") == 1
    assert told.count("Only once.") == 1


async def test_a_link_out_of_the_project_is_not_followed(world: World) -> None:
    """A hostile project cannot have a person's secrets sent away."""
    secret = world.root / "home" / "secret"
    secret.write_text("The password is swordfish.")
    (world.folder / "AGENTS.md").symlink_to(secret)
    assert "swordfish" not in (await asked(world)).system


@pytest.mark.parametrize("name", [".env", ".git/config"])
async def test_a_link_to_a_secret_of_the_project_is_not_followed(world: World, name: str) -> None:
    """What a model may not read unasked is not told it in another way."""
    secret = world.folder / name
    secret.parent.mkdir(exist_ok=True)
    secret.write_text("# swordfish\n")
    (world.folder / "AGENTS.md").symlink_to(secret)
    assert "swordfish" not in (await asked(world)).system


async def test_there_is_an_end_to_instructions(world: World) -> None:
    """However many files a project names, the model is told so much and no more."""
    for number in range(12):
        world.put(f"n{number}.md", f"{number}" + "x" * 200_000)
    told = (await asked(world, instructions=["n*.md"])).system
    assert 800_000 < len(told) < 1_100_000


async def test_odd_files_do_no_harm(world: World) -> None:
    """A pipe does not block, a folder is no file, and what is huge is cut."""
    os.mkfifo(world.folder / "AGENTS.md")
    (world.folder / "dir.md").mkdir()
    world.put("huge.md", "x" * 1_000_000)
    world.put("odd.md", b"\xff\xfe not \x00 text")
    told = (await asked(world, instructions=["AGENTS.md", "dir.md", "huge.md", "odd.md"])).system
    assert "[cut: the file is longer]" in told
    assert len(told) < 300_000


async def test_instructions_are_read_anew_for_each_step(world: World) -> None:
    """What a person writes down counts from the next request on."""
    async with ModelServer([answer(Text.of("a")), answer(Text.of("b"))]) as server:
        world.use(server)
        async with world.at_work() as scene:
            await scene.prompt("go")
            world.put("AGENTS.md", "New rule.")
            await scene.prompt("go")
            first, second = server.requests
            assert "New rule." not in first.system
            assert "New rule." in second.system
