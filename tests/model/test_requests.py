"""What kedge asks is what the provider gets: conversation, tools, files and settings."""

import base64
from typing import Any

import pytest

from kedge.agent.tools.builtin import BUILTIN
from kedge.config.values import LimitConfig
from kedge.model.port import (
    AssistantTurn,
    Media,
    ModelRequest,
    Reasoning,
    ReasoningEnded,
    Text,
    ToolCalled,
    ToolResult,
    ToolUse,
    UserTurn,
)
from tests.model.scene import (
    ANTHROPIC,
    CHAT,
    GOOGLE,
    KEY,
    READ,
    ask,
    asking,
    both_protocols,
    every_protocol,
    scripted,
    thought_of,
)
from tests.support.model_server import Call, Request, Thinking, answer
from tests.support.model_server import Text as Said

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def sent(request: ModelRequest, npm: str = CHAT, **model: Any) -> Request:  # noqa: ANN401
    """The request as it reached the provider."""
    async with scripted([answer(Said.of("ok"))], npm, **model) as (server, asked):
        await ask(asked, request)
    return server.requests[0]


def conversation(*turns: UserTurn | AssistantTurn, **more: Any) -> ModelRequest:  # noqa: ANN401
    """A request with these turns."""
    return ModelRequest(**{"system": (), "turns": turns, **more})


@both_protocols
async def test_the_system_text_and_the_prompt_arrive(npm: str) -> None:
    """The system text comes first and the prompt after it, as they were written."""
    got = await sent(asking("How do you do?"), npm)
    assert (got.system, got.prompt) == ("Be brief.", "How do you do?")
    assert got.body["model"] == "fake-model"
    assert got.body["stream"] is True


async def test_chat_completions_have_one_system_message() -> None:
    """Servers of open models often refuse a second one."""
    got = await sent(asking(system=("Be brief.", "", "Be kind.")))
    assert [message["role"] for message in got.body["messages"]] == ["system", "user"]
    assert got.system == "Be brief.\n\nBe kind."


@both_protocols
async def test_the_key_arrives(npm: str) -> None:
    """The key is sent in the headers that the protocol has for it, and in no other."""
    headers = (await sent(asking(), npm)).headers
    names = {"authorization", "x-api-key"} if npm == ANTHROPIC else {"authorization"}
    assert {key for key, value in headers.items() if KEY in value} == names


@every_protocol
async def test_tools_arrive_with_their_schemas_as_they_are(npm: str) -> None:
    """Name, description and schema of each tool are not touched."""
    specs = (READ, *(tool.spec for tool in BUILTIN if tool.name != READ.name))
    got = await sent(asking(tools=specs), npm)
    told = got.body["tools"]
    if npm == GOOGLE:
        told = [one for tool in told for one in tool["functionDeclarations"]]
    told = [tool.get("function", tool) for tool in told]
    assert [(tool["name"], tool["description"]) for tool in told] == [
        (spec.name, spec.description) for spec in specs
    ]
    schemas = ("parameters", "input_schema", "parameters_json_schema")
    found = [next(tool[key] for key in schemas if key in tool) for tool in told]
    assert found == [spec.parameters for spec in specs]


@every_protocol
async def test_tools_that_must_not_be_called_are_told_all_the_same(npm: str) -> None:
    """Providers want to know the tools that were called before, and cache them."""
    free = await sent(asking(tools=(READ,)), npm)
    bound = await sent(asking(tools=(READ,), tool_choice="none"), npm)
    assert (free.may_call, bound.may_call) == (True, False)
    assert bound.body["tools"] == free.body["tools"]
    without = await sent(asking(tool_choice="none"), npm)
    assert not {"tools", "tool_choice", "toolConfig"} & set(without.body)


async def test_calls_and_results_round_trip_in_chat_completions() -> None:
    """A call and its result keep their ids over a second request."""
    got = await sent(
        conversation(
            UserTurn(content=(Text(text="read it"),)),
            AssistantTurn(
                content=(
                    Text(text="Well."),
                    ToolUse(call_id="c1", name="read", input={"filePath": "a"}),
                    ToolUse(call_id="c2", name="read", input={"filePath": "b"}),
                ),
                model="fake/fake-model",
            ),
            UserTurn(
                content=(
                    ToolResult(call_id="c1", name="read", output="one"),
                    ToolResult(call_id="c2", name="read", output="no such file", is_error=True),
                )
            ),
            tools=(READ,),
        )
    )
    _, called, first, second = got.body["messages"]
    assert called["content"] == "Well."
    assert [call["id"] for call in called["tool_calls"]] == ["c1", "c2"]
    assert [call["function"]["arguments"] for call in called["tool_calls"]] == [
        '{"filePath":"a"}',
        '{"filePath":"b"}',
    ]
    assert first == {"role": "tool", "tool_call_id": "c1", "content": "one"}
    assert second["tool_call_id"] == "c2"
    assert "no such file" in second["content"]
    assert got.rounds == 1


