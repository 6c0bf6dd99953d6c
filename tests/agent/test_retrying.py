"""Requests that fail for a passing reason are made again; the others end the answer."""

import pytest

from kedge.agent import AgentSettings
from kedge.agent.retrying import wait_before
from kedge.domain.events import PartRemoved, SessionStatusChanged
from kedge.domain.failures import api
from kedge.domain.status import Retry
from kedge.model.port import ModelFailure
from tests.agent.world import Scene, World, check_closed, error_of, info_of, text_of, tools_of
from tests.support.model_server import (
    Answer,
    Call,
    Cut,
    Fault,
    Item,
    ModelServer,
    Refusal,
    Reply,
    Text,
    Thinking,
    answer,
)

PROTOCOLS = ["openai-compatible", "anthropic"]
FINE = answer(Text.of("fine"))
BREAKS = {"cut": answer(Text.of("half a "), Cut()), "fault": answer(Text.of("half a "), Fault())}


def retries(scene: Scene) -> list[Retry]:
    """What clients were told of retries."""
    told = [each.status for each in scene.heard.of(SessionStatusChanged)]
    return [each for each in told if isinstance(each, Retry)]


@pytest.mark.parametrize("npm", PROTOCOLS)
@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
async def test_a_provider_that_is_busy_is_asked_again(world: World, npm: str, status: int) -> None:
    """Clients hear which try it is, why, and when; the answer is one message."""
    refused = Refusal(status=status, message="not now")
    script: list[Reply] = [refused, refused, FINE]
    async with ModelServer(script) as server:
        world.use(server, npm=npm)
        async with world.at_work() as scene:
            found = await scene.prompt("go")
            assert text_of(found) == "fine"
            assert info_of(found).error is None
            assert [each.attempt for each in retries(scene)] == [1, 2]
            assert all("not now" in each.message for each in retries(scene))
            assert len(await scene.answers()) == 1
            assert scene.errors() == []
            await check_closed(scene)


@pytest.mark.parametrize("npm", PROTOCOLS)
async def test_the_provider_says_how_long_to_wait(world: World, npm: str) -> None:
    """What it asks for counts, and not what kedge would have waited."""
    refused = Refusal(status=429, headers={"retry-after-ms": "15"})
    script: list[Reply] = [refused, FINE]
    async with ModelServer(script) as server:
        world.use(server, npm=npm)
        settings = AgentSettings(retry_delay=10_000, retry_delay_limit=10_000)
        async with world.at_work(settings=settings) as scene:
            before = scene.engine.clock.now()
            assert text_of(await scene.prompt("go")) == "fine"
            (told,) = retries(scene)
            assert before + 15 <= told.next <= scene.engine.clock.now()


async def test_a_provider_that_asks_for_too_long_has_refused(world: World) -> None:
    """Nobody is left waiting for an hour."""
    refused = Refusal(status=429, message="quota", headers={"retry-after": "3601"})
    script: list[Reply] = [refused, FINE]
    async with ModelServer(script) as server:
        world.use(server)
        async with world.at_work(settings=AgentSettings()) as scene:
            found = await scene.prompt("go")
            assert "quota" in str(info_of(found).error)
            assert retries(scene) == []
            assert text_of(await scene.prompt("again")) == "fine"


@pytest.mark.parametrize("npm", PROTOCOLS)
@pytest.mark.parametrize("how", BREAKS)
async def test_a_broken_answer_is_taken_back(world: World, npm: str, how: str) -> None:
    """What was half said is removed, and the whole answer takes its place."""
    async with ModelServer([BREAKS[how], FINE]) as server:
        world.use(server, npm=npm)
        async with world.at_work() as scene:
            found = await scene.prompt("go")
            assert text_of(found) == "fine"
            (removed,) = scene.heard.of(PartRemoved)
            assert scene.heard.spoken()[removed.partID] == "half a "
            assert removed.partID not in {part.id for part in found.parts}
            assert len(retries(scene)) == 1
            await check_closed(scene)


@pytest.mark.parametrize("npm", PROTOCOLS)
async def test_a_thought_and_a_half_call_are_taken_back(world: World, npm: str) -> None:
    """A tool that was announced and never called leaves no trace."""
    half: list[Item] = [Thinking.of("hm")] if npm == "anthropic" else []
    call = Call(name="write", pieces=('{"filePath": "a.txt", "con',))
    async with ModelServer([answer(*half, call, Cut()), FINE]) as server:
        world.use(server, npm=npm)
        async with world.at_work() as scene:
            found = await scene.prompt("go")
            assert text_of(found) == "fine"
            assert tools_of(found) == []
            assert world.read("a.txt") == "one\n"
            await check_closed(scene)


