"""A scripted answer as Anthropic's messages stream it."""

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

_FINISH = {
    "stop": "end_turn",
    "tool-calls": "tool_use",
    "length": "max_tokens",
    "content-filter": "refusal",
}
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def frames(reply: Answer, request: Request, call_id: Iterator[str]) -> Iterator[Item | bytes]:
    """The frames of an answer in order, between them the items that are not words."""
    usage = reply.usage or Usage(input=0, output=0)
    yield _message_start(request, usage)
    yield _event("ping", {})
    index = 0
    for item in reply.items:
        if isinstance(item, Text | Thinking | Call):
            yield from _block(item, index, call_id)
            index += 1
        elif isinstance(item, Fault):
            yield _event("error", {"error": {"type": item.kind, "message": item.message}})
        elif isinstance(item, Junk):
            yield item.text.encode()
        else:
            yield item
    if not reply.ends:
        return
    finish = finish_of(reply)
    stop = {"stop_reason": _FINISH.get(finish, finish), "stop_sequence": None}
    final = {"output_tokens": usage.output + usage.reasoning}
    yield _event("message_delta", {"delta": stop, "usage": final})
    yield _event("message_stop", {})


def error_body(refusal: Refusal) -> str:
    """An error as Anthropic writes it."""
    kind = _KINDS.get(refusal.status, "api_error")
    return json.dumps({"type": "error", "error": {"type": kind, "message": refusal.message}})


def _message_start(request: Request, usage: Usage) -> bytes:
    message = {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": request.body.get("model", ""),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": usage.input,
            "cache_read_input_tokens": usage.cache_read,
            "cache_creation_input_tokens": usage.cache_write,
            "output_tokens": 1,
        },
    }
    return _event("message_start", {"message": message})


def _block(item: Text | Thinking | Call, index: int, call_id: Iterator[str]) -> Iterator[bytes]:
    start: dict[str, Any]
    deltas: list[dict[str, Any]]
    if isinstance(item, Text):
        start = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in item.pieces]
    elif isinstance(item, Thinking):
        start = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in item.pieces]
        if item.signature:
            deltas.append({"type": "signature_delta", "signature": item.signature})
    else:
        id = item.id or next(call_id)
        start = {"type": "tool_use", "id": id, "name": item.name, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in item.pieces]
    yield _event("content_block_start", {"index": index, "content_block": start})
    for delta in deltas:
        yield _event("content_block_delta", {"index": index, "delta": delta})
    yield _event("content_block_stop", {"index": index})


def _event(kind: str, value: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **value})}\n\n".encode()
