"""Subtasks: what an agent gives to another one, and what it gets back."""

import asyncio
import json
from typing import Any

import pytest

from kedge.domain.errors import AgentNotFound
from kedge.domain.events import (
    PartUpdated,
    PermissionAsked,
    SessionCreated,
    SessionErrored,
    SessionIdle,
)
from kedge.domain.messages import AssistantMessage
from kedge.domain.parts import SubtaskPart, ToolCompleted, ToolPart
from kedge.domain.permissions import PermissionRule
from kedge.domain.sessions import Idle
from tests.agent.tasks import (
    begin,
    calls,
    child_of,
    children,
    info_of,
    metadata_of,
    output_of,
    result,
)
from tests.agent.world import World, check_closed, error_of, text_of, tools_of
from tests.agent.world import info_of as answer_of
from tests.support.model_server import Call, ModelServer, Text, answer

HANGS = "slow 2 300s say Half a word"


async def test_a_task_is_a_session_of_its_own(world: World) -> None:
    """It has the caller's directory, a title that clients know it by, and rules that keep it from
    giving tasks; the call names it, and what it used."""
    async with world.at_work() as scene:
        said = await scene.prompt(
            "task general <<END\nwrite new.txt hi\nsay It is written.\nEND\nshow"
        )
        (child,) = await children(scene)
        assert text_of(said) == result(child.id, "It is written.")
        assert child.info.title == "Write new.txt hi (@general subagent)"
        assert child.info.parentID == scene.session.id
        assert child.info.directory == scene.session.info.directory
        assert child.info.agent == "general"
        assert child.info.permission == [
            PermissionRule(permission="task", pattern="*", action="deny")
        ]
        (call,) = await calls(scene)
        assert isinstance(call.state, ToolCompleted)
        assert call.state.title == "Write new.txt hi"
        assert {
            name: metadata_of(call)[name] for name in metadata_of(call) if name != "tokens"
        } == {
            "parentSessionId": scene.session.id,
            "sessionId": child.id,
            "model": {"modelID": "offline", "providerID": "kedge"},
            "truncated": False,
            "cost": 0,
        }
        assert world.read("new.txt") == "hi\n"
        await check_closed(scene, child)
        await check_closed(scene)


async def test_a_call_is_told_step_by_step(world: World) -> None:
    """The call, the session, the call with the session's name, the whole turn below, the result."""
    async with world.at_work() as scene:
        await scene.prompt("task general say hi")
        await scene.heard.caught_up()
        told = []
        for event in scene.heard.events:
            match event.properties:
                case PartUpdated(part=ToolPart(tool="task", state=state)):
                    shown = (getattr(state, "metadata", None) or {}).keys() & {"sessionId"}
                    told.append(f"{type(state).__name__} {len(shown)}")
                case SessionCreated() | SessionIdle():
                    told.append(event.type)
        assert told == [
            "ToolPending 0",
            "ToolRunning 0",
            "session.created",
            "ToolRunning 1",
            "session.idle",
            "ToolCompleted 1",
            "session.idle",
        ]


async def test_the_tool_lists_the_agents_that_it_may_call(world: World) -> None:
    """Not those that answer people, nor those that the caller's rules deny; what works in the
    background is offered only where it is allowed."""
    said: dict[str, Any] = {
        "agent": {"mine": {"mode": "all", "description": "Mine."}},
        "permission": {"task": {"explore": "deny"}},
    }
    async with ModelServer([answer(Text.of("hi"))]) as server:
        world.use(server, **said)
        async with world.at_work() as scene:
            await scene.prompt("hello")
        (tool,) = [
            each["function"]
            for each in server.requests[0].body["tools"]
            if each["function"]["name"] == "task"
        ]
        listed = tool["description"].partition("The agents:\n")[2].splitlines()
        assert [line.partition(":")[0] for line in listed] == ["- general", "- mine"]
        assert "background" not in tool["parameters"]["properties"]


