"""Commands: which there are, what prompt they become, and their shell lines."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kedge.domain.errors import AgentNotFound, CommandNotFound, ModelNotFound, TurnAborted
from kedge.domain.events import CommandExecuted, PermissionAsked, SessionIdle
from kedge.domain.messages import Answer, MessageWithParts, UserMessage
from kedge.domain.parts import FilePart, SubtaskPart, TextPart
from tests.agent.world import Scene, World, check_closed, error_of, text_of, tools_of
from tests.support.timeouts import PATIENCE


@pytest.fixture
async def scene(world: World) -> AsyncIterator[Scene]:
    """A session with the offline model, and a few commands."""
    commands = {
        "hello": {"template": "say hello $ARGUMENTS", "description": "say hello"},
        "see": {"template": "# $2 by $1\nsay see @$1 `@a.txt` @b.txt"},
        "run": {"template": "say <<END\n!`echo made > made.txt; echo out $1`!`cat a.txt`\nEND"},
        "planned": {"template": "say planned", "agent": "plan"},
        "lost": {"template": "say x", "agent": "nobody"},
        "model": {"template": "say x", "model": "no/such"},
        "plan-run": {"template": "say !`echo $1`", "agent": "plan"},
    }
    world.configure(command=commands)
    async with world.at_work() as scene:
        yield scene


async def run(scene: Scene, name: str, arguments: str = "", **options: Any) -> Answer:  # noqa: ANN401 - as Agent.command
    """Run a command, but not for ever."""
    async with asyncio.timeout(PATIENCE):
        return await scene.agent.command(scene.session, name, arguments, **options)


async def prompts(scene: Scene) -> list[MessageWithParts]:
    """The prompts of the session."""
    return [each for each in await scene.messages() if isinstance(each.info, UserMessage)]


async def test_a_command_is_a_prompt(scene: Scene) -> None:
    """Its template with the arguments; when the session is idle, it is told what answered."""
    answer = await run(scene, "hello", "big world")
    assert text_of(answer) == "hello big world"
    (prompt,) = await prompts(scene)
    assert text_of(prompt) == "say hello big world"
    await scene.heard.caught_up()
    (told,) = scene.heard.of(CommandExecuted)
    expected = ("hello", scene.session.id, "big world", answer.info.id)
    assert (told.name, told.sessionID, told.arguments, told.messageID) == expected
    kinds = [type(event.properties) for event in scene.heard.events]
    assert kinds.index(SessionIdle) < kinds.index(CommandExecuted)
    await check_closed(scene)


async def test_files_are_attached(scene: Scene) -> None:
    """Those that the text refers to, and those that the client adds, each once."""
    url = (scene.world.folder / "b.txt").as_uri()
    given = {"type": "file", "url": url, "mime": "text/plain", "filename": "mine"}
    answer = await run(scene, "see", "a.txt notes and more", parts=[given])
    assert text_of(answer) == "see @a.txt `@a.txt` @b.txt"
    (prompt,) = await prompts(scene)
    files = [part.filename for part in prompt.parts if isinstance(part, FilePart)]
    assert files == ["a.txt", "mine"]
    texts = [part.text for part in prompt.parts if isinstance(part, TextPart)]
    assert texts[0].startswith("# notes and more by a.txt")
    assert any("1: one" in text for text in texts)


async def test_files_may_be_refused(scene: Scene) -> None:
    """A server that keeps clients in a folder is asked before a file is read."""

    def refuse(url: str) -> None:
        raise PermissionError(url)

    with pytest.raises(PermissionError, match=r"a\.txt"):
        await run(scene, "see", "a.txt", may_attach=refuse)
    assert await prompts(scene) == []


async def test_lines_run_before_the_prompt(scene: Scene) -> None:
    """As calls of a turn of its own, whose changes can be undone."""
    answer = await run(scene, "run", "'a  b'; echo x")
    first, second = await prompts(scene)
    assert text_of(second) == "say <<END\nout a b\nx\none\n\nEND"
    assert text_of(answer).startswith("out a b\n")
    lines = [part.state.input["command"] for m in await scene.answers() for part in tools_of(m)]
    assert lines == ["echo made > made.txt; echo out a  b ; echo x", "cat a.txt"]
    assert scene.world.read("made.txt") == "made\n"
    receipt = await scene.session.revert(first.info.id)
    assert receipt is not None
    assert not (scene.world.folder / "made.txt").exists()
    await check_closed(scene)


async def test_a_line_is_asked_for_as_it_runs(scene: Scene) -> None:
    """With the argument in it, whatever the argument does to it; and it is asked in the session."""
    scene.world.configure(
        permission={"bash": {"*": "ask", "git *": "allow"}},
        command={"log": {"template": "say !`git log $1`"}},
    )
    running = asyncio.create_task(run(scene, "log", "'; touch pwned'"))
    asked = await scene.heard.asked(PermissionAsked)
    assert asked.sessionID == scene.session.id
    assert asked.tool is not None
    assert "touch pwned" in asked.patterns
    assert asked.metadata["command"] == "git log ; touch pwned"
    await scene.engine.asks.reply_permission(asked.id, "reject")
    answer = await running
    assert "rejected" in error_of(tools_of(answer)[0])
    assert len(await prompts(scene)) == 1
    assert not (scene.world.folder / "pwned").exists()
    await scene.heard.caught_up()
    assert "The command /log was not asked" in scene.errors()[-1]
    assert scene.heard.of(CommandExecuted) == []
    await check_closed(scene)


async def test_a_denied_line_does_not_run(scene: Scene) -> None:
    """Nor does the command go on without it."""
    scene.world.configure(
        permission={"bash": {"touch *": "deny"}},
        command={"bad": {"template": "say !`touch a`!`touch b`"}},
    )
    answer = await run(scene, "bad")
    (call,) = tools_of(answer)
    assert "not permitted" in error_of(call)
    assert not (scene.world.folder / "b").exists()


async def test_plan_asks_for_each_line(scene: Scene) -> None:
    """The rules are those of the agent that the command names."""
    running = asyncio.create_task(run(scene, "plan-run", "hi"))
    asked = await scene.heard.asked(PermissionAsked)
    assert asked.patterns == ["echo hi"]
    assert asked.always == []
    await scene.engine.asks.reply_permission(asked.id, "once")
    assert text_of(await running) == "hi"


async def test_a_waiting_line_can_be_aborted(scene: Scene) -> None:
    """And a running one: the command ends, and its prompt is not asked."""
    scene.world.configure(command={"slow": {"template": "say !`sleep 60`"}})
    running = asyncio.create_task(run(scene, "slow"))
    await scene.works()
    assert await scene.agent.abort(scene.session)
    answer = await running
    assert "bort" in error_of(tools_of(answer)[0]) or answer.info.error is not None
    assert len(await prompts(scene)) == 1
    await check_closed(scene)


async def test_what_a_line_writes_attaches_nothing(scene: Scene) -> None:
    """Neither is it read as a template; and a blank line is not run."""
    scene.world.put("evil.txt", "@a.txt $ARGUMENTS !`touch pwned`")
    scene.world.configure(command={"cat": {"template": "say !`cat evil.txt` !`$2`"}})
    answer = await run(scene, "cat", "x")
    assert text_of(answer) == "@a.txt $ARGUMENTS !`touch pwned`"
    assert not any(isinstance(part, FilePart) for m in await prompts(scene) for part in m.parts)


async def test_who_answers(scene: Scene) -> None:
    """The command's own agent and model, else the caller's; what does not exist is named."""
    answer = await run(scene, "planned", agent="build")
    assert answer.info.agent == "plan"
    answer = await run(scene, "hello", agent="plan", model="kedge/offline")
    assert answer.info.agent == "plan"
    for name, error in (("lost", AgentNotFound), ("model", ModelNotFound)):
        with pytest.raises(error):
            await run(scene, name)
    with pytest.raises(AgentNotFound):
        await run(scene, "hello", agent="nobody")
    with pytest.raises(CommandNotFound, match="did you mean hello"):
        await run(scene, "helo")
    assert len(await prompts(scene)) == 2
    await scene.heard.caught_up()
    assert len(scene.errors()) == 4


async def test_a_command_is_asked_once(scene: Scene) -> None:
    """A client that lost its connection asks again with the same id."""
    id = scene.engine.ids.message()
    first = await run(scene, "run", "x", message_id=id)
    again = await run(scene, "run", "x", message_id=id)
    assert first.info.id == again.info.id
    assert len(await prompts(scene)) == 2


async def test_init_is_remembered(scene: Scene) -> None:
    """Clients do not offer it any more."""
    before = await scene.engine.projects.get(scene.session.info.projectID)
    assert before.time.initialized is None
    answer = await run(scene, "init")
    assert answer.info.error is None
    (prompt,) = await prompts(scene)
    assert "AGENTS.md" in text_of(prompt)
    after = await scene.engine.projects.get(scene.session.info.projectID)
    assert after.time.initialized is not None


async def test_a_subtask_is_one_part(world: World) -> None:
    """For the agent and model of the command; the session's own agent answers the prompt."""
    world.configure(
        command={"look": {"template": "say found $1 @a.txt", "agent": "explore"}},
        agent={"explore": {"model": "kedge/offline"}},
    )
    async with world.at_work() as scene:
        await run(scene, "look", "it")
        prompt, *_ = await prompts(scene)
        (part,) = prompt.parts
        assert isinstance(part, SubtaskPart)
        assert (part.agent, part.command, part.prompt) == ("explore", "look", "say found it @a.txt")
        assert prompt.info.agent == "build"
        (call,) = [call for answer in await scene.answers() for call in tools_of(answer)]
        assert "found it @a.txt" in str(getattr(call.state, "output", call.state))


async def test_without_subtasks_its_agent_answers(world: World) -> None:
    """An agent that was given no tool for tasks works on it itself."""
    world.configure(command={"sub": {"template": "say done", "subtask": True}})
    async with world.at_work(tools=[]) as scene:
        assert text_of(await run(scene, "sub")) == "done"


async def test_a_command_ends_with_its_agent(scene: Scene) -> None:
    """Its caller is told, and is not cancelled."""
    scene.world.configure(command={"slow": {"template": "wait 1h"}})
    running = asyncio.create_task(run(scene, "slow"))
    await scene.heard.until(lambda event: getattr(event, "status", None) is not None)
    await scene.agent.close()
    with pytest.raises(TurnAborted):
        await running
