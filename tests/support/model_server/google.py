"""A scripted answer as Google's Gemini API streams it; it sends the arguments of a call at once."""

import base64
import json
from collections.abc import Iterator
from typing import Any

from tests.support.model_server.answers import (
    Answer,
    Call,
    Fault,
    Item,
    Junk,
    Refusal,
    Text,
    Thinking,
    Usage,
    finish_of,
)
from tests.support.model_server.requests import Request

_FINISH = {"length": "MAX_TOKENS", "content-filter": "SAFETY"}


def frames(reply: Answer, request: Request, call_id: Iterator[str]) -> Iterator[Item | bytes]:
    """The frames of an answer in order, between them the items that are not words."""
    for item in reply.items:
        if isinstance(item, Text):
            yield from (_parts({"text": piece}) for piece in item.pieces)
        elif isinstance(item, Thinking):
            yield from (_parts({"text": piece, "thought": True}) for piece in item.pieces)
        elif isinstance(item, Call):
            yield _call(item, item.id or next(call_id))
        elif isinstance(item, Fault):
            error = {"code": 503, "message": item.message, "status": "UNAVAILABLE"}
            yield _data({"error": error})
        elif isinstance(item, Junk):
            yield item.text.encode()
        else:
            yield item
    if reply.ends:
        finish = _FINISH.get(finish_of(reply), "STOP")
        usage = {"usageMetadata": _usage(reply.usage)} if reply.usage is not None else {}
        yield _data({"candidates": [{"finishReason": finish, "index": 0}], **usage})


def error_body(refusal: Refusal) -> str:
    """An error as Google writes it."""
    error = {"code": refusal.status, "message": refusal.message, "status": refusal.code}
    return json.dumps({"error": error})


def _call(call: Call, id: str) -> bytes:
    arguments = json.loads("".join(call.pieces) or "{}")
    function = {"id": id, "name": call.name, "args": arguments}
    signature = base64.b64encode(f"signed {id}".encode()).decode()
    return _parts({"functionCall": function, "thoughtSignature": signature})


def _parts(*parts: dict[str, Any]) -> bytes:
    return _data({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]})


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "promptTokenCount": usage.input + usage.cache_read,
        "cachedContentTokenCount": usage.cache_read,
        "candidatesTokenCount": usage.output,
        "thoughtsTokenCount": usage.reasoning,
        "totalTokenCount": usage.input + usage.cache_read + usage.output + usage.reasoning,
    }


def _data(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()
