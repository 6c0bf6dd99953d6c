"""The agent as a program embeds it: prompts, commands of one's own, and leaving in the middle."""

import asyncio
import gc
import os
from typing import Any

import pytest

from kedge.agent import Agent, AgentSettings, Call, Output, tool
from kedge.domain.errors import AgentClosed, InvalidInput, SessionBusy, TurnAborted
from kedge.domain.events import PartUpdated
from kedge.domain.messages import UserMessage
from kedge.domain.parts import ToolCompleted, ToolPart, ToolRunning
from kedge.domain.sessions import Idle
from tests.agent.world import World, check_closed, error_of, info_of, text_of, tools_of
from tests.support.model_server import Call as Called
from tests.support.model_server import ModelServer, Text, Wait, answer
from tests.support.timeouts import PATIENCE


async def test_a_prompt_is_answered(world: World) -> None:
    """The last message of the answer comes back, and all of it is stored."""
    async with world.at_work() as scene:
        found = await scene.prompt("write new.txt Hello\nsay Done with it.")
        assert text_of(found) == "Done with it."
        assert info_of(found).finish == "stop"
        assert world.read("new.txt") == "Hello\n"
        asked, first, last = await scene.messages()
        assert [part.tool for part in tools_of(first)] == ["write"]
        assert last.info.id == found.info.id
        assert {info_of(first).parentID, info_of(last).parentID} == {asked.info.id}
        await check_closed(scene)


async def test_what_comes_back_is_typed(world: World) -> None:
    """An answer has the prompt that it answers, a prompt that is only stored has none: a type
    checker knows which of them it is."""
    async with world.at_work() as scene:
        found = await scene.agent.prompt(scene.session, "say Done.")
        stored = await scene.agent.prompt(scene.session, "A note.", no_reply=True)
        shown = await scene.agent.shell(scene.session, "true")
        asked = [each.info.id for each in await scene.messages()]
        assert [found.info.parentID, stored.info.id, shown.info.parentID] == [asked[0], *asked[2:4]]


async def test_without_configuration_the_offline_model_answers(world: World) -> None:
    """A fresh installation works, and says how to get a real model."""
    async with world.at_work() as scene:
        found = await scene.prompt("hello")
        assert "ANTHROPIC_API_KEY" in text_of(found)
        assert (info_of(found).providerID, info_of(found).modelID) == ("kedge", "offline")


async def test_submit_returns_when_the_prompt_is_stored(world: World) -> None:
    """The answer comes without anybody waiting for it."""
    async with ModelServer([answer(Text.of("a "), Wait(), Text.of("b"))]) as server:
        world.use(server)
        async with world.at_work() as scene:
            id = await scene.agent.submit(scene.session, "go")
            assert (await scene.session.message(id)).info.id == id
            await server.reached()
            server.release()
            await scene.heard.until(lambda event: event.type == "session.idle")
            (found,) = await scene.answers()
            assert text_of(found) == "a b"
            await check_closed(scene)


async def test_no_reply_only_stores(world: World) -> None:
    """The prompt comes back as it is, nothing runs, and the next answer knows of it."""
    async with ModelServer([answer(Text.of("ok"))]) as server:
        world.use(server)
        async with world.at_work() as scene:
            stored = await scene.prompt("remember the milk", no_reply=True)
            assert isinstance(stored.info, UserMessage)
            assert text_of(stored) == "remember the milk"
            assert server.requests == []
            await scene.prompt("what was it?")
            assert "remember the milk" in str(server.requests[0].messages)


async def test_whoever_stops_waiting_does_not_stop_the_turn(world: World) -> None:
    """A cancelled caller is gone at once; the answer is finished without it."""
    async with ModelServer([answer(Text.of("a "), Wait(), Text.of("b"))]) as server:
        world.use(server)
        async with world.at_work() as scene:
            caller = asyncio.create_task(scene.prompt("go"))
            await server.reached()
            caller.cancel()
            await asyncio.gather(caller, return_exceptions=True)
            assert caller.cancelled()
            assert not await scene.is_idle()
            server.release()
            await scene.heard.until(lambda event: event.type == "session.idle")
            (found,) = await scene.answers()
            assert text_of(found) == "a b"
            assert info_of(found).error is None


async def test_a_caller_may_leave_at_any_moment(world: World) -> None:
    """Wherever the caller is cancelled, its prompt is stored and answered, or nothing is."""
    async with world.at_work() as scene:
        for turns in range(60):
            caller = asyncio.create_task(scene.prompt("say hi"))
            for _ in range(turns):
                await asyncio.sleep(0)
            caller.cancel()
            await asyncio.gather(caller, return_exceptions=True)
        # Answered after all that were left behind, or together with them.
        await scene.prompt("say last")
        await scene.settled()
        await check_closed(scene)
        assert all(info_of(each).error is None for each in await scene.answers())


