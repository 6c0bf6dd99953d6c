"""The providers and models known without configuration, and how a configuration changes them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from kedge.config.values import ModelConfig
from kedge.domain.providers import (
    NO_PRICE,
    CachePrice,
    Capabilities,
    Limits,
    Modalities,
    ModelApi,
    ModelInfo,
    Price,
    capabilities,
    modalities,
    model_info,
)
from kedge.model.endpoint import Protocol

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo as ListedModel

PROTOCOLS: dict[str, Protocol] = {
    "@ai-sdk/openai-compatible": "chat",
    "@ai-sdk/openai": "responses",
    "@ai-sdk/anthropic": "anthropic",
    "@ai-sdk/google": "google",
    "@openrouter/ai-sdk-provider": "chat",
    "@ai-sdk/groq": "chat",
    "@ai-sdk/deepseek": "chat",
    "@ai-sdk/mistral": "chat",
    "@ai-sdk/xai": "chat",
}


_TEXT = modalities()
_SEES = modalities(image=True)
_READS = modalities(image=True, pdf=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProvider:
    """A provider that users can name without giving its address."""

    id: str
    name: str
    npm: str = "@ai-sdk/openai-compatible"
    url: str
    env: tuple[str, ...] = ()
    """The variables that may hold its key, the usual one first."""
    needs_key: bool = True
    any_model: bool = False
    """Whether it serves any models that its owner installed."""
    default: str | None = None
    small: str | None = None
    listed_as: str | None = None
    """Its name in genai-prices."""
    own: re.Pattern[str] = re.compile("")
    """Matches the listed models that it serves itself, with text in and out."""
    thinks: re.Pattern[str] = re.compile("(?!)")
    effort: str | None = None
    """The option for the reasoning effort."""
    takes: Modalities = _TEXT


_ALL = (
    KnownProvider(
        id="anthropic",
        name="Anthropic",
        npm="@ai-sdk/anthropic",
        url="https://api.anthropic.com/v1",
        env=("ANTHROPIC_API_KEY",),
        default="claude-sonnet-5-5",
        small="claude-haiku-5-5",
        listed_as="anthropic",
        own=re.compile(r"claude-(?!2|v1)"),
        thinks=re.compile(r"claude-(3-7|fable|(opus|sonnet|haiku)-[4-9])"),
        effort="effort",
        takes=_READS,
    ),
    KnownProvider(
        id="openai",
        name="OpenAI",
        npm="@ai-sdk/openai",
        url="https://api.openai.com/v1",
        env=("OPENAI_API_KEY",),
        default="gpt-6.1-sol",
        small="gpt-6-luna",
        listed_as="openai",
        own=re.compile(
            r"(gpt-[4-9]|o[134]|codex)"
            r"(?!.*(audio|realtime|transcribe|tts|image|search|research|vision|live|:|\.ft-))"
        ),
        thinks=re.compile(r"(?!o1-(mini|preview)|.*chat)(gpt-[5-9]|o[134]|codex)"),
        effort="reasoningEffort",
        takes=_READS,
    ),
    KnownProvider(
        id="google",
        name="Google",
        npm="@ai-sdk/google",
        url="https://generativelanguage.googleapis.com/v1beta",
        env=("GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "GOOGLE_API_KEY"),
        default="gemini-3.8-flash",
        small="gemini-3.5-flash-lite",
        listed_as="google",
        own=re.compile(r"gemini-[2-9](?!.*(tts|image|live|vision))"),
        thinks=re.compile(r"gemini-(2\.5|[3-9])"),
        effort="thinkingLevel",
        takes=_READS,
    ),
    KnownProvider(
        id="openrouter",
        name="OpenRouter",
        url="https://openrouter.ai/api/v1",
        env=("OPENROUTER_API_KEY",),
        any_model=True,
        default="anthropic/claude-sonnet-5.5",
        listed_as="openrouter",
        takes=_SEES,
    ),
    KnownProvider(
        id="xai",
        name="xAI",
        url="https://api.x.ai/v1",
        env=("XAI_API_KEY",),
        default="grok-4.7",
        small="grok-code-fast-1",
        listed_as="x-ai",
        own=re.compile(r"grok-(?!voice)"),
        takes=_SEES,
    ),
    KnownProvider(
        id="deepseek",
        name="DeepSeek",
        url="https://api.deepseek.com/v1",
        env=("DEEPSEEK_API_KEY",),
        default="deepseek-v4-pro",
        small="deepseek-v4-flash",
        listed_as="deepseek",
    ),
    KnownProvider(
        id="mistral",
        name="Mistral",
        url="https://api.mistral.ai/v1",
        env=("MISTRAL_API_KEY",),
        default="mistral-medium-latest",
        small="mistral-small-latest",
        listed_as="mistral",
        own=re.compile(r"(?!.*(embed|ocr|transcribe|voxtral|:free))"),
        takes=_SEES,
    ),
    KnownProvider(
        id="groq",
        name="Groq",
        url="https://api.groq.com/openai/v1",
        env=("GROQ_API_KEY",),
        default="openai/gpt-oss-120b",
        small="openai/gpt-oss-20b",
        listed_as="groq",
        own=re.compile(r"(?!.*(whisper|guard|orpheus|safeguard))"),
    ),
    KnownProvider(
        id="ollama",
        name="Ollama",
        url="http://127.0.0.1:11434/v1",
        needs_key=False,
        any_model=True,
    ),
    KnownProvider(
        id="lmstudio",
        name="LM Studio",
        url="http://127.0.0.1:1234/v1",
        needs_key=False,
        any_model=True,
    ),
)

KNOWN = {provider.id: provider for provider in _ALL}
"""In the order in which a default is searched."""


# For models that are listed with a context window, but without an output limit.
_OLD_ANTHROPIC = {"claude-3-5": 8_192, "claude-3-7": 64_000, "claude-3": 4_096}
_ANTHROPIC_OUTPUT = 32_000
_EFFORTS = ("low", "medium", "high")


def listed_models(provider: KnownProvider) -> dict[str, ModelInfo]:
    """The models of a provider that are not being retired, by id."""
    return {model.id: _describe(provider, model.id, model) for model in _current(provider)}


@cache
def listed_names(provider: KnownProvider) -> tuple[str, ...]:
    """The ids of the models of a provider."""
    return tuple(model.id for model in _current(provider))


def listed_model(provider: KnownProvider, model_id: str) -> ModelInfo | None:
    """One model; an id may also be an alias in the list, such as a dated one."""
    for model in _models(provider.listed_as):
        if model.is_match(model_id):
            return _describe(provider, model_id, model)
    return None


def bare_model(provider: KnownProvider, model_id: str) -> ModelInfo:
    """A model of which only the provider is known."""
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
            # OpenAI's thinking models choose it themselves.
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
    # Only Anthropic requires an output limit in the request.
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
    # Where the price depends on the length of the prompt, that of a short one.
    return float(getattr(price, "base", price) or 0)


def configured_model(config: ModelConfig, base: ModelInfo) -> ModelInfo:
    """`base` with the changes of the configuration."""
    endpoint = config.provider
    changes: dict[str, Any] = {
        "api": ModelApi(
            id=config.id or base.api.id,
            url=(endpoint.api if endpoint else None) or base.api.url,
            npm=(endpoint.npm if endpoint else None) or base.api.npm,
        ),
        "capabilities": _capabilities(config, base.capabilities),
        "options": {**base.options, **config.options},
        "headers": {**base.headers, **config.headers},
        "variants": _configured_variants(config.variants, base.variants),
    }
    for name in ("name", "family", "release_date", "status"):
        if (value := getattr(config, name)) is not None:
            changes[name] = value
    if config.limit is not None:
        limit = config.limit
        changes["limit"] = Limits(context=limit.context, input=limit.input, output=limit.output)
    if config.cost is not None:
        cost = config.cost
        cache = CachePrice(read=cost.cache_read, write=cost.cache_write)
        changes["cost"] = Price(input=cost.input, output=cost.output, cache=cache)
    return msgspec.structs.replace(base, **changes)


def _capabilities(config: ModelConfig, base: Capabilities) -> Capabilities:
    said = {
        "temperature": config.temperature,
        "reasoning": config.reasoning,
        "attachment": config.attachment,
        "toolcall": config.tool_call,
        "interleaved": config.interleaved,
    }
    changes: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    taken = config.modalities.input if config.modalities else None
    given = config.modalities.output if config.modalities else None
    if taken is not None:
        changes["input"] = _modalities(taken)
    elif config.attachment:
        # A configuration that allows attachments means at least these.
        changes["input"] = msgspec.structs.replace(base.input, image=True, pdf=True)
    if given is not None:
        changes["output"] = _modalities(given)
    return msgspec.structs.replace(base, **changes)


def _modalities(names: tuple[str, ...]) -> Modalities:
    every = ("text", "audio", "image", "video", "pdf")
    return msgspec.convert({name: name in names for name in every}, Modalities)


def _configured_variants(
    said: Mapping[str, dict[str, Any]], base: dict[str, dict[str, Any]] | None
) -> dict[str, dict[str, Any]] | None:
    merged = {**(base or {}), **said}
    kept = {
        name: {key: value for key, value in options.items() if key != "disabled"}
        for name, options in merged.items()
        if not options.get("disabled")
    }
    return kept or None
