"""A single request to a real provider: sends it, streams the answer, computes usage and cost."""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from decimal import Decimal
from functools import partial
from typing import Any

from httpx2 import Response
from pydantic_ai.direct import model_request_stream
from pydantic_ai.models import StreamedResponse
from pydantic_ai.usage import RequestUsage

from kedge.domain import wire_errors
from kedge.domain.providers import ModelInfo, Price
from kedge.domain.sessions import CacheCount, TokenCount
from kedge.model.endpoint import Endpoint, Protocol
from kedge.model.port import Finished, ModelEvent, ModelFailure, ModelRequest, ToolResult, UserTurn
from kedge.model.pydantic_ai.chat_stream import ChatReader
from kedge.model.pydantic_ai.client import Clients, responses_begun
from kedge.model.pydantic_ai.errors import (
    empty,
    filtered,
    gave_up,
    incomplete,
    translated,
)
from kedge.model.pydantic_ai.event_stream import EventStream, Reader
from kedge.model.pydantic_ai.request import parameters, settings_of
from kedge.model.pydantic_ai.stream import StreamReader, TaggedText

_MILLION = 1_000_000
# Real counts are smaller, and a sum of these still fits into every store.
_MOST_TOKENS = 10**12
_READ_NAMES = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens")
_WRITE_NAMES = ("cache_creation_input_tokens",)


def tokens_of(usage: RequestUsage) -> TokenCount:
    """Cached tokens are separated from the input, thoughts from the output."""
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return TokenCount(
        input=max(0, usage.input_tokens - cached),
        output=max(0, usage.output_tokens - usage.output_reasoning_tokens),
        reasoning=usage.output_reasoning_tokens,
        cache=CacheCount(read=usage.cache_read_tokens, write=usage.cache_write_tokens),
        total=usage.input_tokens + usage.output_tokens,
    )


def usage_of_chat(told: Mapping[str, Any]) -> RequestUsage:
    """The counts of a chat server; servers name them differently."""
    prompt, output = _count(told, "prompt_tokens"), _count(told, "completion_tokens")
    details = _details(told, "prompt_tokens_details", "input_tokens_details")
    thoughts = _count(_details(told, "completion_tokens_details"), "reasoning_tokens")
    thoughts = thoughts or _count(told, "reasoning_tokens")
    if thoughts and _count(told, "total_tokens") >= prompt + output + thoughts:
        # xAI and Perplexity count thoughts beside the output, all others as a part of it.
        output += thoughts
    return RequestUsage(
        input_tokens=prompt,
        output_tokens=output,
        cache_read_tokens=_count(details, "cached_tokens") or _count(told, *_READ_NAMES),
        cache_write_tokens=_count(details, "cache_write_tokens") or _count(told, *_WRITE_NAMES),
        output_reasoning_tokens=min(thoughts, output),
    )


def charged(told: Mapping[str, Any]) -> float | None:
    """Dollars that the server says it charged, as OpenRouter does; None if it does not say."""
    own = _dollars(told.get("cost"))
    if told.get("is_byok") is True:
        # The server's own share; the rest is charged to the account of the user's key.
        own += _dollars(_details(told, "cost_details").get("upstream_inference_cost"))
    return own or None


def cost_of(usage: RequestUsage, price: Price, listed: tuple[str, str] | None) -> float:
    """The cost in dollars: from the public list for `listed` (provider and model), else by
    `price`."""
    if listed is not None and (cost := _listed_cost(usage, *listed)) is not None:
        return cost
    tokens = tokens_of(usage)
    # In exact numbers, so that a sum over many answers does not drift.
    total = (
        _exact(price.input) * tokens.input
        + _exact(price.output) * (tokens.output + tokens.reasoning)
        + _exact(price.cache.read) * tokens.cache.read
        + _exact(price.cache.write) * tokens.cache.write
    )
    return float(total / _MILLION)


def _listed_cost(usage: RequestUsage, provider: str, model: str) -> float | None:
    from genai_prices import calc_price

    try:
        return float(calc_price(usage, model, provider_id=provider).total_price)
    except LookupError:
        return None


def _exact(number: float) -> Decimal:
    return Decimal(str(number))