async def test_a_persons_own_command_is_recorded(world: World) -> None:
    """It is a call of bash in a turn of its own, and what it changed can be undone."""
    async with world.at_work() as scene:
        found = await scene.agent.shell(scene.session, "echo two > a.txt; echo said")
        (call,) = tools_of(found)
        assert call.tool == "bash"
        assert isinstance(call.state, ToolCompleted)
        assert "said" in call.state.output
        assert [each.file for each in await scene.session.diff()] == ["a.txt"]
        await scene.session.revert(info_of(found).parentID)
        assert world.read("a.txt") == "one\n"
        await check_closed(scene)


async def test_the_model_hears_of_a_persons_own_command(world: World) -> None:
    """The next request holds the command and what it said."""
    async with ModelServer([answer(Text.of("ok"))]) as server:
        world.use(server)
        async with world.at_work() as scene:
            await scene.agent.shell(scene.session, "echo 6 times 7 is 42")
            await scene.prompt("what did I do?")
            told = str(server.requests[0].messages)
            assert "executed by the user" in told
            assert "6 times 7 is 42" in told


async def test_a_command_waits_for_nobody(world: World) -> None:
    """While the session is busy a person's own command is refused."""
    async with ModelServer([answer(Wait(), Text.of("ok"))]) as server:
        world.use(server)
        async with world.at_work() as scene:
            await scene.agent.submit(scene.session, "go")
            await server.reached()
            with pytest.raises(SessionBusy):
                await scene.agent.shell(scene.session, "echo hi")
            server.release()


async def test_closing_the_agent_ends_its_turns(world: World) -> None:
    """Whoever waits hears of it, the message says it, and the engine works on."""
    async with (
        ModelServer([answer(Text.of("a "), Wait()), answer(Text.of("again"))]) as server,
        world.open() as engine,
    ):
        world.use(server)
        agent = Agent(engine, environ=world.environ)
        session = await engine.sessions.create("Given")
        caller = asyncio.create_task(agent.prompt(session, "go"))
        await server.reached()
        await agent.close()
        found = await caller
        assert isinstance(await session.status(), Idle)
        assert info_of(found).error is not None
        assert info_of(found).time.completed is not None
        with pytest.raises(AgentClosed):
            await agent.prompt(session, "more")
        async with Agent(engine, environ=world.environ) as other:
            assert text_of(await other.prompt(session, "go on")) == "again"


async def test_closing_the_agent_at_any_moment(world: World) -> None:
    """Wherever it is in the turn, close returns with the session idle and whoever waits hears."""
    async with world.open() as engine:
        for turns in range(0, 120, 3):
            agent = Agent(engine, environ=world.environ)
            session = await engine.sessions.create("Given")
            caller = asyncio.create_task(agent.prompt(session, "think so\nwrite x.txt x"))
            for _ in range(turns):
                await asyncio.sleep(0)
            await agent.close()
            async with asyncio.timeout(PATIENCE):
                (heard,) = await asyncio.gather(caller, return_exceptions=True)
            if isinstance(heard, BaseException):
                assert isinstance(heard, AgentClosed | TurnAborted)
            else:
                assert info_of(heard).time.completed is not None
            assert isinstance(await session.status(), Idle)


async def test_closing_the_engine_ends_its_turns(world: World) -> None:
    """The next engine finds everything closed."""
    async with ModelServer([answer(Called.of("bash", command="sleep 600", description="z"))]) as s:
        world.use(s)
        async with world.open() as engine:
            agent = Agent(engine, environ=world.environ)
            session = await engine.sessions.create("Given")
            async with engine.events.subscribe() as events:
                caller = asyncio.create_task(agent.prompt(session, "go"))
                async for event in events:
                    told = event.properties
                    if (
                        isinstance(told, PartUpdated)
                        and isinstance(told.part, ToolPart)
                        and isinstance(told.part.state, ToolRunning)
                    ):
                        break
        await asyncio.gather(caller, return_exceptions=True)
        assert not caller.cancelled()
        await agent.close()
        async with world.open() as engine:
            assert engine.recovery.sessions == []
            again = await engine.sessions.get(session.id)
            assert isinstance(await again.status(), Idle)
            (_, found) = (await again.messages()).messages
            assert info_of(found).error is not None
            (call,) = tools_of(found)
            assert error_of(call)


async def test_two_agents_do_not_share_their_end(world: World) -> None:
    """Closing one agent of an engine leaves the turns of the other alone."""
    async with (
        ModelServer([answer(Text.of("a "), Wait(), Text.of("b"))]) as server,
        world.open() as engine,
    ):
        world.use(server)
        async with Agent(engine, environ=world.environ) as lasting:
            session = await engine.sessions.create("Given")
            caller = asyncio.create_task(lasting.prompt(session, "go"))
            await server.reached()
            await Agent(engine, environ=world.environ).close()
            server.release()
            assert text_of(await caller) == "a b"


