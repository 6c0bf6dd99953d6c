"""Aborts, at any moment: the session is idle when the abort returns, and nothing is left open."""

import asyncio
import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kedge.agent import AgentSettings
from kedge.domain.errors import TurnAborted
from kedge.domain.events import PermissionAsked, QuestionAsked, SessionStatusChanged
from kedge.domain.messages import MessageWithParts
from kedge.domain.sessions import Retry
from tests.agent.world import (
    Scene,
    World,
    check_closed,
    error_of,
    info_of,
    last_told,
    text_of,
    tools_of,
)
from tests.support.model_server import Call, ModelServer, Refusal, Text, Thinking, Wait, answer

SLEEP = Call.of("bash", command="echo begun; sleep 600", description="sleeps")


def begin(scene: Scene, prompt: str = "go") -> asyncio.Task[MessageWithParts]:
    """A prompt whose answer is waited for elsewhere."""
    return asyncio.create_task(scene.prompt(prompt))


async def abort(scene: Scene) -> None:
    """Abort; nothing is open when that returns."""
    assert await scene.agent.abort(scene.session)
    await check_closed(scene)


def check_aborted(answer: MessageWithParts) -> None:
    """An answer says that it was aborted."""
    error = info_of(answer).error
    assert error is not None
    assert error.name == "MessageAbortedError"
    assert info_of(answer).time.completed is not None


async def goes_on(scene: Scene) -> None:
    """The session answers the next prompt as if nothing had been."""
    found = await scene.prompt("say And on.", model="kedge/offline")
    assert text_of(found) == "And on."
    await check_closed(scene)


@pytest.mark.parametrize("npm", ["openai-compatible", "anthropic"])
async def test_in_the_middle_of_a_text(world: World, npm: str) -> None:
    """What was said stays, the provider hears that nobody listens, and it was heard once."""
    async with ModelServer([answer(Text.of("half a ", "sen"), Wait())]) as server:
        world.use(server, npm=npm)
        async with world.at_work() as scene:
            caller = begin(scene)
            await scene.heard.until(lambda each: getattr(each, "delta", "") == "sen")
            await abort(scene)
            found = await caller
            check_aborted(found)
            assert text_of(found) == "half a sen"
            assert scene.errors() == ["Aborted"]
            await server.requests[0].ended.wait()
            assert server.requests[0].dropped
            assert last_told(scene.heard)[found.info.id] == found.info
            await goes_on(scene)


async def test_in_the_middle_of_a_thought(world: World) -> None:
    """The thought stays, and the next request is not spoilt by it."""
    script = [answer(Thinking.of("well "), Wait()), answer(Text.of("fine"))]
    async with ModelServer(script) as server:
        world.use(server, npm="anthropic")
        async with world.at_work() as scene:
            caller = begin(scene)
            await scene.speaks()
            await abort(scene)
            check_aborted(await caller)
            assert text_of(await scene.prompt("again")) == "fine"
            roles = [each["role"] for each in server.requests[1].messages]
            assert roles == ["system", "user", "assistant", "user"]
            assert "well" not in str(server.requests[1].messages)


async def test_in_the_middle_of_a_tool(world: World) -> None:
    """The call is an error, its process is gone, and what it did is the session's."""
    command = "echo two > a.txt; echo $$ > pid; exec sleep 600"
    call = Call.of("bash", command=command, description="sleeps")
    async with ModelServer([answer(Text.of("I will"), call)]) as server:
        world.use(server)
        async with world.at_work() as scene:
            caller = begin(scene)
            await scene.works()
            pid = int(await world.until("pid", lambda text: text.endswith("\n")))
            await abort(scene)
            found = await caller
            check_aborted(found)
            (part,) = tools_of(found)
            assert error_of(part)
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
            assert {each.file for each in await scene.session.diff()} == {"a.txt", "pid"}
            await scene.session.revert(info_of(found).parentID)
            assert world.read("a.txt") == "one\n"
            await goes_on(scene)


async def test_with_several_tools_at_work(world: World) -> None:
    """Each of them is ended."""
    async with ModelServer([answer(SLEEP, SLEEP, Call.of("read", filePath="a.txt"))]) as server:
        world.use(server)
        async with world.at_work() as scene:
            caller = begin(scene)
            await scene.works()
            await scene.heard.until(lambda each: _completed(each, "read"))
            await abort(scene)
            one, two, three = tools_of(await caller)
            assert error_of(one)
            assert error_of(two)
            assert type(three.state).__name__ == "ToolCompleted"


def _completed(event: object, tool: str) -> bool:
    part = getattr(event, "part", None)
    return (
        getattr(part, "tool", "") == tool
        and type(getattr(part, "state", None)).__name__ == "ToolCompleted"
    )


async def test_while_the_model_writes_its_arguments(world: World) -> None:
    """A call that was announced and never made is an error too."""
    call = Call(name="write", pieces=('{"filePath": ', '"a.txt", '))
    async with ModelServer([answer(call, Wait())]) as server:
        world.use(server)
        async with world.at_work() as scene:
            caller = begin(scene)
            await scene.heard.until(lambda each: getattr(each, "part", None) is not None)
            await server.reached()
            await abort(scene)
            check_aborted(await caller)
            await goes_on(scene)


