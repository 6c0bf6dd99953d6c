"""The quicker client makes of each piece what OpenAI's own makes of it."""

from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from kedge.model.pydantic_ai.client import ChatClient

HEAD = {"id": "c1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m"}


def piece(delta: dict[str, Any], **also: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """One frame of a stream."""
    return {**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": None}], **also}


CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
PIECES = {
    "words": piece({"content": "hi"}),
    "a thought": piece({"reasoning_content": "hm", "content": None}),
    "a call": piece({"tool_calls": [CALL]}),
    "usage": {**HEAD, "choices": [], "usage": USAGE},
    "no id": {"choices": [{"delta": {"content": "hi"}}]},
    "no choices": {**HEAD, "choices": None},
    "an unknown reason": {**HEAD, "choices": [{"index": 0, "delta": {}, "finish_reason": "tired"}]},
    "an unknown tier": piece({"content": "hi"}, service_tier="on_demand"),
    "odd kinds": piece({"content": ["a", 1]}, created="soon", extra={"deep": [1]}),
    "no object": [1, 2],
    "nothing": None,
}


@pytest.fixture
def clients() -> tuple[AsyncOpenAI, AsyncOpenAI]:
    """OpenAI's client and ours; neither of them ever opens a connection."""
    return (
        AsyncOpenAI(api_key="none", http_client=httpx2.AsyncClient()),
        ChatClient(api_key="none", http_client=httpx2.AsyncClient()),
    )


@pytest.mark.parametrize("data", PIECES.values(), ids=PIECES)
def test_a_piece_is_what_it_was(data: object, clients: tuple[AsyncOpenAI, AsyncOpenAI]) -> None:
    """Whatever a server sends, right or wrong, is understood as by the client it is made from."""
    theirs, ours = (made(client, data, ChatCompletionChunk) for client in clients)
    assert ours == theirs
    if isinstance(theirs, ChatCompletionChunk):
        assert isinstance(ours, ChatCompletionChunk)
        assert repr(ours) == repr(theirs)
        assert ours.model_fields_set == theirs.model_fields_set


def test_other_answers_are_left_alone(clients: tuple[AsyncOpenAI, AsyncOpenAI]) -> None:
    """What is no piece of a stream is made as ever, however incomplete it is."""
    theirs, ours = (made(client, {"id": "c1"}, ChatCompletion) for client in clients)
    assert ours == theirs


def made(client: AsyncOpenAI, data: object, kind: type[Any]) -> object:
    """What a client makes of an answer."""
    response = httpx2.Response(200)
    return client._process_response_data(data=data, cast_to=kind, response=response)
