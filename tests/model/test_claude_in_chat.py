"""Claude behind servers of chat completions, as OpenRouter and LiteLLM are: its cache is used, its
thoughts go back as they came, and no server is asked for what it does not take."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kedge.model.catalog import Catalog
from kedge.model.port import (
    AssistantTurn,
    Model,
    ModelEvent,
    ModelFailure,
    ModelRequest,
    Reasoning,
    ReasoningEnded,
    Text,
    ToolCalled,
    ToolResult,
    ToolUse,
    UserTurn,
)
from tests.model.scene import CHAT, READ, ask, asking, config_for, text_of, thought_of
from tests.support.model_server import (
    Call,
    Junk,
    ModelServer,
    Refusal,
    Reply,
    Request,
    Script,
    answer,
)
from tests.support.model_server import Text as Said

OK = answer(Said.of("ok"))


@asynccontextmanager
async def behind(
    script: Script, model_id: str = "anthropic/claude-sonnet-5.5"
) -> AsyncIterator[tuple[ModelServer, Model]]:
    """A model under another name at its provider."""
    async with ModelServer(script) as server:
        catalog = Catalog(config_for(server.url, CHAT, id=model_id), {})
        try:
            yield server, catalog.open(catalog.model("fake", "fake-model"))
        finally:
            await catalog.aclose()


def _conversation(*, results: int = 2) -> ModelRequest:
    uses = [ToolUse(call_id=f"c{n}", name="read", input={}) for n in range(results)]
    read = [ToolResult(call_id=f"c{n}", name="read", output=f"text {n}") for n in range(results)]
    turns = (
        UserTurn(content=(Text(text="one"),)),
        AssistantTurn(content=(Text(text="two"),)),
        UserTurn(content=(Text(text="three"),)),
        AssistantTurn(content=tuple(uses)),
        UserTurn(content=tuple(read)),
    )
    return ModelRequest(system=("Be brief.",), turns=turns, tools=(READ,))


def _marked(request: Request) -> list[str]:
    return [
        block["text"]
        for message in request.body["messages"]
        for block in (message["content"] if isinstance(message["content"], list) else [])
        if block.get("cache_control") == {"type": "ephemeral"}
    ]


async def test_the_ends_of_this_request_and_of_the_last_are_marked() -> None:
    """And the system text, which stands behind the tools."""
    async with behind([OK]) as (server, model):
        await ask(model, _conversation())
        assert _marked(server.requests[0]) == ["Be brief.", "three", "text 1"]


async def test_an_empty_result_is_not_marked() -> None:
    """Claude refuses a mark on a text that is none."""
    use = ToolUse(call_id="c", name="read", input={})
    turns = (
        UserTurn(content=(Text(text="one"),)),
        AssistantTurn(content=(use,)),
        UserTurn(content=(ToolResult(call_id="c", name="read", output=""),)),
    )
    async with behind([OK]) as (server, model):
        await ask(model, ModelRequest(system=(), turns=turns, tools=(READ,)))
        assert _marked(server.requests[0]) == ["one"]


async def test_the_last_result_that_is_not_empty_is_marked() -> None:
    """What stands before an empty one is worth to be found again."""
    uses = tuple(ToolUse(call_id=id, name="read", input={}) for id in "ab")
    results = (
        ToolResult(call_id="a", name="read", output="text"),
        ToolResult(call_id="b", name="read", output=""),
    )
    turns = (
        UserTurn(content=(Text(text="one"),)),
        AssistantTurn(content=uses),
        UserTurn(content=results),
    )
    async with behind([OK]) as (server, model):
        await ask(model, ModelRequest(system=(), turns=turns, tools=(READ,)))
        assert _marked(server.requests[0]) == ["one", "text"]


async def test_other_models_are_asked_without_marks() -> None:
    """Their servers may refuse what they do not know."""
    async with behind([OK], "openai/gpt-6") as (server, model):
        await ask(model, _conversation())
        assert "cache_control" not in json.dumps(server.requests[0].body)
        assert server.requests[0].messages[1]["content"] == "one"


@pytest.mark.parametrize("status", [400, 422])
async def test_a_server_that_refuses_marks_is_asked_without_them(status: int) -> None:
    """At once, and from then on."""

    def strict(request: Request) -> Reply:
        is_marked = "cache_control" in json.dumps(request.body)
        return Refusal(status=status, message="extra fields") if is_marked else OK

    async with behind(strict) as (server, model):
        for _ in range(2):
            assert text_of(await ask(model, _conversation())) == "ok"
        marks = [bool(_marked(each)) for each in server.requests]
        assert marks == [True, False, False]
        assert server.requests[1].messages[1]["content"] == "one"


@pytest.mark.parametrize(
    "message",
    [
        "json: cannot unmarshal array into Go struct field Message.content of type string",
        "Input should be a valid string: messages[0]",
        "'list' object has no attribute 'strip'",
    ],
)
async def test_a_server_that_falls_over_lists_is_asked_without_them(message: str) -> None:
    """Some gateways take text alone, and answer anything else with a fault of their own."""

    def plain(request: Request) -> Reply:
        has_lists = any(isinstance(each["content"], list) for each in request.messages)
        return Refusal(status=500, message=message) if has_lists else OK

    async with behind(plain) as (server, model):
        for _ in range(2):
            assert text_of(await ask(model, _conversation())) == "ok"
        assert len(server.requests) == 3


async def test_a_fault_says_nothing_of_marks() -> None:
    """It may pass, and the cache is worth another attempt."""
    async with behind([Refusal(status=500, message="oops"), OK]) as (server, model):
        with pytest.raises(ModelFailure, match="oops"):
            await ask(model, _conversation())
        await ask(model, _conversation())
        assert all(_marked(each) for each in server.requests)


async def test_another_refusal_is_not_taken_for_one_of_marks() -> None:
    """The error is told, and a server that took marks is not asked twice."""
    wrong = Refusal(status=400, message="wrong")
    async with behind([wrong, wrong, OK, wrong, OK]) as (server, model):
        for answered in (False, True, False, True):
            if answered:
                await ask(model, _conversation())
                continue
            with pytest.raises(ModelFailure, match="wrong"):
                await ask(model, _conversation())
        marks = [bool(_marked(each)) for each in server.requests]
        assert marks == [True, False, True, True, True]


async def test_a_server_that_is_busy_says_nothing_of_marks() -> None:
    """The next request has them."""
    script: list[Reply] = [Refusal(status=400), Refusal(status=503), Refusal(status=503), OK]
    async with behind(script) as (server, model):
        for _ in range(2):
            with pytest.raises(ModelFailure):
                await ask(model, _conversation())
        await ask(model, _conversation())
        marks = [bool(_marked(each)) for each in server.requests]
        assert marks == [True, False, True, True]


DETAILS = [
    {
        "type": "reasoning.text",
        "text": "hm yes",
        "signature": "sig==",
        "format": "anthropic-claude-v1",
        "index": 0,
    },
    {
        "type": "reasoning.encrypted",
        "data": "c2VhbGVk",
        "id": "rs_1",
        "format": "anthropic-claude-v1",
        "index": 1,
    },
    {"type": "reasoning.unheard-of", "odd": [1], "index": 2},
]


def _delta(**delta: Any) -> Junk:  # noqa: ANN401
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return Junk(text=f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n")


def _piece(**said: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0, **said}


# As OpenRouter streams them: the words twice, the signature alone, what is sealed with no words.
STREAMED = (
    _delta(reasoning="hm ", reasoning_details=[_piece(text="hm ", signature=None)]),
    _delta(reasoning="yes", reasoning_details=[_piece(text="yes", signature=None)]),
    _delta(reasoning=None, reasoning_details=[_piece(signature="sig==")]),
    _delta(reasoning_details=DETAILS[1:]),
)


def _answered(events: list[ModelEvent]) -> tuple[Reasoning | ToolUse, ...]:
    """Thoughts and calls as they are kept and handed back."""
    kept: list[Reasoning | ToolUse] = []
    for event in events:
        if isinstance(event, ReasoningEnded):
            metadata = json.loads(json.dumps(event.metadata))
            kept.append(Reasoning(text=thought_of(events), metadata=metadata))
        elif isinstance(event, ToolCalled):
            kept.append(ToolUse(call_id=event.call_id, name=event.name, input=event.input or {}))
    return tuple(kept)


def _next(said: tuple[Reasoning | ToolUse, ...], model: str) -> ModelRequest:
    turns = (
        UserTurn(content=(Text(text="go"),)),
        AssistantTurn(content=said, model=model),
        UserTurn(content=(ToolResult(call_id="c1", name="read", output="text"),)),
    )
    return ModelRequest(system=(), turns=turns, tools=(READ,))


@pytest.mark.parametrize("model_id", ["anthropic/claude-sonnet-5.5", "openai/gpt-6"])
async def test_details_of_thoughts_go_back_as_they_came(model_id: str) -> None:
    """Put together from their pieces, in their order, with the call that they led to."""
    first = answer(*STREAMED, Call.of("read", call_id="c1", filePath="a"))
    async with behind([first, OK, OK], model_id) as (server, model):
        events = await ask(model, asking("go", tools=(READ,)))
        assert thought_of(events) == "hm yes"
        assert len([each for each in events if isinstance(each, ReasoningEnded)]) == 1
        said = _answered(events)
        await ask(model, _next(said, "fake/fake-model"))
        message = server.requests[1].messages[1]
        assert message["reasoning_details"] == DETAILS
        assert message["tool_calls"][0]["id"] == "c1"
        assert "reasoning" not in message
        # Another model has no use for them.
        await ask(model, _next(said, "fake/other"))
        assert "reasoning_details" not in json.dumps(server.requests[2].body)


async def test_details_without_words() -> None:
    """Where only the details have words, they are shown; what is sealed after a call is kept."""
    late = _delta(reasoning_details=[DETAILS[1]])
    said = (_delta(reasoning_details=[_piece(text="hm")]), Said.of("well"))
    call = Call.of("read", call_id="c1", filePath="a")
    async with behind([answer(*said, call, late), OK]) as (server, model):
        events = await ask(model, asking("go", tools=(READ,)))
        assert thought_of(events) == "hm"
        ended = [event.metadata for event in events if isinstance(event, ReasoningEnded)]
        assert [(each or {})["details"] for each in ended] == [
            {"reasoning_details": [_piece(text="hm")]},
            {"reasoning_details": [DETAILS[1]]},
        ]
        await ask(model, _next(_answered(events), "fake/fake-model"))
        sent = server.requests[1].messages[1]["reasoning_details"]
        assert sent == [_piece(text="hm"), DETAILS[1]]


@pytest.mark.parametrize("junk", [None, "words", [None, 1, "x"], {"type": "reasoning.text"}])
async def test_details_that_are_none(junk: object) -> None:
    """What is no list of details is left alone."""
    async with behind([answer(_delta(reasoning_details=junk), Said.of("ok"))]) as (_, model):
        assert text_of(await ask(model)) == "ok"
