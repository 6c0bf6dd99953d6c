"""Answers in the form of a JSON schema: given, asked for again, given up."""

import asyncio
from typing import Any

import pytest

from kedge.agent import AgentSettings
from kedge.agent.structured_output import ASKED_AGAIN, LAST_CALL
from kedge.domain.errors import InvalidInput
from kedge.domain.events import MessageUpdated, PermissionAsked, SessionErrored
from kedge.domain.messages import ANSWER_TOOL as TOOL
from kedge.domain.messages import AssistantMessage, JsonSchemaFormat, TextFormat, UserMessage
from kedge.domain.parts import ToolCompleted
from tests.agent.world import QUICK, Scene, World, check_closed, error_of, info_of, tools_of
from tests.support.model_server import Call, ModelServer, Reply, Request, Text, Wait, answer
from tests.support.timeouts import PATIENCE

WIRES = ["openai-compatible", "anthropic", "openai", "google"]
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
    "required": ["name"],
}
GIVEN: dict[str, Any] = {"name": "a.txt", "size": 4}
FINE = answer(Call.of(TOOL, **GIVEN))
WORDS = answer(Text.of("It is a.txt."))
WRONG = answer(Call.of(TOOL, name=1))


def wanted(retries: int | None = None, **more: Any) -> JsonSchemaFormat:  # noqa: ANN401
    """The format of the prompts."""
    return JsonSchemaFormat(schema={**SCHEMA, **more}, retryCount=retries)


def choice(request: Request) -> object:
    """What a request says about calls, in the words of its protocol."""
    google = request.body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode")
    found = request.body.get("tool_choice", google)
    return found["type"] if isinstance(found, dict) else found


def parameters(request: Request) -> dict[str, Any]:
    """The schema of the tool as the provider got it."""
    told = request.body["tools"]
    told = [each for tool in told for each in tool.get("functionDeclarations", [tool])]
    flat = [tool.get("function", tool) for tool in told]
    (tool,) = (each for each in flat if each["name"] == TOOL)
    keys = ("parameters", "input_schema", "parameters_json_schema")
    return dict(next(tool[key] for key in keys if key in tool))


async def errors(scene: Scene) -> list[str]:
    """The errors that clients were told."""
    await scene.heard.caught_up()
    return [each.error.name for each in scene.heard.of(SessionErrored) if each.error]


@pytest.mark.parametrize("npm", WIRES)
async def test_the_answer_is_in_the_message(world: World, npm: str) -> None:
    """The model has to call; its call is the answer, which ends the turn."""
    async with ModelServer([answer(Call.of("read", filePath="a.txt")), FINE]) as server:
        world.use(server, npm=npm)
        async with world.at_work() as scene:
            info = info_of(last := await scene.prompt("Which file?", format=wanted()))
            assert (info.structured, info.error) == (GIVEN, None)
            (call,) = tools_of(last)
            assert isinstance(call.state, ToolCompleted)
            assert call.tool == TOOL
            assert (call.state.title, call.state.output) == (
                "Structured Output",
                "Structured output captured successfully.",
            )
            assert call.state.metadata["valid"] is True
            await check_closed(scene)
            assert await errors(scene) == []
    assert {str(choice(each)).lower() for each in server.requests} <= {"required", "any"}
    assert len(server.requests) == 2
    assert TOOL in server.requests[0].system
    schema = parameters(server.requests[0])
    assert schema == {key: value for key, value in SCHEMA.items() if key != "$schema"}


@pytest.mark.parametrize("npm", WIRES[:2])
async def test_a_model_that_only_talks_is_asked_again(world: World, npm: str) -> None:
    """As often as the prompt says, with a remark that is not stored; then it is an error."""
    async with ModelServer([WORDS, WORDS, FINE]) as server:
        world.use(server, npm=npm)
        async with world.at_work() as scene:
            info = info_of(await scene.prompt("Which file?", format=wanted(2)))
            assert info.structured == GIVEN
            infos = [each.info for each in await scene.messages()]
            formats = [each.format for each in infos if isinstance(each, UserMessage)]
            assert formats == [wanted(2)]
    asked = [ASKED_AGAIN in each.prompt for each in server.requests]
    assert asked == [False, True, True]


@pytest.mark.parametrize("reply", [WORDS, WRONG], ids=["words", "wrong"])
@pytest.mark.parametrize(("retries", "requests"), [(0, 1), (1, 2), (None, 3)])
async def test_it_is_given_up(
    world: World, reply: Reply, retries: int | None, requests: int
) -> None:
    """Without an answer that fits the message has an error, and clients are told."""
    async with ModelServer([reply] * 5) as server:
        world.use(server)
        async with world.at_work() as scene:
            info = info_of(await scene.prompt("Which file?", format=wanted(retries)))
            assert info.structured is None
            assert info.error is not None
            assert info.error.name == "StructuredOutputError"
            assert info.error.data["retries"] == requests - 1
            told = info.error.data["message"]
            assert told.startswith("Model did not produce structured output")
            assert ("must be string" in told) is (reply is WRONG)
            assert info.finish is not None
            await check_closed(scene)
            assert await errors(scene) == ["StructuredOutputError"]
    assert len(server.requests) == requests


