"""The loop: what each prompt may choose, how steps follow each other, and where they end."""

import asyncio
import json
import subprocess

import pytest

from kedge.agent import AgentSettings, Call, Output, tool
from kedge.domain.errors import RootBusy
from kedge.domain.events import PermissionAsked, QuestionAsked
from kedge.domain.file_states import Present
from kedge.domain.messages import MessageModel, UserMessage
from kedge.domain.parts import StepStartPart, ToolCompleted
from kedge.domain.wire_errors import aborted
from kedge.snapshot import snapshots
from kedge.snapshot.aio import AsyncOrdered
from kedge.snapshot.values import Snapshot
from tests.agent.world import (
    QUICK,
    Scene,
    World,
    check_closed,
    error_of,
    info_of,
    text_of,
    tools_of,
)
from tests.support.model_server import Call as Called
from tests.support.model_server import (
    ModelServer,
    Reply,
    Request,
    Text,
    Thinking,
    Usage,
    Wait,
    answer,
)
from tests.support.timeouts import PATIENCE

FINE = answer(Text.of("fine"))
PROTOCOLS = ["openai-compatible", "anthropic"]
WIRES = [*PROTOCOLS, "openai", "google"]


def looking(request: Request) -> Reply:
    """A model that never stops to look at something new."""
    called = Called.of("glob", pattern=f"*.{request.rounds}")
    return answer(called) if request.may_call else answer(Text.of("so far"))


@pytest.mark.parametrize("npm", PROTOCOLS)
async def test_one_message_for_each_step(world: World, npm: str) -> None:
    """Thoughts, words and calls stand in the order in which they came, with what they cost."""
    usage = Usage(input=100, output=10)
    script = [
        answer(
            Thinking.of("hm ", "hm", signature="s"), Text.of("I look."),
            Called.of("read", filePath="a.txt"), Called.of("glob", pattern="*.txt"), usage=usage,
        ),
        answer(Text.of("Two files."), usage=usage),
    ]  # fmt: skip
    async with ModelServer(script) as server:
        world.use(server, npm=npm)
        async with world.at_work() as scene:
            await scene.prompt("go")
            first, last = await scene.answers()
            kinds = [type(part).__name__ for part in first.parts]
            assert kinds == [
                *("StepStartPart", "ReasoningPart", "TextPart"),
                *("ToolPart", "ToolPart", "StepFinishPart"),
            ]
            assert [info_of(each).finish for each in (first, last)] == ["tool-calls", "stop"]
            assert [part.id for part in first.parts] == sorted(part.id for part in first.parts)
            tokens = scene.session.info.tokens
            assert (tokens.input, tokens.output) == (200, 20)
            await check_closed(scene)


