"""What genai-prices knows of models: names, context windows, prices; read from its package only."""

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from kedge.domain.providers import (
    NO_PRICE,
    CachePrice,
    Limits,
    ModelApi,
    ModelInfo,
    Price,
    capabilities,
    model_info,
)
from kedge.model.known import KnownProvider

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo as ListedModel

# Of models that the list has a context window for, but no output limit.
_OLD_ANTHROPIC = {"claude-3-5": 8_192, "claude-3-7": 64_000, "claude-3": 4_096}
_ANTHROPIC_OUTPUT = 32_000
_EFFORTS = ("low", "medium", "high")


def listed_models(provider: KnownProvider) -> dict[str, ModelInfo]:
    """The models of a provider that are not on their way out, by id."""
    return {model.id: _describe(provider, model.id, model) for model in _current(provider)}


@cache
def listed_names(provider: KnownProvider) -> tuple[str, ...]:
    """The ids of the models of a provider."""
    return tuple(model.id for model in _current(provider))


def listed_model(provider: KnownProvider, model_id: str) -> ModelInfo | None:
    """One model, also under an id that the list only knows to be another's, such as a dated one."""
    for model in _models(provider.listed_as):
        if model.is_match(model_id):
            return _describe(provider, model_id, model)
    return None


def bare_model(provider: KnownProvider, model_id: str) -> ModelInfo:
    """A model that nothing is known of but its provider."""
    return _describe(provider, model_id, None)


def _current(provider: KnownProvider) -> list["ListedModel"]:
    return [
        model
        for model in _models(provider.listed_as)
        if not model.deprecated and provider.own.match(model.id) and _writes_text(model)
    ]


@cache
def _models(listed_as: str | None) -> tuple["ListedModel", ...]:
    if listed_as is None:
        return ()
    from genai_prices.data_snapshot import get_snapshot

    for provider in get_snapshot().providers:
        if provider.id == listed_as:
            return tuple(provider.models)
    return ()


def _describe(provider: KnownProvider, model_id: str, model: "ListedModel | None") -> ModelInfo:
    thinks = provider.thinks.match(model_id) is not None
    return model_info(
        id=model_id,
        providerID=provider.id,
        api=ModelApi(id=model_id, url=provider.url, npm=provider.npm),
        name=(model.name if model is not None else None) or model_id,
        abilities=capabilities(
            # Those that think at OpenAI choose it themselves.
            temperature=not (thinks and provider.id == "openai"),
            reasoning=thinks,
            attachment=provider.takes.image,
            input=provider.takes,
        ),
        cost=_price(model) if model is not None else NO_PRICE,
        limit=Limits(
            context=(model.context_window if model is not None else None) or 0,
            output=_output_limit(provider, model_id),
        ),
        variants=_variants(provider) if thinks else None,
    )


def _variants(provider: KnownProvider) -> dict[str, dict[str, Any]] | None:
    if provider.effort is None:
        return None
    return {effort: {provider.effort: effort} for effort in _EFFORTS}


def _output_limit(provider: KnownProvider, model_id: str) -> int:
    # The only one that has to be told how much at most.
    if provider.id != "anthropic":
        return 0
    old = (limit for start, limit in _OLD_ANTHROPIC.items() if model_id.startswith(start))
    return next(old, _ANTHROPIC_OUTPUT)


def _writes_text(model: "ListedModel") -> bool:
    return _dollars(model.get_prices(datetime.now(UTC)).output_mtok) > 0


def _price(model: "ListedModel") -> Price:
    prices = model.get_prices(datetime.now(UTC))
    return Price(
        input=_dollars(prices.input_mtok),
        output=_dollars(prices.output_mtok),
        cache=CachePrice(
            read=_dollars(prices.cache_read_mtok), write=_dollars(prices.cache_write_mtok)
        ),
    )


def _dollars(price: Any) -> float:  # noqa: ANN401
    # Where the price rises with the length of the prompt, that of a short one.
    return float(getattr(price, "base", price) or 0)