async def test_the_model_is_the_callers_or_the_agents_own(world: World) -> None:
    """With the variant only where the model is the caller's."""
    task = Call.of("task", description="d", prompt="p", subagent_type="general")
    own = Call.of("task", description="d", prompt="p", subagent_type="mine")
    async with ModelServer(
        [
            answer(task),
            answer(Text.of("a")),
            answer(own),
            answer(Text.of("b")),
            answer(Text.of("c")),
        ]
    ) as server:
        world.use(server, agent={"mine": {"model": "scripted/other"}})
        async with world.at_work() as scene:
            await scene.prompt("go", variant="high")
            assert [request.body["model"] for request in server.requests] == [
                "spoken",
                "spoken",
                "spoken",
                "other",
                "spoken",
            ]
            first, second = await children(scene)
            assert first.info.model is not None
            assert (first.info.model.id, first.info.model.variant) == ("spoken", "high")
            assert second.info.model is not None
            assert (second.info.model.id, second.info.model.variant) == ("other", None)
            assert [each.info.title for each in (first, second)] == [
                "d (@general subagent)",
                "d (@mine subagent)",
            ]


async def test_several_at_once(world: World) -> None:
    """The tasks of one step run at the same time: each waits for what another does."""
    async with world.at_work() as scene:
        wait = "until [ -e {0} ]; do sleep 0.02; done"
        said = await scene.prompt(
            f"task general <<A\nwrite one.txt 1\nbash {wait.format('two.txt')}\nsay A\nA\n"
            f"and task general <<B\nwrite two.txt 2\nbash {wait.format('one.txt')}\nsay B\nB\nshow"
        )
        # Both begin at once, so that either may be the older one.
        one, two = (each.id for each in await children(scene))
        assert set(text_of(said).split("\n\n")) in (
            {result(one, "A"), result(two, "B")},
            {result(two, "A"), result(one, "B")},
        )
        await check_closed(scene)


async def test_twenty_tasks_in_one_step(world: World) -> None:
    """Each has its answer, and its file is its own."""
    async with world.at_work() as scene:
        tasks = "\nand ".join(f"task general write n{n}.txt {n}" for n in range(20))
        await scene.prompt(tasks)
        found = await calls(scene)
        assert len([output_of(each) for each in found]) == 20
        assert {metadata_of(each)["sessionId"] for each in found} == {
            each.id for each in await children(scene)
        }
        assert [world.read(f"n{n}.txt") for n in range(20)] == [f"{n}\n" for n in range(20)]


async def test_a_task_goes_on_with_what_it_knows(world: World) -> None:
    """The same session, with another prompt; only for the caller that began it."""
    async with world.at_work() as scene:
        await scene.prompt("task general write new.txt hi\ntask general again edit new.txt hi ho")
        (child,) = await children(scene)
        assert len(await scene.messages(child)) == 6
        assert world.read("new.txt") == "ho\n"
        other = await scene.engine.sessions.create("Other")
        given = {"description": "d", "prompt": "say x", "subagent_type": "general"}
        await scene.prompt(f"call task {json.dumps({**given, 'task_id': child.id})}", other)
        assert "There is no task" in error_of((await calls(scene, other))[0])
        await scene.prompt(f"call task {json.dumps({**given, 'task_id': 'ses_no'})}")
        assert "There is no task ses_no" in error_of((await calls(scene))[-1])
        assert await children(scene, other) == []


@pytest.mark.parametrize(
    ("commands", "why"),
    [
        (
            "fail request",
            "The offline model plays a provider that refuses the request (fail request).",
        ),
        ("read missing.txt\nfinish stop", ""),
    ],
)
async def test_the_error_of_a_task_is_the_calls(world: World, commands: str, why: str) -> None:
    """The caller is told, and goes on."""
    async with world.at_work() as scene:
        said = await scene.prompt(f"try task general <<END\n{commands}\nEND\nsay I go on.")
        (child,) = await children(scene)
        (call,) = await calls(scene)
        if why:
            assert error_of(call) == f"Subagent failed (task_id: {child.id}): {why}"
            assert metadata_of(call)["sessionId"] == child.id
            assert "tokens" in metadata_of(call)
        else:
            # It went on after a call that failed: only what its last message says counts.
            assert isinstance(call.state, ToolCompleted)
        assert text_of(said) == "I go on."


async def test_a_rejected_permission_ends_the_task(world: World) -> None:
    """The request names the task's session, and the caller goes on."""
    world.configure(permission={"edit": "ask"})
    async with world.at_work() as scene:
        running = await begin(scene, "try task general write new.txt hi\nsay I go on.")
        asked = await scene.heard.asked(PermissionAsked)
        (child,) = await children(scene)
        assert asked.sessionID == child.id
        await scene.engine.asks.reply_permission(asked.id, "reject")
        assert text_of(await running) == "I go on."
        (call,) = await calls(scene)
        assert error_of(call) == (
            f"Subagent failed (task_id: {child.id}):"
            " The user rejected permission to use this specific tool call."
        )
        await check_closed(scene)