@pytest.fixture
def large(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worktree that counts as large."""
    subprocess.run(["git", "add", "--all"], cwd=world.folder, check=True)
    monkeypatch.setattr(snapshots, "LARGE_INDEX", 1)


@pytest.mark.usefixtures("large")
async def test_the_model_is_asked_while_the_first_snapshot_is_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a large worktree that takes a while. What the model says is heard only afterwards, and the
    step began with the files as they were before anything was called."""
    track = AsyncOrdered.track
    told_before: list[str] = []

    async def late(ordered: AsyncOrdered, *, session: str | None = None) -> Snapshot:
        if not told_before:
            async with asyncio.timeout(PATIENCE):
                await server.reached()
            told_before.extend(event.type for event in scene.heard.events)
            server.release()
        return await track(ordered, session=session)

    monkeypatch.setattr(AsyncOrdered, "track", late)
    writes = Called.of("bash", command="echo two >a.txt", description="w")
    async with ModelServer([answer(Wait(), writes), FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            assert text_of(await scene.prompt("go")) == "fine"
            first, _ = await scene.answers()
            start = first.parts[0]
            assert isinstance(start, StepStartPart)
            assert start.snapshot is not None
            taken = await scene.session.snapshots()
            found = await taken.state(start.snapshot, b"a.txt")
            assert isinstance(found, Present)
            assert await taken.read(found.blob) == b"one\n"
            assert "message.part.updated" not in told_before[told_before.index("session.status") :]
            await check_closed(scene)


@pytest.mark.usefixtures("large")
async def test_a_worktree_that_another_process_has_ends_the_step(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the answer is heard then, though the model was asked."""

    async def busy(ordered: AsyncOrdered, *, session: str | None = None) -> Snapshot:
        raise RootBusy("another process has it")

    monkeypatch.setattr(AsyncOrdered, "track", busy)
    async with ModelServer([answer(Text.of("never heard"))]) as server:
        world.use(server)
        async with world.at_work() as scene:
            with pytest.raises(RootBusy):
                await scene.prompt("go")
            (only,) = await scene.answers()
            assert [type(part).__name__ for part in only.parts] == ["StepStartPart"]
            assert "another process has it" in str(info_of(only).error)
            await check_closed(scene)


@pytest.mark.usefixtures("large")
async def test_an_abort_does_not_wait_for_the_first_snapshot(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the snapshot nor the request is waited for."""

    async def never(ordered: AsyncOrdered, *, session: str | None = None) -> Snapshot:
        await server.reached()
        aborting.append(asyncio.create_task(scene.session.abort()))
        await asyncio.Event().wait()
        raise AssertionError

    aborting: list[asyncio.Task[object]] = []
    monkeypatch.setattr(AsyncOrdered, "track", never)
    async with ModelServer([answer(Wait(), Text.of("late"))]) as server:
        world.use(server)
        async with world.at_work() as scene, asyncio.timeout(PATIENCE):
            ended = await scene.prompt("go")
            assert (ended.parts, info_of(ended).error) == ([], aborted("Aborted"))
            await asyncio.gather(*aborting)
            await server.requests[0].ended.wait()
            assert server.requests[0].dropped
            await check_closed(scene)


async def test_calls_of_one_step_run_at_once(world: World) -> None:
    """Each can wait for what another one does."""
    waits = Called.of("bash", command="until [ -e go ]; do sleep 0.01; done", description="w")
    goes = Called.of("bash", command="touch go", description="g")
    async with ModelServer([answer(waits, goes), FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            assert text_of(await scene.prompt("go")) == "fine"
            (first, _) = await scene.answers()
            assert all(isinstance(part.state, ToolCompleted) for part in tools_of(first))


async def test_what_a_prompt_says_to_the_system_holds_for_it_alone(world: World) -> None:
    """The next one is asked without it."""
    async with ModelServer([FINE, FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            await scene.prompt("go", system="Answer in Latin.")
            await scene.prompt("go")
            first, second = server.requests
            assert "Answer in Latin." in first.system
            assert "Answer in Latin." not in second.system


@pytest.mark.parametrize(
    ("switches", "offered"),
    [
        (
            {"write": False},
            {"read", "glob", "grep", "bash", "task", "todowrite", "question", "webfetch"},
        ),
        ({"*": False, "read": True}, {"read"}),
        ({"*": False}, set()),
        ({"no-such-tool": True}, None),
    ],
)
async def test_a_prompt_may_leave_tools_out(
    world: World, switches: dict[str, bool], offered: set[str] | None
) -> None:
    """The model is not told of them; the next prompt has them all again."""
    async with ModelServer([FINE, FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            await scene.prompt("go", tools=switches)
            await scene.prompt("go")
            first, second = (set(each.tools) for each in server.requests)
            assert first == (second if offered is None else offered)
            assert {"write", "edit", "bash", "read"} <= second


async def test_a_tool_that_was_left_out_cannot_be_called(world: World) -> None:
    """A model that calls it all the same hears that it is not there."""
    called = Called.of("write", filePath="a.txt", content="two")
    async with ModelServer([answer(called), FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            await scene.prompt("go", tools={"write": False})
            (first, _) = await scene.answers()
            assert "no tool 'write'" in error_of(tools_of(first)[0])
            assert world.read("a.txt") == "one\n"


@pytest.mark.parametrize("name", ["write", "edit", "apply_patch"])
async def test_plan_changes_nothing(world: World, name: str) -> None:
    """Its requests do not offer what writes, and a call of it is refused."""
    called = Called.of(name, filePath="a.txt", content="two", oldString="one", newString="two")
    async with ModelServer([answer(called), FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            found = await scene.prompt("go", agent="plan")
            assert info_of(found).agent == "plan"
            assert not {"write", "edit", "apply_patch"} & set(server.requests[0].tools)
            assert "plan mode" in server.requests[0].system
            (first, _) = await scene.answers()
            assert error_of(tools_of(first)[0])
            assert world.read("a.txt") == "one\n"


async def test_plan_asks_before_it_runs_commands(world: World) -> None:
    """A shell can write files as well as an editor can; what surely does so is refused."""
    async with world.at_work() as scene:
        await scene.prompt("bash echo two > a.txt", agent="plan")
        assert await scene.engine.asks.permissions() == []
        assert world.read("a.txt") == "one\n"
        caller = asyncio.create_task(scene.prompt("bash ./write-it two", agent="plan"))
        asked = await scene.heard.asked(PermissionAsked)
        assert asked.permission == "bash"
        await scene.engine.asks.reply_permission(asked.id, "reject")
        await caller
        await check_closed(scene)


async def test_plan_asks_nobody_about_a_command_that_surely_writes(world: World) -> None:
    """It is an edit, which is denied."""
    async with world.at_work() as scene:
        await scene.prompt("bash echo two > a.txt", agent="plan")
        assert world.read("a.txt") == "one\n"
        first, *_ = await scene.answers()
        assert error_of(tools_of(first)[0])
        assert scene.heard.of(PermissionAsked) == []
        await check_closed(scene)


async def test_a_prompt_chooses_its_model(world: World) -> None:
    """The session stays with it until another one is chosen."""
    async with ModelServer([FINE, FINE, FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            await scene.prompt("go")
            chosen = MessageModel(providerID="scripted", modelID="other")
            assert info_of(await scene.prompt("go", model=chosen)).modelID == "other"
            assert info_of(await scene.prompt("go")).modelID == "other"
            asked = [each.body["model"] for each in server.requests]
            assert asked == ["spoken", "other", "other"]


async def test_a_variant_changes_what_is_sent(world: World) -> None:
    """Its settings are those of the configuration, and the messages name it."""
    async with ModelServer([FINE, FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            found = await scene.prompt("go", variant="high", model="scripted/spoken")
            await scene.prompt("go", model="scripted/spoken")
            assert info_of(found).variant == "high"
            first, second = server.requests
            assert first.body.get("temperature") == 0.25
            assert "temperature" not in second.body


async def test_the_configuration_of_an_agent_counts(world: World) -> None:
    """Its model, its words and its temperature."""
    agent = {"model": "scripted/other", "prompt": "You are a pirate.", "temperature": 0.5}
    async with ModelServer([FINE]) as server:
        world.use(server, agent={"build": agent})
        async with world.at_work() as scene:
            await scene.prompt("go")
            (request,) = server.requests
            assert request.body["model"] == "other"
            assert "You are a pirate." in request.system
            assert request.body["temperature"] == 0.5


async def test_a_client_may_name_the_message(world: World) -> None:
    """The prompt has the id that it was given."""
    async with world.at_work() as scene:
        id = scene.engine.ids.message()
        found = await scene.prompt("say hi", message_id=id)
        assert info_of(found).parentID == id
        assert isinstance((await scene.session.message(id)).info, UserMessage)


@pytest.mark.parametrize("npm", WIRES)
async def test_the_last_step_calls_no_tools(world: World, npm: str) -> None:
    """The model is told so after all else, and what it was told before is as it was: the tools that
    it called are still there."""
    async with ModelServer(looking) as server:
        world.use(server, npm=npm)
        async with world.at_work(settings=AgentSettings(steps=3)) as scene:
            assert text_of(await scene.prompt("go")) == "so far"
            assert [each.may_call for each in server.requests] == [True, True, False]
            before, last = server.requests[1:]
            assert (last.tools, last.system) == (before.tools, before.system)
            assert "last step" in last.prompt
            assert "last step" not in before.prompt
            await check_closed(scene)
            await scene.prompt("again")
            assert "last step" not in json.dumps(server.requests[3].body)


@pytest.mark.parametrize("npm", WIRES)
async def test_a_call_in_the_last_step_is_not_done(world: World, npm: str) -> None:
    """A model that calls all the same hears of it with the next prompt, and the turn ends."""
    called = Called.of("write", filePath="a.txt", content="two")
    async with ModelServer([answer(called), FINE]) as server:
        world.use(server, npm=npm)
        async with world.at_work(settings=AgentSettings(steps=1)) as scene:
            found = await scene.prompt("go")
            assert "last step" in error_of(tools_of(found)[0])
            assert len(server.requests) == 1
            assert world.read("a.txt") == "one\n"
            await check_closed(scene)
            assert text_of(await scene.prompt("and?")) == "fine"


async def test_the_last_step_of_the_offline_model(world: World) -> None:
    """It obeys as well."""
    async with world.at_work(settings=AgentSettings(steps=1)) as scene:
        await scene.prompt("write a.txt two")
        assert world.read("a.txt") == "one\n"


async def test_an_agent_may_have_a_step_limit_of_its_own(world: World) -> None:
    """It counts and not the general one."""
    async with ModelServer(looking) as server:
        world.use(server, agent={"build": {"steps": 2}})
        async with world.at_work() as scene:
            await scene.prompt("go")
            assert len(server.requests) == 2


def _stubborn(request: Request) -> Reply:
    called = Called.of("read", filePath="a.txt")
    return answer(called) if request.rounds < 5 else FINE


async def test_a_model_that_goes_in_circles_needs_permission(world: World) -> None:
    """The third call of the same kind asks; allowed for good, it goes on."""
    async with ModelServer(_stubborn) as server:
        world.use(server)
        async with world.at_work() as scene:
            caller = asyncio.create_task(scene.prompt("go"))
            asked = await scene.heard.asked(PermissionAsked)
            assert (asked.permission, asked.patterns) == ("doom_loop", ["read"])
            assert len(server.requests) == 3
            await scene.engine.asks.reply_permission(asked.id, "always")
            assert text_of(await caller) == "fine"
            assert len(scene.heard.of(PermissionAsked)) == 1


async def test_a_model_that_goes_in_circles_can_be_stopped(world: World) -> None:
    """Rejected, the turn ends there."""
    async with ModelServer(_stubborn) as server:
        world.use(server)
        async with world.at_work() as scene:
            caller = asyncio.create_task(scene.prompt("go"))
            asked = await scene.heard.asked(PermissionAsked)
            await scene.engine.asks.reply_permission(asked.id, "reject")
            found = await caller
            assert error_of(tools_of(found)[0])
            assert len(server.requests) == 3
            await check_closed(scene)


async def test_calls_that_differ_are_no_circle(world: World) -> None:
    """However often a tool is called."""
    async with ModelServer(looking) as server:
        world.use(server)
        async with world.at_work(settings=AgentSettings(steps=8)) as scene:
            await scene.prompt("go")
            assert scene.heard.of(PermissionAsked) == []


async def _asked(scene: Scene, prompt: str) -> tuple[asyncio.Task[object], PermissionAsked]:
    caller: asyncio.Task[object] = asyncio.create_task(scene.prompt(prompt))
    return caller, await scene.heard.asked(PermissionAsked)


async def test_a_rejected_permission_ends_the_turn(world: World) -> None:
    """Nothing was done, and the model is not asked again."""
    world.configure(permission={"edit": "ask"})
    async with world.at_work() as scene:
        _, asked = caller = await _asked(scene, "write a.txt two\nsay never")
        await scene.engine.asks.reply_permission(asked.id, "reject")
        await caller[0]
        (found,) = await scene.answers()
        assert "rejected" in error_of(tools_of(found)[0])
        assert world.read("a.txt") == "one\n"
        await check_closed(scene)


async def test_a_rejection_with_a_reason_is_heard_by_the_model(world: World) -> None:
    """The turn goes on with what the person wants instead."""
    called = Called.of("write", filePath="a.txt", content="two")
    async with ModelServer([answer(called), FINE]) as server:
        world.use(server, permission={"edit": "ask"})
        async with world.at_work() as scene:
            caller, asked = await _asked(scene, "go")
            await scene.engine.asks.reply_permission(asked.id, "reject", message="Ask Ada first.")
            await caller
            assert "Ask Ada first." in str(server.requests[1].messages[-1])


async def test_a_question_is_answered(world: World) -> None:
    """The model hears what was chosen."""
    async with world.at_work() as scene:
        caller = asyncio.create_task(scene.prompt("ask Which? | red | blue\nshow"))
        asked = await scene.heard.asked(QuestionAsked)
        await scene.engine.asks.reply_question(asked.id, [["blue"]])
        assert "blue" in text_of(await caller)


async def test_a_tool_that_raises_is_no_end(world: World) -> None:
    """The model hears what went wrong, and the turn goes on."""

    @tool("explode", description="Raises.")
    async def explode(call: Call) -> Output:
        raise RuntimeError("boom")

    async with ModelServer([answer(Called.of("explode")), FINE]) as server:
        world.use(server)
        async with world.at_work(tools=[explode], settings=QUICK) as scene:
            assert text_of(await scene.prompt("go")) == "fine"
            (first, _) = await scene.answers()
            assert "boom" in error_of(tools_of(first)[0])
            assert "boom" in str(server.requests[1].messages[-1])
            await check_closed(scene)
