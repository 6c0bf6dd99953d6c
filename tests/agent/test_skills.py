"""Skills: what the model is told of them, and what it gets when it reads one."""

import json
from pathlib import Path

from kedge.domain.events import PermissionAsked
from kedge.domain.parts import ToolCompleted
from tests.agent.tasks import begin
from tests.agent.world import World, check_closed, error_of, text_of, tools_of
from tests.support.model_server import Call, ModelServer, Text, answer


def put_skill(world: World, name: str, *files: str) -> Path:
    """A skill of the person's own, with other files; its folder."""
    folder = world.config / "opencode" / "skills" / name
    for each in ("SKILL.md", *files):
        (folder / each).parent.mkdir(parents=True, exist_ok=True)
        (folder / each).write_text("x")
    text = f"---\nname: {name}\ndescription: about {name}\n---\nBlow, {name}.\n"
    (folder / "SKILL.md").write_text(text)
    return folder


async def test_a_skill_is_read(world: World) -> None:
    """Its text, its folder, and some of its files: none that are links, and ten at most."""
    folder = put_skill(world, "winds", "a.py", "lib/b.py", *(f"many/{n}" for n in range(2_000)))
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "away").symlink_to("/etc")
    (folder / "round").symlink_to(folder)
    async with world.at_work() as scene:
        said = await scene.prompt("skill winds\nshow")
        (call,) = [part for each in await scene.answers() for part in tools_of(each)]
        assert isinstance(call.state, ToolCompleted)
        assert call.state.title == "Loaded skill: winds"
        assert call.state.metadata["name"] == "winds"
        assert call.state.metadata["dir"] == str(folder)
        text = text_of(said)
        assert text.startswith('<skill_content name="winds">\nBlow, winds.\n')
        assert f"The folder of this skill is {folder}" in text
        assert 0 < text.count("<file>") <= 10
        assert text.count(f"<file>{folder}/") == text.count("<file>")
        assert not any(f"{folder}/{name}" in text for name in ("link", "away", "round"))
        await check_closed(scene)


async def test_a_skill_is_asked_for(world: World) -> None:
    """By its name, where a rule says so; `always` is for this one."""
    put_skill(world, "winds")
    world.configure(permission={"skill": "ask"})
    async with world.at_work() as scene:
        running = await begin(scene, "skill winds")
        asked = await scene.heard.asked(PermissionAsked)
        assert (asked.permission, asked.patterns, asked.always) == ("skill", ["winds"], ["winds"])
        await scene.engine.asks.reply_permission(asked.id, "reject")
        assert "rejected" in error_of(tools_of(await running)[0])


async def test_a_skill_that_there_is_not(world: World) -> None:
    """The error names those that there are."""
    put_skill(world, "winds")
    async with world.at_work() as scene:
        await scene.prompt("skill wind")
        (call,) = [part for each in await scene.answers() for part in tools_of(each)]
        assert error_of(call) == ("There is no skill 'wind'. Did you mean winds? There are: winds.")


async def test_skills_that_are_denied(world: World) -> None:
    """The model is neither told of them nor given them; without any it has no such tool."""
    put_skill(world, "tides")
    put_skill(world, "winds")
    reads = answer(*(Call.of("skill", name=name) for name in ("tides", "winds")))
    async with ModelServer([reads, answer(Text.of("done")), answer(Text.of("done"))]) as server:
        world.use(server, permission={"skill": {"winds": "deny"}})
        async with world.at_work() as scene:
            await scene.prompt("go")
            world.use(server, permission={"skill": "deny"})
            await scene.prompt("go")
    first, second, third = server.requests
    assert "about tides" in first.system
    assert "about winds" not in first.system
    told = json.dumps(second.body)
    assert "Blow, tides." in told
    assert "Blow, winds." not in told
    assert "skill" in first.tools
    assert "skill" not in third.tools
    assert "available_skills" not in third.system