def _details(told: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next((told[name] for name in names if isinstance(told.get(name), dict)), {})


def _count(told: Mapping[str, Any], *names: str) -> int:
    counts = (told[name] for name in names if type(told.get(name)) is int)
    return next((count for count in counts if 0 < count <= _MOST_TOKENS), 0)


def _dollars(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 < value < math.inf else 0.0


_WORDS = {
    "stop": "stop eos eos_token end_turn stop_sequence stop_token end done complete completed"
    " finish finished compaction",
    "length": "length max_tokens max_output_tokens max_length model_length token_limit continuation"
    " model_context_window_exceeded",
    "tool-calls": "tool_calls tool_call tool_use function_call function_calls",
    "content-filter": "content_filter safety recitation blocklist prohibited_content spii refusal"
    " image_safety sensitive blocked guardrail_intervened",
    "error": "error failed abort aborted cancelled canceled timeout network_error language"
    " insufficient_system_resource malformed_function_call malformed_response"
    " unexpected_tool_call too_many_tool_calls missing_thought_signature",
}
_REASONS = {word: reason for reason, words in _WORDS.items() for word in words.split()}

_AHEAD = 64
"""Events that may be read ahead."""


@asynccontextmanager
async def answer(
    request: ModelRequest,
    info: ModelInfo,
    endpoint: Endpoint,
    clients: Clients,
    listed: tuple[str, str] | None,
) -> AsyncIterator[AsyncIterator[ModelEvent]]:
    """The events of the answer; leaving the block early cancels the request."""
    protocol = _checked(endpoint)
    async with AsyncExitStack() as stack:
        with responses_begun() as begun, translated(endpoint, partial(_latest, begun)):
            _ = stack.push_async_callback(_close, begun)
            model = await clients.model(endpoint, info)
            opening = model_request_stream(
                model,
                clients.conversations.messages(request, info, protocol),
                model_settings=settings_of(request, info, protocol, model.profile),
                model_request_parameters=parameters(request),
                instrument=False,
            )
            response = await stack.enter_async_context(opening)
        events = _events(
            response, info, endpoint, listed, begun, may_be_empty=_may_be_empty(request, info)
        )
        async with aclosing(events):
            yield events


async def _close(begun: list[Response]) -> None:
    for response in begun:
        await response.aclose()


def _checked(endpoint: Endpoint) -> Protocol:
    if (problem := endpoint.problem()) is not None:
        raise incomplete(endpoint, problem)
    assert endpoint.protocol is not None
    return endpoint.protocol


async def _events(
    response: StreamedResponse,
    info: ModelInfo,
    endpoint: Endpoint,
    listed: tuple[str, str] | None,
    begun: list[Response],
    *,
    may_be_empty: bool,
) -> AsyncGenerator[ModelEvent, None]:
    listener = StreamReader(TaggedText() if endpoint.protocol == "chat" else None)
    async with aclosing(_said(response, endpoint, begun, listener)) as events:
        async for event in events:
            yield event
    reader = _reader_of(begun[-1])
    tokens, cost = _counted(response, reader, info, listed)
    try:
        reason = _reason(reader, endpoint, listener, may_be_empty=may_be_empty)
    except ModelFailure as failure:
        # An unusable answer costs money like any other.
        failure.tokens, failure.cost = tokens, cost
        raise
    yield Finished(reason=reason, tokens=tokens, cost=cost)


async def _said(
    response: StreamedResponse, endpoint: Endpoint, begun: list[Response], listener: StreamReader
) -> AsyncGenerator[ModelEvent, None]:
    said: asyncio.Queue[ModelEvent | Exception | None] = asyncio.Queue(_AHEAD)
    listening = asyncio.create_task(_listen(response, begun, listener, said))
    try:
        while (each := await said.get()) is not None:
            if isinstance(each, Exception):
                # Only around the library's work: what the caller raises between two events is its
                # own.
                with translated(endpoint, partial(_latest, begun)):
                    raise each
            yield each
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    refusal = (response.provider_details or {}).get("refusal")
    is_said = _reason_in(_reader_of(begun[-1])) == "stop"
    for last in (*listener.refuse(refusal or ""), *listener.end(is_said=is_said)):
        yield last


async def _listen(
    response: StreamedResponse,
    begun: list[Response],
    listener: StreamReader,
    said: asyncio.Queue[ModelEvent | Exception | None],
) -> None:
    """Put events into a queue, and at the end the error that ended the stream, or None.

    Words that follow words bypass the library: it only passes them on, and takes longer for that
    than everything else takes for the rest.
    """

    async def say(words: str) -> None:
        for each in listener.speak(words):
            await said.put(each)

    stream = begun[-1].stream
    assert isinstance(stream, EventStream)
    if isinstance(stream.reader, ChatReader):
        stream.say = say
    try:
        async for event in response:
            for each in listener.hear(event):
                await said.put(each)
    except Exception as error:  # noqa: BLE001 - whatever it is, who hears the answer is told
        await said.put(error)
    else:
        await said.put(None)


def _counted(
    response: StreamedResponse, reader: Reader, info: ModelInfo, listed: tuple[str, str] | None
) -> tuple[TokenCount, float]:
    """Tokens and dollars of the whole answer."""
    told = reader.usage if isinstance(reader, ChatReader) else {}
    usage = usage_of_chat(told) if isinstance(reader, ChatReader) else response.usage
    return tokens_of(usage), charged(told) or cost_of(usage, info.cost, listed)


def _latest(begun: list[Response]) -> str | None:
    stream = begun[-1].stream if begun else None
    return stream.latest.decode() if isinstance(stream, EventStream) else None


def _reader_of(response: Response) -> Reader:
    assert isinstance(response.stream, EventStream)
    return response.stream.reader


def _may_be_empty(request: ModelRequest, info: ModelInfo) -> bool:
    """Whether an empty answer is valid: Claude sends one after its work is done."""
    last = request.turns[-1] if request.turns else None
    return (
        "claude" in info.api.id.lower()
        and isinstance(last, UserTurn)
        and any(isinstance(item, ToolResult) for item in last.content)
    )


def _reason(
    reader: Reader, endpoint: Endpoint, listener: StreamReader, *, may_be_empty: bool
) -> str:
    """Why the model stopped; raises `ModelFailure` if there is no answer despite a reason."""
    reason = _reason_in(reader)
    told = reader.reason or "stop"
    if reason == "error":
        raise gave_up(endpoint, told, reader.comment)
    if listener.is_empty:
        if reason == "length":
            raise ModelFailure(wire_errors.output_length())
        if reason == "content-filter":
            raise filtered(endpoint, told, reader.comment)
        if reason != "stop" or reader.reason is None or not may_be_empty:
            raise empty(endpoint)
    # Some servers call tools but say "stop".
    return "tool-calls" if listener.called and reason in ("stop", "other") else reason


def _reason_in(reader: Reader) -> str:
    told = reader.reason or "stop"
    return _REASONS.get(told.lower().replace("-", "_"), "other")
