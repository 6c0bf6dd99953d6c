"""A scripted answer as OpenAI's chat completions stream it."""

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

_FINISH = {"tool-calls": "tool_calls", "content-filter": "content_filter"}


def frames(reply: Answer, request: Request, call_id: Iterator[str]) -> Iterator[Item | bytes]:
    """The frames of an answer in order, between them the items that are not words."""
    head = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": request.body.get("model", ""),
    }
    yield _frame(head, {"role": "assistant", "content": ""})
    calls = 0
    for item in reply.items:
        if isinstance(item, Text):
            yield from (_frame(head, {"content": piece}) for piece in item.pieces)
        elif isinstance(item, Thinking):
            yield from (_frame(head, {"reasoning_content": piece}) for piece in item.pieces)
        elif isinstance(item, Call):
            yield from _call(head, item, item.id or next(call_id), calls)
            calls += 1
        elif isinstance(item, Fault):
            error = {"message": item.message, "type": item.kind, "code": item.kind}
            yield _data({"error": error})
        elif isinstance(item, Junk):
            yield item.text.encode()
        else:
            yield item
    if not reply.ends:
        return
    finish = finish_of(reply)
    yield _frame(head, {}, finish=_FINISH.get(finish, finish))
    if reply.usage is not None and request.body.get("stream_options", {}).get("include_usage"):
        yield _data({**head, "choices": [], "usage": _usage(reply.usage)})
    yield b"data: [DONE]\n\n"


def error_body(refusal: Refusal) -> str:
    """An error as OpenAI writes it."""
    error = {"message": refusal.message, "type": refusal.code, "code": refusal.code}
    return json.dumps({"error": error})


def _call(head: dict[str, Any], call: Call, id: str, index: int) -> Iterator[bytes]:
    function = {"name": call.name, "arguments": ""}
    start = {"index": index, "id": id, "type": "function", "function": function}
    yield _frame(head, {"tool_calls": [start]})
    for piece in call.pieces:
        more = {"index": index, "function": {"arguments": piece}}
        yield _frame(head, {"tool_calls": [more]})


def _usage(usage: Usage) -> dict[str, Any]:
    prompt, completion = usage.input + usage.cache_read, usage.output + usage.reasoning
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _frame(head: dict[str, Any], delta: dict[str, Any], finish: str | None = None) -> bytes:
    return _data({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _data(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()
