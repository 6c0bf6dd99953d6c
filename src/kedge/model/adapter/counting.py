"""What an answer took: tokens as OpenCode counts them, and dollars."""

from decimal import Decimal

from pydantic_ai.usage import RequestUsage

from kedge.domain.providers import Price
from kedge.domain.sessions import CacheCount, TokenCount

_MILLION = 1_000_000


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