async def test_while_a_retry_is_waited_for(world: World) -> None:
    """Nobody waits any longer, however long the provider asked for."""
    limited = Refusal(status=429, headers={"retry-after": "500"})
    async with ModelServer([limited]) as server:
        world.use(server)
        async with world.at_work(settings=AgentSettings()) as scene:
            caller = begin(scene)
            await scene.heard.until(
                lambda each: (
                    isinstance(each, SessionStatusChanged) and isinstance(each.status, Retry)
                )
            )
            await abort(scene)
            check_aborted(await caller)
            assert len(server.requests) == 1
            await goes_on(scene)


async def test_while_a_permission_is_asked_for(world: World) -> None:
    """The request is withdrawn: nobody can reply any more."""
    world.configure(permission={"edit": "ask"})
    async with world.at_work() as scene:
        caller = begin(scene, "write a.txt two")
        await scene.heard.asked(PermissionAsked)
        await abort(scene)
        found = await caller
        check_aborted(found)
        assert error_of(tools_of(found)[0])
        assert world.read("a.txt") == "one\n"
        await goes_on(scene)


async def test_while_a_question_is_asked(world: World) -> None:
    """The question is withdrawn."""
    async with world.at_work() as scene:
        caller = begin(scene, "ask Which? | red | blue")
        await scene.heard.asked(QuestionAsked)
        await abort(scene)
        check_aborted(await caller)
        await goes_on(scene)


async def test_while_a_title_is_thought_of(world: World) -> None:
    """The session is idle at once; it may still get its title."""
    title = answer(Wait("title"), Text.of("A name"))
    async with ModelServer([answer(Text.of("a"), Wait())], title=title) as server:
        world.use(server)
        async with world.at_work(title=None) as scene:
            caller = begin(scene)
            await server.reached()
            await server.reached("title")
            await abort(scene)
            check_aborted(await caller)
            server.release("title")
            await scene.heard.until(
                lambda each: each.type == "session.updated" and each.info.title == "A name"
            )
            await goes_on(scene)


async def test_before_the_model_has_said_anything(world: World) -> None:
    """The message is there, says nothing, and is completed."""
    async with ModelServer([Refusal(status=500, wait="go")]) as server:
        world.use(server)
        async with world.at_work() as scene:
            caller = begin(scene)
            await server.reached()
            await abort(scene)
            found = await caller
            check_aborted(found)
            assert text_of(found) == ""
            await goes_on(scene)


async def test_of_a_persons_own_command(world: World) -> None:
    """It ends, and what it did until then is recorded."""
    async with world.at_work() as scene:
        caller = asyncio.create_task(
            scene.agent.shell(scene.session, "echo two > a.txt; echo on; exec sleep 600")
        )
        await scene.works()
        await world.until("a.txt", lambda text: text == "two\n")
        await abort(scene)
        found = await caller
        check_aborted(found)
        assert [each.file for each in await scene.session.diff()] == ["a.txt"]
        await goes_on(scene)


async def test_of_a_session_that_does_nothing(world: World) -> None:
    """It is idle already."""
    async with world.at_work() as scene:
        await abort(scene)
        await goes_on(scene)


async def test_twice_at_once(world: World) -> None:
    """Both return when it is idle."""
    async with ModelServer([answer(SLEEP)]) as server:
        world.use(server)
        async with world.at_work() as scene:
            caller = begin(scene)
            await scene.works()
            assert (
                await asyncio.gather(*(scene.agent.abort(scene.session) for _ in range(3)))
                == [True] * 3
            )
            check_aborted(await caller)
            await check_closed(scene)


SCRIPT = """\
think Let me see.
say I begin.
write made.txt one
and bash echo two > a.txt
and todo [~] work | rest
edit made.txt one two
try read missing.txt
say Half of it.
fail cut 2
bash cat a.txt
slow 5 1ms say All of it is done.
"""


def _nth(count: int) -> Callable[[object], bool]:
    left = iter(range(count))
    return lambda _: next(left, None) is None


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(count=st.integers(0, 90))
async def test_at_any_event(
    tmp_path_factory: pytest.TempPathFactory, patient: None, count: int
) -> None:
    """Whatever has just happened, the abort leaves nothing open, loses no change, and the session
    goes on."""
    world = World.made(tmp_path_factory.mktemp("abort"))
    async with world.at_work() as scene:
        caller = begin(scene, SCRIPT)
        at = scene.heard.until(_nth(count), after=0)
        await asyncio.wait({asyncio.ensure_future(at), caller}, return_when=asyncio.FIRST_COMPLETED)
        await abort(scene)
        try:
            found = await caller
        except TurnAborted:
            assert await scene.answers() == []
        else:
            if info_of(found).error is not None:
                check_aborted(found)
        changed = {each.file for each in await scene.session.diff()}
        expected = {"made.txt"} if (world.folder / "made.txt").exists() else set()
        expected |= {"a.txt"} if world.read("a.txt") != "one\n" else set()
        assert changed == expected
        await goes_on(scene)
