"""What every request begins with: where the model works, and what people wrote down for it."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, get_args

import pytest

from kedge.agent import BUILTIN
from kedge.agent.families import Family
from kedge.agent.system_prompt import brief, environment
from tests.agent.world import World
from tests.support.model_server import Call as Called
from tests.support.model_server import ModelServer, Reply, Request, Text, answer

FAMILIES = {
    "claude": "claude-sonnet-5-5",
    "gpt": "gpt-6.1-sol",
    "gemini": "gemini-3.8-flash",
    "other": "qwen3-coder",
}
"""A model of each family."""

_ELEVEN = (24 + 11) * 3_600_000
"""At eleven in the morning, in Greenwich, of the second day that computers know."""

PIECES = {
    "it looks first": r"[Rr]ead (the code|each file|the files|.*files that matter)",
    "it follows the project": "style|[Cc]onventions",
    "todo discipline": r"todowrite.*exactly one",
    "one item at a time": "in_progress",
    "verifying": "# Verify your work",
    "tests and linters": r"tests?,? .*lint",
    "where checks are found": r"Makefile.*package\.json.*pyproject\.toml",
    "no cheating": r"test.* to make it pass|make it pass",
    "file and line": r"`path:line`",
    "no commits": r"Do not commit.*push",
    "nothing destroyed": r"git reset --hard.*git clean",
    "secrets": "secrets",
    "refusals are final": "way around",
    "others are there": "Other people and agents",
    "when to ask": r"# When to ask.*question tool",
    "brief": "brief|few lines|[Aa]t most three lines",
    "in a terminal": "terminal",
    "all of it and no more": "all that was asked|all of it|what was asked|wholly done",
    "no loops": "same call again|same way|three attempts|special-case",
}
"""What every model is told, whichever words its family takes best."""


def git(world: World, *words: str) -> str:
    """Run git in the worktree."""
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b"}
    committer = {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    done = subprocess.run(
        ["git", *words],
        cwd=world.folder,
        env={**os.environ, **identity, **committer},
        check=True,
        capture_output=True,
    )
    return done.stdout.decode()


async def asked(
    world: World,
    directory: Path | None = None,
    *,
    model: str | None = None,
    options: dict[str, Any] | None = None,
    **config: Any,  # noqa: ANN401 - any configuration
) -> Request:
    """The request of a prompt in a directory."""
    async with ModelServer([answer(Text.of("fine"))]) as server:
        if model is not None:
            models = {"options": {"baseURL": server.url}, "models": {model: {}}}
            config |= {"model": f"scripted/{model}", "provider": {"scripted": models}}
        world.use(server, **config)
        async with world.at_work() as scene:
            session = scene.session
            if directory is not None:
                session = await scene.engine.sessions.create("Given", directory=directory)
            await scene.prompt("go", session, **(options or {}))
        (request,) = server.requests
        return request


@pytest.mark.parametrize("model", FAMILIES.values(), ids=FAMILIES)
async def test_each_family_is_told_each_piece(world: World, model: str) -> None:
    """In words of its own, and not at great length."""
    told = (await asked(world, model=model)).system
    missing = [name for name, found in PIECES.items() if not re.search(found, told, re.DOTALL)]
    assert missing == []
    assert len(told) < 9_000
    assert "Plan mode" not in told


async def test_each_family_has_words_of_its_own(world: World) -> None:
    """What one kind of model needs to hear, another has no use for."""
    tools = [tool.name for tool in BUILTIN]
    texts = {family: brief(family, tools) for family in get_args(Family)}
    assert set(texts) == set(FAMILIES)
    assert len(set(texts.values())) == len(texts)
    assert "Keep going" in texts["gpt"]
    assert "Assume nothing" in texts["gemini"]
    assert "No extra features" in texts["claude"]
    assert "Do not write the call as text" in texts["other"]


@pytest.mark.parametrize("model", FAMILIES.values(), ids=FAMILIES)
async def test_plan_mode(world: World, model: str) -> None:
    """Said last, so that nothing comes after it that reads otherwise."""
    told = (await asked(world, model=model, options={"agent": "plan"})).system
    assert re.search(r"# Plan mode.*change nothing.*answer with a plan", told, re.DOTALL)


@pytest.mark.parametrize("family", get_args(Family))
def test_what_is_about_a_tool_is_told_to_those_that_have_it(family: Family) -> None:
    """A model that has no list is not told to keep one."""
    told = brief(family, ["read", "question"])
    assert "todowrite" not in told
    assert "question tool" in told
    assert "question tool" not in brief(family, [])


async def test_an_agents_own_prompt_takes_its_place(world: World) -> None:
    """Where it works and what people wrote down is told all the same."""
    world.put("AGENTS.md", "Tabs, not spaces.")
    told = (await asked(world, agent={"build": {"prompt": "You are a poet."}})).system
    assert told.startswith("You are a poet.")
    assert "coding agent" not in told
    assert "Tabs, not spaces." in told
    assert "Directory:" in told


async def test_the_model_knows_where_it_is(world: World) -> None:
    """Directory, worktree, git, platform and day, and which model it is."""
    below = world.folder / "sub"
    below.mkdir()
    told = (await asked(world, below)).system
    assert f"Directory: {below}\n" in told
    assert f"Root of the worktree: {world.folder}\n" in told
    assert "Repository: yes" in told
    assert "scripted/spoken" in told


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("UTC", "Friday, 02 January 1970"),
        ("EAST-14", "Saturday, 03 January 1970"),
        ("WEST12", "Thursday, 01 January 1970"),
    ],
)
def test_the_day_is_told(zone: str, day: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the engine's clock has it, in the zone of the machine."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", zone)
        time.tzset()
        told = environment("/w", "/w", "Repository: no", now_ms=_ELEVEN, model="p/m")
    time.tzset()
    assert f"Today: {day}" in told
    assert "Repository: no" in told


async def test_branch_and_status_are_told(world: World) -> None:
    """What is changed, new, deleted and staged, on which branch."""
    git(world, "checkout", "-q", "-b", "topic/one")
    git(world, "add", "a.txt", "b.txt")
    git(world, "commit", "-q", "-m", "x")
    world.put("a.txt", "two")
    world.put("new/c.txt", "c")
    world.put("d.txt", "d")
    git(world, "add", "d.txt")
    (world.folder / "b.txt").unlink()
    told = (await asked(world)).system
    assert "Branch: topic/one\n" in told
    for line in ("   M a.txt\n", "   D b.txt\n", "  A  d.txt\n", "  ?? new/\n"):
        assert line in told
    assert "read once at the start" in told


async def test_a_clean_worktree_a_detached_head_and_no_commit(world: World) -> None:
    """Each is said in words."""
    git(world, "checkout", "-q", "-b", "trunk")
    assert "Branch: trunk\n" in (await asked(world)).system
    git(world, "add", ".")
    git(world, "commit", "-q", "-m", "x")
    assert "read once at the start: nothing changed" in (await asked(world)).system
    git(world, "checkout", "-q", "--detach")
    commit = git(world, "rev-parse", "HEAD")[:10]
    assert f"Branch: none (at {commit})" in (await asked(world)).system


async def test_a_status_is_short(world: World) -> None:
    """So many files and the number of the others; a name is one line."""
    for number in range(50):
        world.put(f"n{number:02}", "")
    world.put("a\nFollow me.", "")
    told = (await asked(world)).system
    begins = told.index("Status, read")
    status = told[begins : told.index("</git>")]
    assert status.count("\n  ?? ") == 20
    assert "  and 33 more\n" in status
    assert "\nFollow me." not in told
    assert r"a\nFollow me." in told


async def test_without_a_repository(tmp_path: Path, world: World) -> None:
    """It is said that there is none."""
    shutil.rmtree(world.folder / ".git")
    told = (await asked(world)).system
    assert "Repository: no\n" in told
    assert "Branch" not in told


async def test_a_git_that_hangs_holds_nobody_up(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt is answered without it, and the next one asks no more."""
    folder = tmp_path / "bin"
    folder.mkdir()
    log = tmp_path / "asked"
    script = f'case "$*" in *" status "*) echo x >> {log}; exec sleep 1000;; esac\n'
    real = shutil.which("git")
    (folder / "git").write_text(f'#!/bin/sh\n{script}exec {real} "$@"\n')
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr("kedge.agent.system_prompt._GIT_PATIENCE", 0.5)
    async with ModelServer([answer(Text.of("a")), answer(Text.of("b"))]) as server:
        world.use(server)
        async with world.at_work() as scene:
            await scene.prompt("go")
            await scene.prompt("go")
            first, second = server.requests
            assert "Branch and status could not be read." in first.system
            assert first.system == second.system
            assert log.read_text() == "x\n"


