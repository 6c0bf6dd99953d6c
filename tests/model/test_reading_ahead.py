"""Words that follow words go past the provider's library; the order of all is kept."""

import asyncio

import httpx2
import pytest

from kedge.model.endpoint import Endpoint
from kedge.model.port import (
    ReasoningDelta,
    TextDelta,
    TextEnded,
    TextStarted,
    ToolCalled,
    ToolStarted,
)
from kedge.model.pydantic_ai import answer as answering
from kedge.model.pydantic_ai.chat_stream import ChatReader
from kedge.model.pydantic_ai.event_stream import EventStream
from tests.model.raw_scene import DONE, STOP, calls, chunk, heard, said, sse
from tests.model.scene import CHAT, asking, scripted
from tests.support.model_server import Text, Wait, answer
from tests.support.timeouts import PATIENCE

CALL = calls(
    {"index": 0, "id": "c1", "function": {"name": "read", "arguments": '{"filePath": "a"}'}}
)
TURNS = sse(
    *(said("one "), said("two "), CALL, said("three "), said("four ")),
    *(chunk({"reasoning": "why "}), chunk({"reasoning": "not "}), said("five "), said("six ")),
    *(STOP, DONE),
)
ENDPOINT = Endpoint(provider_id="p", protocol="chat", npm=CHAT, url="http://127.0.0.1", key="k")


async def test_the_library_gets_the_first_words_and_what_is_no_words() -> None:
    """So that it knows where a text begins and what ends it."""
    response = httpx2.Response(200, content=TURNS, request=httpx2.Request("POST", "http://a"))
    stream = EventStream(response, ChatReader(frozenset), ENDPOINT)
    past: list[str] = []

    async def say(words: str) -> None:
        past.append(words)

    stream.say = say
    passed = b"".join([each async for each in stream]).decode()
    assert past == ["two ", "four ", "six "]
    for words in past:
        assert words not in passed
    places = [passed.index(each) for each in ("one ", "read", "three ", "why ", "not ", "five ")]
    assert places == sorted(places)


@pytest.mark.parametrize("ahead", [1, 64])
async def test_the_order_is_that_of_the_stream(monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    """However much is read before it is asked for."""
    monkeypatch.setattr(answering, "_AHEAD", ahead)
    told: list[str] = []
    for event in await heard(TURNS):
        match event:
            case TextDelta(text=text) | ReasoningDelta(text=text):
                told.append(text.strip())
            case TextStarted() | TextEnded() | ToolStarted() | ToolCalled():
                told.append(type(event).__name__)
    first = ["TextStarted", "one", "two", "TextEnded", "ToolStarted", "ToolCalled"]
    more = ["TextStarted", "three", "four", "TextEnded", "why", "not"]
    assert told == [*first, *more, "TextStarted", "five", "six", "TextEnded"]


async def test_who_leaves_while_more_was_read_than_asked_for_ends_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one that reads ahead may wait for room just then."""
    monkeypatch.setattr(answering, "_AHEAD", 1)
    reply = answer(Text.of(*("word " for _ in range(100))), Wait())
    async with asyncio.timeout(PATIENCE), scripted([reply], CHAT) as (server, model):
        async with model.stream(asking()) as events:
            assert await anext(events) == TextStarted()
        await server.requests[0].ended.wait()
        assert server.requests[0].dropped