async def test_calls_and_results_round_trip_in_anthropics_protocol() -> None:
    """Ids that Anthropic would refuse are written differently, the same way on both sides."""
    got = await sent(
        conversation(
            UserTurn(content=(Text(text="read it"),)),
            AssistantTurn(
                content=(ToolUse(call_id="call:1/x", name="read", input={"filePath": "a"}),),
            ),
            UserTurn(
                content=(
                    Text(text="and be quick"),
                    ToolResult(call_id="call:1/x", name="read", output="gone", is_error=True),
                )
            ),
            tools=(READ,),
        ),
        ANTHROPIC,
    )
    _, called, results = got.body["messages"]
    assert called["content"][0]["id"] == "call_1_x"
    assert called["content"][0]["input"] == {"filePath": "a"}
    result, said = results["content"]
    assert (result["type"], result["tool_use_id"]) == ("tool_result", "call_1_x")
    assert result["is_error"] is True
    assert said["text"] == "and be quick"


async def test_a_signed_thought_goes_back_to_the_model_that_had_it() -> None:
    """The thought is handed back with its signature, as Anthropic wants it with tool calls."""
    thinking = Thinking.of("hm ", "yes", signature="signed-by-them")
    call = Call.of("read", call_id="c1", filePath="a")
    async with scripted([answer(thinking, call), answer(Said.of("ok"))], ANTHROPIC) as (
        server,
        model,
    ):
        events = await ask(model, asking("go", tools=(READ,)))
        ended = next(event for event in events if isinstance(event, ReasoningEnded))
        thought = Reasoning(text=thought_of(events), metadata=ended.metadata)
        called = next(event for event in events if isinstance(event, ToolCalled))
        use = ToolUse(call_id="c1", name="read", input=called.input or {})
        await ask(model, _again(thought, use, "fake/fake-model"))
        block = server.requests[1].body["messages"][1]["content"][0]
    assert (block["type"], block["thinking"]) == ("thinking", "hm yes")
    assert block["signature"] == "signed-by-them"


async def test_a_thought_goes_back_in_the_field_it_came_in() -> None:
    """Servers of open models get their thoughts back where they put them."""
    call = Call.of("read", call_id="c1", filePath="a")
    async with scripted([answer(Thinking.of("hm"), call), answer(Said.of("ok"))]) as (
        server,
        model,
    ):
        events = await ask(model, asking("go", tools=(READ,)))
        ended = next(event for event in events if isinstance(event, ReasoningEnded))
        thought = Reasoning(text="hm", metadata=ended.metadata)
        use = ToolUse(call_id="c1", name="read", input={"filePath": "a"})
        await ask(model, _again(thought, use, "fake/fake-model"))
        assert server.requests[1].messages[1]["reasoning_content"] == "hm"


@both_protocols
@pytest.mark.parametrize("model", ["", "other/fake-model", "fake/other"])
async def test_a_thought_is_not_shown_to_another_model(npm: str, model: str) -> None:
    """What one model thought, and the signature on it, are nothing for another one."""
    thought = Reasoning(text="secret thought", metadata={"provider": "x", "signature": "sig"})
    use = ToolUse(call_id="c1", name="read", input={}, metadata={"details": {"x": "sig"}})
    got = await sent(_again(thought, use, model), npm)
    assert "secret thought" not in repr(got.body)
    assert "'sig'" not in repr(got.body)


@both_protocols
async def test_an_unsigned_thought_is_left_out(npm: str) -> None:
    """A thought that was cut off before it was signed would be refused."""
    thought = Reasoning(text="unfinished thought")
    use = ToolUse(call_id="c1", name="read", input={})
    got = await sent(_again(thought, use, "fake/fake-model"), npm)
    assert "unfinished thought" not in repr(got.body)


def _again(thought: Reasoning, use: ToolUse, model: str) -> ModelRequest:
    return conversation(
        UserTurn(content=(Text(text="go"),)),
        AssistantTurn(content=(thought, use), model=model),
        UserTurn(content=(ToolResult(call_id="c1", name="read", output="text"),)),
        tools=(READ,),
    )


async def test_empty_texts_and_turns_are_left_out() -> None:
    """Providers refuse empty blocks, and an answer that was aborted at once is one."""
    got = await sent(
        conversation(
            UserTurn(content=(Text(text=""), Text(text="one"))),
            AssistantTurn(content=(Text(text=""),)),
            AssistantTurn(content=()),
            UserTurn(content=(Text(text=""),)),
            UserTurn(content=(Text(text="two"),)),
        ),
        ANTHROPIC,
    )
    texts = [block["text"] for message in got.body["messages"] for block in message["content"]]
    assert texts == ["one", "two"]


@every_protocol
async def test_a_conversation_that_begins_with_nothing(npm: str) -> None:
    """Nothing stands in for what nobody said."""
    got = await sent(
        conversation(
            UserTurn(content=(Text(text=""),)),
            AssistantTurn(content=(Text(text="one"),)),
            UserTurn(content=(Text(text="two"),)),
            system=("Be brief.",),
        ),
        npm,
    )
    assert (got.system, got.prompt) == ("Be brief.", "two")