async def test_what_tools_did_is_not_done_again(world: World) -> None:
    """A stream that breaks after a call: the call stands, and the next request tells of it."""
    call = Call.of("bash", command="echo x >> log.txt; echo did", description="d")
    # Anthropic ends a call before the next block begins, so that it is made before the cut.
    broken = answer(call, Text.of("and now"), Cut())
    async with ModelServer([broken, FINE]) as server:
        world.use(server, npm="anthropic")
        async with world.at_work() as scene:
            assert text_of(await scene.prompt("go")) == "fine"
            assert world.read("log.txt") == "x\n"
            first, _ = await scene.answers()
            assert info_of(first).finish == "tool-calls"
            assert text_of(first) == "and now"
            assert "did" in str(server.requests[1].messages)
            assert len(retries(scene)) == 1
            await check_closed(scene)


async def test_a_connection_that_cannot_be_made(world: World) -> None:
    """It is tried as often as the settings say, and then the answer has an error."""
    async with ModelServer([]) as server:
        world.use(server)
    async with world.at_work(settings=AgentSettings(retries=2, retry_delay=0)) as scene:
        found = await scene.prompt("go")
        assert info_of(found).error is not None
        assert [each.attempt for each in retries(scene)] == [1, 2]
        assert len(scene.errors()) == 1
        await check_closed(scene)
        assert text_of(await scene.prompt("say on", model="kedge/offline")) == "on"


@pytest.mark.parametrize("npm", PROTOCOLS)
@pytest.mark.parametrize(
    "refused",
    [
        Refusal(status=400, message="too many frogs"),
        Refusal(status=401, message="too many frogs"),
        Refusal(status=404, message="too many frogs"),
        Refusal(status=500, message="too many frogs"),
    ],
)
async def test_other_errors_end_the_answer(world: World, npm: str, refused: Refusal) -> None:
    """The message has the error, clients hear it once, and the next prompt works."""
    script: list[Reply] = [refused, FINE]
    async with ModelServer(script) as server:
        world.use(server, npm=npm)
        async with world.at_work(settings=AgentSettings(retries=0)) as scene:
            found = await scene.prompt("go")
            assert "too many frogs" in str(info_of(found).error)
            (told,) = scene.errors()
            assert "too many frogs" in told
            await check_closed(scene)
            assert text_of(await scene.prompt("again")) == "fine"


async def test_an_error_after_a_tool_keeps_what_it_did(world: World) -> None:
    """The message that failed has the completed call, and the next request hears its result."""
    call = Call.of("write", filePath=str(world.folder / "new.txt"), content="new\n")
    script: list[Reply] = [answer(call), Refusal(status=400, message="no"), FINE]
    async with ModelServer(script) as server:
        world.use(server)
        async with world.at_work() as scene:
            found = await scene.prompt("go")
            assert info_of(found).error is not None
            assert world.read("new.txt") == "new\n"
            assert text_of(await scene.prompt("again")) == "fine"
            told = [each["role"] for each in server.requests[2].messages]
            assert told[told.index("user") :] == ["user", "assistant", "tool", "user"]


@pytest.mark.parametrize("npm", PROTOCOLS)
async def test_a_length_that_is_reached_ends_the_answer(world: World, npm: str) -> None:
    """What was said until then is the answer, with the reason."""
    script = [Answer(items=(Text.of("and so"),), finish="length")]
    async with ModelServer(script) as server:
        world.use(server, npm=npm)
        async with world.at_work() as scene:
            found = await scene.prompt("go")
            assert (text_of(found), info_of(found).finish) == ("and so", "length")


async def test_a_call_that_fails_is_told_to_the_model(world: World) -> None:
    """A tool's failure is no failure of the answer."""
    async with ModelServer([answer(Call.of("read", filePath="gone.txt")), FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            assert text_of(await scene.prompt("go")) == "fine"
            (first, _) = await scene.answers()
            assert "gone.txt" in error_of(tools_of(first)[0])
            assert "gone.txt" in str(server.requests[1].messages[-1])


FAILED = ModelFailure(api("no", isRetryable=True), retryable=True)


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 2.0), (2, 4.0), (3, 8.0), (5, 30.0), (10, 30.0), (11, None)]
)
def test_waits_double_up_to_a_limit(attempt: int, seconds: float | None) -> None:
    """And end after as many retries as are allowed."""
    assert wait_before(attempt, FAILED, AgentSettings()) == seconds


def test_any_number_of_retries_can_be_set() -> None:
    """The doubling does not overflow."""
    assert wait_before(100_000, FAILED, AgentSettings(retries=200_000)) == 30.0


@pytest.mark.parametrize(("asked", "seconds"), [(-5.0, 0.0), (7.5, 7.5), (600.0, 600.0)])
def test_what_the_provider_asks_for_counts(asked: float, seconds: float) -> None:
    """Unless it is in the past."""
    failure = ModelFailure(api("no", isRetryable=True), retryable=True, retry_after=asked)
    assert wait_before(1, failure, AgentSettings()) == seconds