async def test_tasks_need_a_permission(world: World) -> None:
    """One that asks for it names the agent; a person who names the agent has given it."""
    world.configure(permission={"task": "ask"})
    async with world.at_work() as scene:
        running = await begin(scene, "task general say hi")
        asked = await scene.heard.asked(PermissionAsked)
        assert (asked.permission, asked.patterns, asked.always) == ("task", ["general"], ["*"])
        assert asked.metadata == {"description": "Say hi", "subagent_type": "general"}
        await scene.engine.asks.reply_permission(asked.id, "reject")
        await running
        assert await children(scene) == []
        mention = [
            {"type": "text", "text": "task general say hi"},
            {"type": "agent", "name": "general"},
        ]
        await scene.prompt(mention)
        assert len(await children(scene)) == 1
        asking = asyncio.create_task(
            scene.prompt([*mention[:1], {"type": "agent", "name": "explore"}])
        )
        await scene.heard.until(
            lambda each: isinstance(each, PermissionAsked) and each.id != asked.id
        )
        await scene.agent.abort(scene.session)
        await asking
        assert len(await children(scene)) == 1


async def test_what_a_session_may_not_do_its_tasks_may_not_either(world: World) -> None:
    """Denials of the session and of the prompt hold below; what it may do does not count there."""
    async with world.at_work() as scene:
        rules = [
            PermissionRule(permission="bash", pattern="*", action="deny"),
            PermissionRule(permission="edit", pattern="*", action="allow"),
            PermissionRule(permission="external_directory", pattern="/x/*", action="allow"),
        ]
        await scene.session.update(permission=rules)
        await scene.prompt("task general bash touch new.txt", tools={"write": False})
        (child,) = await children(scene)
        task = PermissionRule(permission="task", pattern="*", action="deny")
        assert child.info.permission == [rules[0], rules[2], task]
        asked = (await scene.messages(child))[0].info
        assert getattr(asked, "tools", None) == {"write": False}
        assert not (world.folder / "new.txt").exists()


async def test_tools_of_agents_that_answer_people(world: World) -> None:
    """The configuration keeps some tools from all tasks."""
    world.configure(experimental={"primary_tools": ["write"]})
    async with world.at_work() as scene:
        await scene.prompt("task general write new.txt hi\nwrite own.txt hi")
        (child,) = await children(scene)
        denied = [each.permission for each in child.info.permission or ()]
        assert denied == ["task", "write"]


async def test_depth(world: World) -> None:
    """A task may give tasks only as deep as is configured, and where its rules say so."""
    world.configure(permission={"task": "allow"})
    nested = "task general <<A\ntry task general <<B\nwrite deep.txt hi\nB\nshow\nA\nshow"
    async with world.at_work() as scene:
        await scene.prompt(nested)
        (child,) = await children(scene)
        (call,) = await calls(scene, child)
        assert error_of(call) == (
            'Subagent depth limit reached (1). Increase "subagent_depth" to allow nested subagents.'
        )
        world.configure(permission={"task": "allow"}, subagent_depth=2)
        await scene.prompt(nested)
        _, second = await children(scene)
        assert len(await children(scene, second)) == 1
        assert world.read("deep.txt") == "hi\n"
        world.configure(subagent_depth=0)
        await scene.prompt("task general say hi")
        assert "(0)" in error_of((await calls(scene))[-1])


async def test_unknown_agents_and_agents_for_people(world: World) -> None:
    """The former is an error that names others, the latter works."""
    async with world.at_work() as scene:
        await scene.prompt("try task nobody say hi\ntask build say hi")
        wrong, right = await calls(scene)
        assert error_of(wrong).startswith("Unknown agent type: nobody is not a valid agent type")
        assert "general" in error_of(wrong)
        assert "hi" in output_of(right)
        assert [each.info.agent for each in await children(scene)] == ["build"]


async def test_a_file_that_a_task_names_is_attached(world: World) -> None:
    """As in a prompt of a person's."""
    async with world.at_work() as scene:
        await scene.prompt("task general say Look at @a.txt")
        (child,) = await children(scene)
        prompt = (await scene.messages(child))[0]
        assert [part.filename for part in prompt.parts if hasattr(part, "filename")] == ["a.txt"]


