"""A scripted answer as OpenAI's Responses API streams it."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

from tests.support.model_server.answers import (
    Answer,
    Call,
    Fault,
    Item,
    Junk,
    Text,
    Thinking,
    Usage,
    finish_of,
)
from tests.support.model_server.requests import Request

_INCOMPLETE = {"length": "max_output_tokens", "content-filter": "content_filter"}


class _Writer:
    """Numbers the events, as the protocol wants it."""

    def __init__(self, request: Request) -> None:
        self._numbers = itertools.count()
        self._head = {
            "id": "resp_scripted",
            "object": "response",
            "created_at": 1_700_000_000,
            "model": request.body.get("model", ""),
            "output": [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }

    def event(self, kind: str, **value: Any) -> bytes:  # noqa: ANN401
        """One event."""
        whole = {"type": kind, "sequence_number": next(self._numbers), **value}
        return f"event: {kind}\ndata: {json.dumps(whole)}\n\n".encode()

    def response(self, kind: str, status: str, **value: Any) -> bytes:  # noqa: ANN401
        """One event about the whole answer."""
        return self.event(kind, response={**self._head, "status": status, **value})


def frames(reply: Answer, request: Request, call_id: Iterator[str]) -> Iterator[Item | bytes]:
    """The frames of an answer in order, between them the items that are not words."""
    writer = _Writer(request)
    yield writer.response("response.created", "in_progress")
    for index, item in enumerate(reply.items):
        if isinstance(item, Text):
            yield from _text(writer, item, index)
        elif isinstance(item, Thinking):
            yield from _thought(writer, item, index)
        elif isinstance(item, Call):
            yield from _call(writer, item, item.id or next(call_id), index)
        elif isinstance(item, Fault):
            yield writer.event("error", code=item.kind, message=item.message, param=None)
        elif isinstance(item, Junk):
            yield item.text.encode()
        else:
            yield item
    if not reply.ends:
        return
    usage = {"usage": _usage(reply.usage)} if reply.usage is not None else {}
    if (reason := _INCOMPLETE.get(finish_of(reply))) is not None:
        details = {"incomplete_details": {"reason": reason}}
        yield writer.response("response.incomplete", "incomplete", **details, **usage)
    else:
        yield writer.response("response.completed", "completed", **usage)


def _text(writer: _Writer, item: Text, index: int) -> Iterator[bytes]:
    id = f"msg_{index}"
    message = {"id": id, "type": "message", "role": "assistant", "content": []}
    where = {"item_id": id, "output_index": index, "content_index": 0}
    added = {**message, "status": "in_progress"}
    yield writer.event("response.output_item.added", output_index=index, item=added)
    for piece in item.pieces:
        yield writer.event("response.output_text.delta", delta=piece, logprobs=[], **where)
    whole = "".join(item.pieces)
    yield writer.event("response.output_text.done", text=whole, logprobs=[], **where)
    done = {**message, "status": "completed"}
    yield writer.event("response.output_item.done", output_index=index, item=done)


def _thought(writer: _Writer, item: Thinking, index: int) -> Iterator[bytes]:
    """Each piece is a paragraph of the summary, as the protocol splits it."""
    id = f"rs_{index}"
    reasoning = {"id": id, "type": "reasoning", "summary": []}
    yield writer.event("response.output_item.added", output_index=index, item=reasoning)
    for number, piece in enumerate(item.pieces):
        where = {"item_id": id, "output_index": index, "summary_index": number}
        part = {"type": "summary_text", "text": ""}
        yield writer.event("response.reasoning_summary_part.added", part=part, **where)
        yield writer.event("response.reasoning_summary_text.delta", delta=piece, **where)
    done = {**reasoning, "encrypted_content": item.signature or None}
    yield writer.event("response.output_item.done", output_index=index, item=done)


def _call(writer: _Writer, call: Call, call_id: str, index: int) -> Iterator[bytes]:
    id = f"fc_{index}"
    function = {"id": id, "type": "function_call", "call_id": call_id, "name": call.name}
    added = {**function, "arguments": "", "status": "in_progress"}
    where = {"item_id": id, "output_index": index}
    yield writer.event("response.output_item.added", output_index=index, item=added)
    for piece in call.pieces:
        yield writer.event("response.function_call_arguments.delta", delta=piece, **where)
    whole = "".join(call.pieces)
    yield writer.event("response.function_call_arguments.done", arguments=whole, **where)
    done = {**function, "arguments": whole, "status": "completed"}
    yield writer.event("response.output_item.done", output_index=index, item=done)


def _usage(usage: Usage) -> dict[str, Any]:
    given, made = usage.input + usage.cache_read, usage.output + usage.reasoning
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": usage.cache_read},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": given + made,
    }
