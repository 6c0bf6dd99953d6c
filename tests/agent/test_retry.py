"""Requests that fail for a passing reason are made again; the others end the answer."""

from typing import Any

import pytest

from kedge.agent import AgentSettings
from kedge.agent.retry import Retries
from kedge.agent.step import Answering
from kedge.domain.events import PartRemoved, SessionStatusChanged
from kedge.domain.sessions import Retry
from kedge.domain.wire_errors import api
from kedge.model.port import ModelFailure, Setback
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
    Wait,
    answer,
)

PROTOCOLS = ["openai-compatible", "anthropic"]
FINE = answer(Text.of("fine"))
EMPTY = answer()
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


async def test_what_tools_did_is_told_however_long_it_took(world: World) -> None:
    """A stream that breaks after a call: no retry is left, and the model hears of the result."""
    call = Call.of("bash", command="echo did", description="d")
    async with ModelServer([answer(call, Text.of("and now"), Cut()), FINE]) as server:
        world.use(server, npm="anthropic")
        none_left = AgentSettings(retry_delay=0, retry_time=0, broken_retries=0)
        async with world.at_work(settings=none_left) as scene:
            found = await scene.prompt("go")
            assert (text_of(found), info_of(found).error) == ("fine", None)
            await check_closed(scene)


async def test_a_long_answer_that_breaks_off(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for again, though it was spoken for longer than retries may take."""
    now = 0.0
    hear = Answering._hear

    async def slowly(self: Answering, event: Any, tools: Any) -> None:  # noqa: ANN401 - as _hear
        nonlocal now
        now += 1000
        await hear(self, event, tools)

    monkeypatch.setattr(Answering, "_hear", slowly)
    monkeypatch.setattr(
        "kedge.agent.step.Retries", lambda settings, _: Retries(settings, lambda: now)
    )
    async with ModelServer([BREAKS["cut"], FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            assert text_of(await scene.prompt("go")) == "fine"


def priced(world: World, server: ModelServer, npm: str) -> None:
    """Configure the server as a model that costs a dollar for a million tokens."""
    provider = {
        "npm": f"@ai-sdk/{npm}",
        "options": {"baseURL": server.url, "apiKey": "none"},
        "models": {"spoken": {"cost": {"input": 1, "output": 1}}, "small": {}},
    }
    world.use(server, npm=npm, provider={"scripted": provider})


PAID = 110 / 1_000_000


@pytest.mark.parametrize("npm", PROTOCOLS)
async def test_what_was_paid_for_nothing_is_counted(world: World, npm: str) -> None:
    """The session has the tokens and the cost of all attempts, the answer those of the last."""
    async with ModelServer([EMPTY, EMPTY, FINE]) as server:
        priced(world, server, npm)
        async with world.at_work() as scene:
            found = info_of(await scene.prompt("go"))
            assert (found.error, found.tokens.input, found.tokens.output) == (None, 100, 10)
            assert found.cost == pytest.approx(3 * PAID)
            assert found.finish == "stop"
            session = (await scene.engine.sessions.get(scene.session.id)).info
            assert (session.tokens.input, session.tokens.output) == (300, 30)
            assert session.cost == pytest.approx(3 * PAID)
            await check_closed(scene)


@pytest.mark.parametrize("npm", PROTOCOLS)
@pytest.mark.parametrize(("finish", "attempts"), [(None, 3), ("length", 1), ("content-filter", 1)])
async def test_what_an_answer_cost_that_failed(
    world: World, npm: str, finish: str | None, attempts: int
) -> None:
    """The answer with the error has it, and so has the session."""
    async with ModelServer([answer(finish=finish)] * attempts) as server:
        priced(world, server, npm)
        async with world.at_work() as scene:
            found = info_of(await scene.prompt("go"))
            assert found.error is not None
            assert (found.tokens.input, found.tokens.output) == (100, 10)
            assert found.cost == pytest.approx(attempts * PAID)
            session = (await scene.engine.sessions.get(scene.session.id)).info
            assert session.tokens.input == attempts * 100
            assert session.cost == pytest.approx(attempts * PAID)
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
    """The message that failed has the completed call, and the next request hears its result, and
    after it why nothing followed."""
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
            assert told[told.index("user") :] == ["user", "assistant", "tool", "assistant", "user"]


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


def failed(setback: Setback = "busy", retry_after: float | None = None) -> ModelFailure:
    """A failure of which another attempt may get rid."""
    failure = api("no", isRetryable=True)
    return ModelFailure(failure, retryable=True, retry_after=retry_after, setback=setback)


def waits(
    failures: list[ModelFailure],
    *,
    talked: float = 0,
    took: float = 0,
    worked: float = 0,
    **settings: Any,  # noqa: ANN401 - any of them
) -> list[float | None]:
    """The waits after these failures, if in every attempt the model talks so long, then nothing
    comes for so long, and then tools work for so long."""
    now = 0.0
    retries = Retries(AgentSettings(**settings), lambda: now)
    found: list[float | None] = []
    for number, failure in enumerate(failures, 1):
        assert retries.attempt == number
        now += talked
        retries.listen()
        now += took
        retries.stop()
        now += worked
        found.append(wait := retries.wait_after(failure, is_followed=bool(worked)))
        now += wait or 0
    return found


def test_waits_double_up_to_a_limit() -> None:
    """And end after as many retries as are allowed."""
    doubled = [2.0, 4.0, 8.0, 16.0, *[30.0] * 6, None]
    assert waits([failed()] * 11) == doubled


def test_any_number_of_retries_can_be_set() -> None:
    """The doubling does not overflow."""
    many = waits([failed()] * 2000, retries=3000, retry_time=1e9)
    assert many[-1] == 30.0


@pytest.mark.parametrize(("asked", "seconds"), [(-5.0, 0.0), (7.5, 7.5), (600.0, 600.0)])
def test_what_the_provider_asks_for_counts(asked: float, seconds: float) -> None:
    """Unless it is in the past."""
    assert waits([failed(retry_after=asked)]) == [seconds]


def test_an_answer_that_is_of_no_use_is_paid_for() -> None:
    """It is asked for again twice, and not ten times."""
    assert waits([failed("broken")] * 3) == [2.0, 4.0, None]


def test_a_model_that_is_silent_is_asked_once_more() -> None:
    """Eleven times five minutes is an hour for nothing."""
    assert waits([failed("silent")] * 2) == [2.0, None]


def test_each_setback_is_counted_apart() -> None:
    """A provider that was busy for a while may still break off, and break off again."""
    story = [failed(), failed(), failed(), failed("broken"), failed("silent"), failed("broken")]
    assert None not in waits(story)
    assert waits([*story, failed("broken")])[-1] is None
    assert waits([*story, failed("silent")])[-1] is None


def test_all_attempts_together_have_a_limit() -> None:
    """Whatever the attempts died of, at some time it is enough."""
    assert waits([failed()] * 4, took=290) == [2.0, 4.0, 8.0, None]
    assert waits([failed()], took=900) == [None]
    # Waiting until then would be of no use.
    assert waits([failed(retry_after=500)] * 2) == [500.0, None]


def test_a_model_that_speaks_may_take_its_time() -> None:
    """Slow models are slow; only what went by in silence was lost."""
    assert waits([failed("broken")] * 2, talked=10_000) == [2.0, 4.0]


def test_tools_may_take_their_time() -> None:
    """After their work another request is made anyway, which is none of the retries."""
    assert waits([failed("silent")] * 3, took=900, worked=10_000) == [2.0, 4.0, 8.0]


def test_a_failure_that_stays_ends_the_answer_after_tools_too() -> None:
    """Nor is a provider waited for that asks for an hour."""
    lasting = ModelFailure(api("no", isRetryable=False))
    assert waits([lasting], worked=1) == [None]
    assert waits([failed(retry_after=3601)], worked=1) == [None]


async def test_an_empty_answer_is_not_asked_for_ten_times(world: World) -> None:
    """After two more attempts, the person is told."""
    async with ModelServer([EMPTY] * 4) as server:
        world.use(server)
        async with world.at_work() as scene:
            found = await scene.prompt("go")
            assert "empty answer" in str(info_of(found).error)
            assert len(server.requests) == 3
            assert [each.attempt for each in retries(scene)] == [1, 2]
            await check_closed(scene)


async def test_a_server_that_falls_silent_is_given_up(world: World) -> None:
    """A stream that stalls is tried once more, and what it said is taken back."""
    stalls = answer(Text.of("half a "), Wait())
    async with ModelServer([stalls] * 3) as server:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": server.url, "apiKey": "none", "timeout": 500},
            "models": {"spoken": {}, "small": {}},
        }
        world.use(server, provider={"scripted": provider})
        async with world.at_work() as scene:
            found = await scene.prompt("go")
            assert "fell silent" in str(info_of(found).error)
            assert len(server.requests) == 2
            await check_closed(scene)