async def test_an_image_arrives_in_chat_completions() -> None:
    """An image is sent as it is, beside the text."""
    got = await sent(_with_media(Media(mime="image/png", data=PIXEL)))
    text, image = got.body["messages"][0]["content"]
    assert text == {"type": "text", "text": "look"}
    encoded = base64.b64encode(PIXEL).decode()
    assert image["image_url"]["url"] == f"data:image/png;base64,{encoded}"


async def test_an_image_arrives_in_anthropics_protocol() -> None:
    """An image is sent as it is, beside the text."""
    got = await sent(_with_media(Media(mime="image/png", data=PIXEL)), ANTHROPIC)
    text, image = got.body["messages"][0]["content"]
    assert text["text"] == "look"
    assert image["source"]["media_type"] == "image/png"
    assert base64.b64decode(image["source"]["data"]) == PIXEL


@both_protocols
async def test_a_pdf_arrives(npm: str) -> None:
    """A document is sent as one."""
    got = await sent(
        _with_media(Media(mime="application/pdf", data=b"%PDF-1.7", filename="a")), npm
    )
    assert got.body["messages"][0]["content"][1]["type"] in ("file", "document")
    assert base64.b64encode(b"%PDF-1.7").decode() in repr(got.body)


@both_protocols
async def test_an_image_of_a_tool_arrives(npm: str) -> None:
    """What a tool read may be an image."""
    pixel = Media(mime="image/png", data=PIXEL)
    result = ToolResult(call_id="c1", name="read", output="an image", media=(pixel,))
    request = conversation(
        UserTurn(content=(Text(text="go"),)),
        AssistantTurn(content=(ToolUse(call_id="c1", name="read", input={}),)),
        UserTurn(content=(result,)),
        tools=(READ,),
    )
    got = await sent(request, npm)
    assert base64.b64encode(PIXEL).decode() in repr(got.body)
    assert "an image" in repr(got.body)


@both_protocols
@pytest.mark.parametrize("mime", ["image/png", "application/pdf", "video/mp4", "x/unheard-of", ""])
async def test_what_a_model_cannot_see_is_named_instead(npm: str, mime: str) -> None:
    """A model that takes no such file is told so, and no request fails over it."""
    media = Media(mime=mime, data=PIXEL, filename="pic.png")
    got = await sent(_with_media(media), npm, attachment=False)
    assert "pic.png" in got.prompt
    assert "left out" in got.prompt


@both_protocols
async def test_numbers_for_sampling_and_the_output_limit(npm: str) -> None:
    """Temperature and top-p are sent if wanted; the answer may be as long as the model can."""
    got = await sent(asking(temperature=0.5, top_p=0.9), npm)
    assert (got.body["temperature"], got.body["top_p"]) == (0.5, 0.9)
    assert _output_limit(got) == 10_000
    got = await sent(asking(), npm, limit=LimitConfig(context=200_000, output=64_000))
    assert "temperature" not in got.body
    assert _output_limit(got) == 32_000
    got = await sent(asking(temperature=0.5), npm, temperature=False)
    assert "temperature" not in got.body


def _output_limit(got: Request) -> int | None:
    body = got.body
    limit: int | None = body.get("max_tokens", body.get("max_completion_tokens"))
    return limit


async def test_options_of_an_openai_compatible_model() -> None:
    """Options have OpenCode's names; those that kedge does not know go out as they are."""
    options = {"reasoningEffort": "high", "chat_template_kwargs": {"enable_thinking": True}}
    got = await sent(asking(options=options), options={"seed": 7, "reasoningEffort": "low"})
    assert got.body["reasoning_effort"] == "high"
    assert got.body["seed"] == 7
    assert got.body["chat_template_kwargs"] == {"enable_thinking": True}


async def test_options_of_an_anthropic_model() -> None:
    """A budget for thoughts makes room for them, and rules a temperature out."""
    options = {"thinking": {"type": "enabled", "budgetTokens": 16_000}}
    limit = LimitConfig(context=200_000, output=64_000)
    got = await sent(asking(options=options, temperature=0.5), ANTHROPIC, limit=limit)
    assert got.body["thinking"] == {"type": "enabled", "budget_tokens": 16_000}
    assert got.body["max_tokens"] == 48_000
    assert "temperature" not in got.body


async def test_anthropics_cache_is_used() -> None:
    """System text, tools and conversation are marked, so that the next request is cheap."""
    got = await sent(asking(tools=(READ,)), ANTHROPIC)
    marked = [
        got.body["system"][-1],
        got.body["tools"][-1],
        got.body["messages"][-1]["content"][-1],
    ]
    assert all(item["cache_control"]["type"] == "ephemeral" for item in marked)


@both_protocols
async def test_headers_of_a_model_arrive(npm: str) -> None:
    """A model may have headers of its own."""
    got = await sent(asking(), npm, headers={"x-team": "blue"})
    assert got.headers["x-team"] == "blue"


async def test_usage_is_asked_for() -> None:
    """OpenAI's protocol tells what was used only if it is asked to."""
    got = await sent(asking())
    assert got.body["stream_options"] == {"include_usage": True}


def _with_media(media: Media) -> ModelRequest:
    return conversation(UserTurn(content=(Text(text="look"), media)))