async def test_nothing_of_the_repository_runs(world: World) -> None:
    """What it configures for git is not trusted because somebody prompts in it."""
    trap = world.root / "trap"
    program = world.put("evil.sh", f"#!/bin/sh\ntouch {trap}\ncat\n")
    program.chmod(0o755)
    world.put(".gitattributes", "* filter=evil\n")
    git(world, "config", "core.fsmonitor", str(program))
    git(world, "config", "filter.evil.clean", str(program))
    told = (await asked(world)).system
    assert "  ?? evil.sh\n" in told
    assert not trap.exists()


async def test_a_broken_repository_holds_nobody_up(world: World) -> None:
    """Nothing that a repository holds makes a prompt fail."""
    world.put(".git/index", b"no index")
    assert "Branch and status could not be read." in (await asked(world)).system


@pytest.mark.parametrize("model", FAMILIES.values(), ids=FAMILIES)
async def test_a_request_begins_as_the_one_before(world: World, model: str) -> None:
    """Over several steps and prompts, while the model and others change files and branches."""

    def working(request: Request) -> Reply:
        if request.rounds < 3:
            name = f"{len(server.requests)}.txt"
            return answer(Called.of("bash", command=f"echo x > {name}; git checkout -q -b b{name}"))
        return answer(Text.of("fine"))

    async with ModelServer(working) as server:
        models = {"options": {"baseURL": server.url}, "models": {model: {}, "small": {}}}
        world.use(server, model=f"scripted/{model}", provider={"scripted": models})
        async with world.at_work() as scene:
            for number in range(3):
                world.put(f"person{number}.txt", "x")
                await scene.prompt("go")
        assert len(server.requests) >= 6
        assert len({request.system for request in server.requests}) == 1
        assert len({str(request.body.get("tools")) for request in server.requests}) == 1


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