async def test_a_directory_that_is_gone(world: World) -> None:
    """The call says so."""
    async with world.at_work() as scene:
        (world.folder / "sub").mkdir()
        session = await scene.engine.sessions.create("Sub", directory=world.folder / "sub")
        await scene.prompt("bash rmdir ../sub\ntry task general say hi\nsay I go on.", session)
        (call,) = await calls(scene, session)
        assert "sub" in error_of(call)
        assert await children(scene, session) == []


async def test_an_abort_stops_all(world: World) -> None:
    """The calls end as aborted ones, and each task has its own error and its own idle."""
    async with world.at_work() as scene:
        running = await begin(scene, f"task general {HANGS}\nand task general {HANGS}")
        both = [await child_of(scene, n) for n in range(2)]
        assert await scene.agent.abort(scene.session) is True
        await asyncio.gather(running, return_exceptions=True)
        for call in await calls(scene):
            assert error_of(call) == "Tool execution aborted"
            assert metadata_of(call)["interrupted"] is True
            assert metadata_of(call)["sessionId"] in {each.id for each in both}
        for child in both:
            await check_closed(scene, child)
            error = answer_of((await scene.answers(child))[-1]).error
            assert error is not None
            assert error.name == "MessageAbortedError"
        await check_closed(scene)


async def test_an_abort_of_a_task_alone(world: World) -> None:
    """It is an error of the call, and the caller goes on."""
    async with world.at_work() as scene:
        running = await begin(scene, f"try task general {HANGS}\nsay I go on.")
        child = await child_of(scene)
        assert await scene.agent.abort(child) is True
        assert text_of(await running) == "I go on."
        (call,) = await calls(scene)
        assert error_of(call) == f"Subagent failed (task_id: {child.id}): Aborted"


async def test_a_task_that_is_deleted(world: World) -> None:
    """The caller goes on without it."""
    async with world.at_work() as scene:
        running = await begin(scene, f"try task general {HANGS}\nsay I go on.")
        child = await child_of(scene)
        await child.delete()
        assert text_of(await running) == "I go on."
        (call,) = await calls(scene)
        assert error_of(call).startswith(f"Subagent failed (task_id: {child.id}): ")
        assert await children(scene) == []


async def test_a_caller_that_is_deleted(world: World) -> None:
    """Nothing runs on."""
    async with world.at_work() as scene:
        running = await begin(scene, f"task general {HANGS}")
        child = await child_of(scene)
        await scene.session.delete()
        await asyncio.gather(running, return_exceptions=True)
        assert await scene.engine.statuses() == {}
        await scene.engine.sessions.restore(scene.session.id)
        assert isinstance(await child.status(), Idle)


async def test_an_agent_that_is_closed_leaves_nothing(world: World) -> None:
    """Neither the caller nor its task runs on."""
    async with world.open() as engine:
        from kedge.agent import Agent

        async with Agent(engine, environ=world.environ) as agent:
            session = await engine.sessions.create("Given")
            async with engine.events.subscribe() as events:
                await agent.submit(session, f"task general {HANGS}")
                async for event in events:
                    if event.type == "message.part.delta":
                        break
        assert await engine.statuses() == {}


async def test_what_tasks_use_is_shown_above(world: World) -> None:
    """The call has its share, the session the sum of all below; its own numbers stay its own."""
    world.configure(permission={"task": "allow"}, subagent_depth=2)
    async with world.at_work() as scene:
        await scene.prompt(
            "task general <<A\ntask general say deep\nA\ntask general again say more"
        )
        (child,) = await children(scene)
        (below,) = await children(scene, child)
        top, middle, bottom = [await info_of(each) for each in (scene.session, child, below)]
        assert bottom.subtasks is None
        assert middle.subtasks is not None
        assert middle.subtasks.tokens == bottom.tokens
        assert top.subtasks is not None
        assert top.subtasks.tokens.input == middle.tokens.input + bottom.tokens.input > 0
        shares = [metadata_of(call)["tokens"]["input"] for call in await calls(scene)]
        assert sum(shares) == top.subtasks.tokens.input
        finished = sum(answer_of(each).tokens.input for each in await scene.answers())
        assert top.tokens.input == finished


