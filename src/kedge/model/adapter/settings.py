"""Options as OpenCode's users write them, as the settings that a request is sent with."""

from collections.abc import Mapping
from typing import Any, cast

from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings

from kedge.domain.providers import ModelInfo
from kedge.model.endpoint import Protocol
from kedge.model.port import ModelRequest

# More is rarely wanted of one answer, and some providers count it against a rate limit.
OUTPUT_LIMIT = 32_000

_COMMON = {
    "maxOutputTokens": "max_tokens",
    "maxTokens": "max_tokens",
    "topK": "top_k",
    "seed": "seed",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
    "stopSequences": "stop_sequences",
    "parallelToolCalls": "parallel_tool_calls",
}
_OWN: dict[Protocol, dict[str, str]] = {
    "chat": {},
    "responses": {
        "reasoningEffort": "openai_reasoning_effort",
        "reasoningSummary": "openai_reasoning_summary",
        "textVerbosity": "openai_text_verbosity",
        "serviceTier": "openai_service_tier",
        "promptCacheKey": "openai_prompt_cache_key",
        "store": "openai_store",
        "user": "openai_user",
    },
    "anthropic": {"effort": "thinking", "thinking": "anthropic_thinking"},
    "google": {"thinkingLevel": "thinking", "thinkingConfig": "google_thinking_config"},
}
# What the chat protocol calls them; all else goes into its body as it was written.
_BODY = {
    "reasoningEffort": "reasoning_effort",
    "textVerbosity": "verbosity",
    "serviceTier": "service_tier",
    "promptCacheKey": "prompt_cache_key",
}
_SNAKE = {
    "budgetTokens": "budget_tokens",
    "thinkingBudget": "thinking_budget",
    "includeThoughts": "include_thoughts",
    "thinkingLevel": "thinking_level",
}


def settings_of(
    request: ModelRequest, info: ModelInfo, protocol: Protocol, profile: ModelProfile
) -> ModelSettings:
    """Everything beside the conversation and the tools."""
    settings: dict[str, Any] = {}
    body: dict[str, Any] = {}
    names = {**_COMMON, **_OWN[protocol]}
    for option, value in {**info.options, **request.options}.items():
        if option in names:
            settings[names[option]] = _snake(value)
        else:
            body[_BODY.get(option, option)] = value
    if body:
        settings["extra_body"] = body
    if info.headers:
        settings["extra_headers"] = dict(info.headers)
    for name, value in _usual(request, info, protocol).items():
        settings.setdefault(name, value)
    settings.update(_habits(protocol))
    if request.tools and request.tool_choice == "none":
        settings["tool_choice"] = "none"
    budget = _thinking_budget(settings)
    if info.capabilities.temperature and not budget and not _is_set_in_its_ways(profile):
        settings.update(_sampling(request))
    if (limit := _output_limit(info, budget)) is not None:
        settings.setdefault("max_tokens", limit)
    return cast(ModelSettings, settings)


def _usual(request: ModelRequest, info: ModelInfo, protocol: Protocol) -> dict[str, Any]:
    """What is asked for unless the options say otherwise."""
    usual: dict[str, Any] = {}
    if protocol == "responses" and request.purpose == "answer":
        if request.conversation is not None:
            usual["openai_prompt_cache_key"] = request.conversation
        if info.capabilities.reasoning:
            usual["openai_reasoning_summary"] = "auto"
    return usual


def _habits(protocol: Protocol) -> dict[str, Any]:
    if protocol == "anthropic":
        # The conversation only ever grows, so that nearly all of it can be read from the cache.
        return {
            "anthropic_cache_instructions": True,
            "anthropic_cache_messages": True,
            "anthropic_cache_tool_definitions": True,
        }
    if protocol == "responses":
        # kedge keeps the conversation, nobody else needs to.
        return {"openai_store": False}
    return {}


def _is_set_in_its_ways(profile: ModelProfile) -> bool:
    """Whether the libraries know that a model refuses a temperature; they would warn on stderr."""
    known: Mapping[str, Any] = profile
    flags = ("openai_supports_reasoning", "anthropic_disallows_sampling_settings")
    return any(known.get(flag) for flag in flags)


def _sampling(request: ModelRequest) -> dict[str, float]:
    wanted = {"temperature": request.temperature, "top_p": request.top_p}
    return {name: value for name, value in wanted.items() if value is not None}


def _thinking_budget(settings: Mapping[str, Any]) -> int:
    thinking = settings.get("anthropic_thinking")
    if not isinstance(thinking, Mapping):
        return 0
    budget = thinking.get("budget_tokens")
    return budget if isinstance(budget, int) else 0


def _output_limit(info: ModelInfo, budget: int) -> int | None:
    # Anthropic counts thoughts as output.
    return min(info.limit.output, OUTPUT_LIMIT + budget) if info.limit.output else None


def _snake(value: object) -> object:
    if isinstance(value, Mapping):
        return {_SNAKE.get(key, key): item for key, item in value.items()}
    return value
