"""What an answer took: tokens as OpenCode counts them, and dollars."""

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pydantic_ai.usage import RequestUsage

from kedge.domain.providers import Price
from kedge.domain.sessions import CacheCount, TokenCount

_MILLION = 1_000_000
# Nothing counts more, and a sum of these still fits into every store.
_MOST_TOKENS = 10**12
_READ_NAMES = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens")
_WRITE_NAMES = ("cache_creation_input_tokens",)


def tokens_of(usage: RequestUsage) -> TokenCount:
    """Cached tokens apart from the input, thoughts apart from the output."""
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return TokenCount(
        input=max(0, usage.input_tokens - cached),
        output=max(0, usage.output_tokens - usage.output_reasoning_tokens),
        reasoning=usage.output_reasoning_tokens,
        cache=CacheCount(read=usage.cache_read_tokens, write=usage.cache_write_tokens),
        total=usage.input_tokens + usage.output_tokens,
    )


def usage_of_chat(told: Mapping[str, Any]) -> RequestUsage:
    """The counts of a chat server, each of which has its own names for them."""
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
        # Its own share; the rest goes to the account whose key it is.
        own += _dollars(_details(told, "cost_details").get("upstream_inference_cost"))
    return own or None


def cost_of(usage: RequestUsage, price: Price, listed: tuple[str, str] | None) -> float:
    """Dollars: as the public list has it for `listed` (provider and model), else by `price`."""
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