async def test_subtask_parts_run_in_order(world: World) -> None:
    """All of them, before the model is asked; each is a message of its own."""
    parts = [
        {
            "type": "subtask",
            "agent": "general",
            "description": "first",
            "prompt": "write new.txt one",
        },
        {
            "type": "subtask",
            "agent": "explore",
            "description": "second",
            "prompt": "read new.txt\nsay Seen.",
        },
    ]
    async with world.at_work() as scene:
        said = await scene.prompt(parts)
        first, second = await calls(scene)
        one, two = await children(scene)
        assert [each.info.title for each in (one, two)] == [
            "first (@general subagent)",
            "second (@explore subagent)",
        ]
        assert "Done: write" in output_of(first)
        assert output_of(second) == result(two.id, "Seen.")
        answers = [answer_of(each) for each in await scene.answers()]
        assert [each.agent for each in answers] == ["general", "explore", "build"]
        assert [each.finish for each in answers] == ["tool-calls", "tool-calls", "stop"]
        assert len({each.parentID for each in answers}) == 1
        assert said.info.id == answers[-1].id
        prompt = (await scene.messages())[0]
        assert [part.description for part in prompt.parts if isinstance(part, SubtaskPart)] == [
            "first",
            "second",
        ]
        await check_closed(scene)


async def test_subtask_parts_of_a_command(world: World) -> None:
    """The model is asked to go on in a prompt of its own; the caller gets the last answer."""
    part = {
        "type": "subtask",
        "agent": "general",
        "description": "d",
        "prompt": "say x",
        "command": "review",
    }
    async with world.at_work() as scene:
        said = await scene.prompt([part])
        _, _, follow, last = await scene.messages()
        assert [each.synthetic for each in follow.parts if hasattr(each, "synthetic")] == [True]
        assert said.info.id == last.info.id
        assert isinstance(last.info, AssistantMessage)
        assert last.info.parentID == follow.info.id
        (call,) = await calls(scene)
        assert isinstance(call.state, ToolCompleted)
        assert call.state.input["command"] == "review"


async def test_subtask_parts_for_an_unknown_agent(world: World) -> None:
    """They are refused, and nothing is stored."""
    async with world.at_work() as scene:
        with pytest.raises(AgentNotFound):
            await scene.prompt(
                [{"type": "subtask", "agent": "nobody", "description": "d", "prompt": "p"}]
            )
        assert await scene.messages() == []
        await scene.heard.caught_up()
        assert len(scene.heard.of(SessionErrored)) == 1


async def test_subtask_parts_need_no_permission(world: World) -> None:
    """A person has asked for them."""
    world.configure(permission={"task": "deny"})
    async with world.at_work() as scene:
        await scene.prompt(
            [{"type": "subtask", "agent": "general", "description": "d", "prompt": "say x"}]
        )
        (call,) = await calls(scene)
        assert "x" in output_of(call)


async def test_no_title_is_made_for_a_task(world: World) -> None:
    """It has that of its description, also when a person prompts it."""
    async with world.at_work(title=None) as scene:
        await scene.prompt(
            [{"type": "subtask", "agent": "general", "description": "d", "prompt": "say x"}]
        )
        (child,) = await children(scene)
        await scene.prompt("say more", child)
        await scene.settled()
        assert (await info_of(child)).title == "d (@general subagent)"
        assert (await info_of(scene.session)).title == "Say x"


async def test_a_description_may_be_anything(world: World) -> None:
    """The title, which lists show, is a line of some length without signs for terminals."""
    async with world.at_work() as scene:
        given = {"description": "\x1b[2J a\nb" + "x" * 100_000, "prompt": "say hi"}
        await scene.prompt(f"call task {json.dumps({**given, 'subagent_type': 'general'})}")
        (child,) = await children(scene)
        assert child.title.endswith("xxx (@general subagent)")
        assert child.title.isprintable()
        assert len(child.title) < 250


async def test_a_prompt_to_a_task_that_runs(world: World) -> None:
    """Two calls for the same task: the second waits for its own answer."""
    async with world.at_work() as scene:
        await scene.prompt("task general say one")
        await scene.prompt("task general again say two\nand task general again say three")
        (child,) = await children(scene)
        said = [tools_of(each) for each in await scene.answers()]
        last = [call for calls_ in said for call in calls_][-2:]
        assert all("two" in output_of(call) or "three" in output_of(call) for call in last)
        assert len(await children(scene)) == 1
        await check_closed(scene, child)