async def test_the_model_is_told_what_does_not_fit(world: World) -> None:
    """A wrong answer is an error of the call, which the model can correct; no person is asked about
    the same call again and again."""
    async with ModelServer([WRONG, WRONG, WRONG, FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            info = info_of(await scene.prompt("Which file?", format=wanted(5)))
            assert info.structured == GIVEN
            first = (await scene.answers())[0]
            assert "the value.name must be string, not 1" in error_of(tools_of(first)[0])
            await scene.heard.caught_up()
            assert scene.heard.of(PermissionAsked) == []


async def test_it_comes_with_the_end_of_the_message(world: World) -> None:
    """Clients hear of the answer no later than of the end of its message."""
    async with ModelServer([FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            await scene.prompt("Which file?", format=wanted())
            await scene.heard.caught_up()
            told = [each.info for each in scene.heard.of(MessageUpdated)]
            ended = [
                each for each in told if isinstance(each, AssistantMessage) and each.time.completed
            ]
            assert [each.structured for each in ended] == [GIVEN]


async def test_the_last_step_is_for_the_answer(world: World) -> None:
    """No other tool can be called there, and the model is told so."""
    looks = answer(Call.of("read", filePath="a.txt"))
    async with ModelServer([looks, FINE, looks, looks]) as server:
        world.use(server)
        async with world.at_work(settings=AgentSettings(retry_delay=0, steps=2)) as scene:
            info = info_of(await scene.prompt("Which file?", format=wanted()))
            assert info.structured == GIVEN
            assert server.requests[-1].prompt.endswith(LAST_CALL)
            missed = await scene.prompt("Which file?", format=wanted())
            assert "There is no tool 'read' here" in error_of(tools_of(missed)[0])
            error = info_of(missed).error
            assert error is not None
            assert "no more steps" in error.data["message"]


async def test_a_prompt_that_waits_is_answered_afterwards(world: World) -> None:
    """A structured answer is not given up for a later prompt."""
    looks = answer(Wait(), Call.of("read", filePath="a.txt"))
    async with ModelServer([looks, FINE, WORDS]) as server:
        world.use(server)
        async with world.at_work() as scene, asyncio.TaskGroup() as tasks:
            first = tasks.create_task(scene.prompt("Which file?", format=wanted()))
            async with asyncio.timeout(PATIENCE):
                await server.reached()
            id = await scene.agent.submit(scene.session, "And what is in it?")
            server.release()
            assert info_of(await first).structured == GIVEN
            await scene.settled()
            last = info_of((await scene.answers())[-1])
            assert (last.parentID, last.structured, last.error) == (id, None, None)


async def test_a_model_without_tools_says_so(world: World) -> None:
    """It is not asked again: it cannot."""
    async with ModelServer([WORDS] * 3) as server:
        options = {"baseURL": server.url, "apiKey": "none"}
        models = {"spoken": {"tool_call": False}}
        told = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": models}
        world.configure(model="scripted/spoken", provider={"scripted": told})
        async with world.at_work() as scene:
            error = info_of(await scene.prompt("Which file?", format=wanted())).error
            assert error is not None
            assert "choose another model" in error.data["message"]
    assert len(server.requests) == 1


async def test_the_offline_model_gives_one(world: World) -> None:
    """For plain words an example that fits, for `structured` what it is told; a script that gives
    none plays a model that only talks."""
    async with world.at_work() as scene:

        async def told(prompt: str) -> AssistantMessage:
            return info_of(await scene.prompt(prompt, format=wanted(), model="kedge/offline"))

        assert (await told("Which file?")).structured == {"name": "example"}
        read = await told('read a.txt\nstructured {"name": "b"}')
        assert read.structured == {"name": "b"}
        error = (await told("say It is a.txt.")).error
        assert error is not None
        assert error.data["retries"] == 2


async def test_text_is_what_it_always_was(world: World) -> None:
    """The format `text` changes nothing, and neither does a switch that turns all tools off."""
    async with ModelServer([WORDS, FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            assert info_of(await scene.prompt("Well?", format=TextFormat())).structured is None
            only = await scene.prompt("Which file?", format=wanted(), tools={"*": False})
            assert info_of(only).structured == GIVEN
    assert TOOL not in server.requests[0].tools
    assert server.requests[1].tools == [TOOL]


@pytest.mark.parametrize(
    ("format", "told"),
    [
        (wanted(type="array"), "format.schema.type"),
        (wanted(-1), "format.retryCount"),
        (wanted(10**6), "format.retryCount"),
    ],
)
async def test_a_format_that_no_answer_has_is_refused(
    world: World, format: JsonSchemaFormat, told: str
) -> None:
    """Nothing is stored, and the words say which field is wrong."""
    async with world.at_work(settings=QUICK) as scene:
        with pytest.raises(InvalidInput, match=told):
            await scene.prompt("Which file?", format=format)
        assert await scene.messages() == []
