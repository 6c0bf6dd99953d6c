"""A model behind a server that sends raw bytes, and the frames that real servers send."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kedge.model.catalog import Catalog
from kedge.model.port import (
    Model,
    ModelEvent,
    ModelFailure,
    ReasoningDelta,
    TextDelta,
    ToolCalled,
)
from tests.model.scene import CHAT, KEY, READ, ask, asking, config_for
from tests.support.raw_server import Raw, RawServer

DONE = b"data: [DONE]\n\n"
STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def sse(*frames: object) -> bytes:
    """Each frame as an event; text and bytes as they are."""
    return b"".join(_event(frame) for frame in frames)


def _event(frame: object) -> bytes:
    if isinstance(frame, bytes):
        return frame
    if isinstance(frame, dict) and isinstance(frame.get("type"), str):
        return f"event: {frame['type']}\ndata: {json.dumps(frame)}\n\n".encode()
    return f"data: {json.dumps(frame)}\n\n".encode()


def chunk(delta: Any, finish: Any = None, **also: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """A frame of a chat."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m"}
    return {**head, "choices": [choice], **also}


def said(text: str, finish: Any = None) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """A frame with words."""
    return chunk({"content": text}, finish)


def calls(*deltas: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    """A frame with pieces of tool calls."""
    return chunk({"tool_calls": list(deltas)}, finish)


@asynccontextmanager
async def sending(
    *answers: bytes | Raw,
    npm: str = CHAT,
    silence_ms: int | None = None,
    **model: Any,  # noqa: ANN401
) -> AsyncIterator[tuple[RawServer, Model]]:
    """A server that sends these bytes, and a model that is answered by it."""
    raws = [each if isinstance(each, Raw) else Raw(body=each) for each in answers]
    async with RawServer(raws) as server:
        config = config_for(server.url, npm, **model)
        if silence_ms is not None:
            config.provider["fake"].options["timeout"] = silence_ms
        catalog = Catalog(config, {})
        try:
            yield server, catalog.open(catalog.model("fake", "fake-model"))
        finally:
            await catalog.aclose()


async def heard(answer: bytes | Raw, npm: str = CHAT, **more: Any) -> list[ModelEvent]:  # noqa: ANN401
    """The events that bytes come to."""
    async with sending(answer, npm=npm, **more) as (_, model):
        return await ask(model, asking(tools=(READ,)))


async def failed(answer: bytes | Raw, npm: str = CHAT, **more: Any) -> ModelFailure:  # noqa: ANN401
    """The failure that bytes come to."""
    async with sending(answer, npm=npm, **more) as (_, model):
        with pytest.raises(ModelFailure) as caught:
            await ask(model, asking(tools=(READ,)))
    assert KEY not in repr(caught.value.failure)
    return caught.value


def called(events: list[ModelEvent]) -> list[tuple[str, Any]]:
    """Names and arguments of the calls."""
    return [(each.name, each.input) for each in events if isinstance(each, ToolCalled)]


def merged(events: list[ModelEvent]) -> list[ModelEvent]:
    """The events with neighbouring pieces joined."""
    found: list[ModelEvent] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta):
            found[-1] = TextDelta(text=last.text + event.text)
        elif isinstance(event, ReasoningDelta) and isinstance(last, ReasoningDelta):
            found[-1] = ReasoningDelta(text=last.text + event.text)
        else:
            found.append(event)
    return found