@pytest.mark.parametrize("npm", ["openai-compatible", "anthropic"])
async def test_nothing_is_left_behind(world: World, npm: str) -> None:
    """No task, no file descriptor and no process outlives agent and engine."""
    script = [answer(Called.of("bash", command="sleep 600", description="z"))] * 3
    async with ModelServer(script, title=answer(Wait("title"))) as server:
        world.use(server, npm=npm)
        left = []
        for _ in script:
            async with world.at_work(title=None) as scene:
                caller = asyncio.create_task(scene.prompt("go"))
                await scene.works()
                await server.reached("title")
            await asyncio.gather(caller, return_exceptions=True)
            for request in (*server.requests, *server.titles):
                await request.ended.wait()
            here = asyncio.current_task()
            left.append(len([task for task in asyncio.all_tasks() if task is not here]))
        # The first leaves what is made once for all.
        assert left[1] == left[2]
        assert _descriptors(world) == []


def _descriptors(world: World) -> list[str]:
    """The files of the world that are still open, garbage apart."""
    gc.collect()
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    open = [os.readlink(link) for link in links if os.path.lexists(link)]
    return [path for path in open if path.startswith(str(world.root))]


async def test_tools_of_ones_own(world: World) -> None:
    """A function with a name is offered to the model, called with what it sends, and answered."""

    @tool("add", description="Adds two numbers.")
    async def add(call: Call, one: int, other: int = 1) -> Output:
        await call.ask("add", [str(one)])
        return Output(str(one + other), title=f"{one} and {other}")

    async with world.at_work(tools=[add]) as scene:
        found = await scene.prompt('call add {"one": 41}\nshow')
        assert text_of(found) == "42"
        (_, first, _) = await scene.messages()
        (call,) = tools_of(first)
        assert isinstance(call.state, ToolCompleted)
        assert (call.state.title, call.state.input) == ("41 and 1", {"one": 41})


@pytest.mark.parametrize(
    ("name", "value"),
    [("retries", -1), ("steps", "ten"), ("retry_delay", float("nan")), ("repeats", True)],
)
def test_settings_that_are_no_numbers_are_refused(name: str, value: object) -> None:
    """The error names the setting."""
    with pytest.raises(InvalidInput, match=name):
        AgentSettings(**{name: value})  # type: ignore[arg-type]  # that is the point


async def test_prompts_are_stored_in_the_order_in_which_they_were_asked(world: World) -> None:
    """Whatever else each of them needs before that."""
    async with world.at_work() as scene:
        asked = [f"say {number}" for number in range(8)]
        await asyncio.gather(*(scene.agent.submit(scene.session, each) for each in asked))
        found = [each for each in await scene.messages() if isinstance(each.info, UserMessage)]
        assert [text_of(each) for each in found] == asked
        await scene.settled()


async def test_what_a_prompt_does_not_have(world: World) -> None:
    """A word that is misspelt is not silently something else."""
    async with world.at_work() as scene:
        wrong: Any = {"mdoel": "kedge/offline"}
        with pytest.raises(InvalidInput, match="a prompt has no mdoel; it has agent, "):
            await scene.agent.prompt(scene.session, "say hi", **wrong)
        no_session: Any = scene.session.id
        for call in (scene.agent.prompt, scene.agent.submit, scene.agent.shell):
            with pytest.raises(InvalidInput, match="give a session"):
                await call(no_session, "x")
        with pytest.raises(InvalidInput, match="give a session"):
            await scene.agent.abort(no_session)
        no_prompt: Any = 5
        with pytest.raises(InvalidInput):
            await scene.agent.prompt(scene.session, no_prompt)


async def test_tools_that_are_none(world: World) -> None:
    """What is no tool, or one of two with the same name, is said at once."""

    async def plain(call: Call) -> Output:
        return Output("")

    made = tool("mine", description="Mine.")(plain)
    wrong: Any = plain
    async with world.open() as engine:
        with pytest.raises(InvalidInput, match="is not a tool; make it one with @tool"):
            Agent(engine, tools=[wrong])
        with pytest.raises(InvalidInput, match="two tools called 'mine'"):
            Agent(engine, tools=[made, made])


async def test_without_snapshots_a_revert_says_that_it_knows_nothing(world: World) -> None:
    """A configuration that switches them off is not taken for a turn that changed nothing."""
    world.configure(snapshot=False)
    async with world.at_work() as scene:
        found = await scene.prompt("write w.txt x\nbash echo 1 > made.txt\nread w.txt")
        receipt = await scene.session.revert(info_of(found).parentID)
        assert receipt.files == []
        unknown = "what it did to files is not known, because snapshots are switched off: "
        assert [note.removeprefix(unknown) for note in receipt.notes] == [
            "write (w.txt)",
            "bash (echo 1 > made.txt)",
        ]
        assert all(note.startswith(unknown) for note in receipt.notes)
