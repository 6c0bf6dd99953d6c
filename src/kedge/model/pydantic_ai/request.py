"""A kedge request in pydantic-ai's terms: messages, tools and settings."""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, TypeAlias, cast

from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as TheirRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from kedge.domain.providers import ModelInfo
from kedge.model.endpoint import Protocol
from kedge.model.port import (
    AssistantTurn,
    Media,
    ModelRequest,
    Reasoning,
    Text,
    ToolResult,
    ToolSpec,
    ToolUse,
    UserTurn,
)

CallIds: TypeAlias = Callable[[str], str]

_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")
_MOST_KEPT = 8
"""Number of conversations; the converted form takes about as much memory as the original."""
_KINDS = {"image": "image", "audio": "audio", "video": "video", "application/pdf": "pdf"}


class ConvertedConversations:
    """Caches the converted messages of recent requests: the next request repeats most of them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Made] = OrderedDict()

    def messages(
        self, request: ModelRequest, info: ModelInfo, protocol: Protocol
    ) -> list[ModelMessage]:
        """The conversation, with the system text in front."""
        # Removed from the cache, so that no other request changes it meanwhile.
        made = self._kept.pop(request.conversation or "", None)
        if made is None or (made.info, made.protocol) != (info, protocol):
            made = _Made(info, protocol)
        made.go_on(request.turns)
        if request.conversation is not None:
            self._kept[request.conversation] = made
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        said = [each for each in made.said if each is not None]
        if system := _system_parts(request, protocol):
            first = said.pop(0).parts if said and isinstance(said[0], TheirRequest) else []
            said.insert(0, TheirRequest(parts=[*system, *first]))
        if protocol == "anthropic":
            _mark_previous_end(said)
        return said


@dataclass(slots=True)
class _Made:
    """A conversation as converted for one model, turn by turn."""

    info: ModelInfo
    protocol: Protocol
    turns: list[UserTurn | AssistantTurn] = field(default_factory=list)
    said: list[ModelMessage | None] = field(default_factory=list)
    """None for an empty turn."""

    def go_on(self, turns: Sequence[UserTurn | AssistantTurn]) -> None:
        """Convert these turns; a turn that is the same object as before is not converted again."""
        same = takewhile(lambda pair: pair[0] is pair[1], zip(self.turns, turns, strict=False))
        count = sum(1 for _ in same)
        del self.turns[count:], self.said[count:]
        ids = _clean_id if self.protocol == "anthropic" else str
        for turn in turns[count:]:
            self.turns.append(turn)
            self.said.append(_message(turn, self.info, ids))


def _message(turn: UserTurn | AssistantTurn, info: ModelInfo, ids: CallIds) -> ModelMessage | None:
    if isinstance(turn, UserTurn):
        parts = list(_user_parts(turn, info, ids))
        return TheirRequest(parts=parts) if parts else None
    answer = list(_answer_parts(turn, info, ids))
    return ModelResponse(parts=answer) if answer else None


def _mark_previous_end(said: list[ModelMessage]) -> None:
    """Mark the end of the previous request, so that the cache is searched there: from the end of
    this one, which is marked anyway, no provider searches back more than 20 blocks."""
    for index in previous_and_last([isinstance(each, ModelResponse) for each in said])[:-1]:
        parts = said[index].parts
        # A mark needs content, and the system text has its own mark.
        if not all(isinstance(part, SystemPromptPart) for part in parts):
            said[index] = TheirRequest(parts=[*parts, UserPromptPart(content=[CachePoint()])])


def previous_and_last(answers: Sequence[bool]) -> list[int]:
    """Where the previous request ended, if there was one, and where this one ends, given which
    messages are answers."""
    ends = [
        index
        for index, is_answer in enumerate(answers)
        if not is_answer and (index + 1 == len(answers) or answers[index + 1])
    ]
    return ends[-2:]


def _system_parts(request: ModelRequest, protocol: Protocol) -> list[ModelRequestPart]:
    texts = [text for text in request.system if text]
    if protocol == "chat" and texts:
        # The prompt templates of many open models allow only one system message.
        texts = ["\n\n".join(texts)]
    return [SystemPromptPart(text) for text in texts]


def parameters(request: ModelRequest) -> ModelRequestParameters:
    """The tools, with their schemas unchanged."""
    return ModelRequestParameters(function_tools=[_tool(spec) for spec in request.tools])


def _tool(spec: ToolSpec) -> ToolDefinition:
    return ToolDefinition(
        name=spec.name,
        description=spec.description,
        parameters_json_schema=dict(spec.parameters),
        strict=False,
    )


def _user_parts(turn: UserTurn, info: ModelInfo, ids: CallIds) -> Iterator[ModelRequestPart]:
    # Providers want the results right after the calls, before any text of the user.
    for item in turn.content:
        if isinstance(item, ToolResult):
            yield _result(item, info, ids)
    said = [
        _content(item, info)
        for item in turn.content
        if isinstance(item, Media) or (isinstance(item, Text) and item.text)
    ]
    if len(said) == 1 and isinstance(said[0], str):
        yield UserPromptPart(content=said[0])
    elif said:
        yield UserPromptPart(content=said)


def _result(result: ToolResult, info: ModelInfo, ids: CallIds) -> ToolReturnPart[Any]:
    shown = [_content(media, info) for media in result.media]
    return ToolReturnPart(
        tool_name=result.name,
        tool_call_id=ids(result.call_id),
        content=[result.output, *shown] if shown else result.output,
        outcome="failed" if result.is_error else "success",
    )


def _content(item: Text | Media, info: ModelInfo) -> UserContent:
    if isinstance(item, Text):
        return item.text
    kind = _KINDS.get(item.mime) or _KINDS.get(item.mime.partition("/")[0])
    if kind is None or not getattr(info.capabilities.input, kind):
        name = item.filename or "a file"
        return (
            f"[{name} ({item.mime}) was left out: {info.name} does not take "
            f"{kind or 'such'} input. Tell the person.]"
        )
    return BinaryContent(data=item.data, media_type=item.mime)


def _answer_parts(
    turn: AssistantTurn, info: ModelInfo, ids: CallIds
) -> Iterator[ModelResponsePart]:
    own = turn.model == f"{info.providerID}/{info.id}"
    for item in turn.content:
        if isinstance(item, Text):
            if item.text:
                yield TextPart(item.text)
        elif isinstance(item, ToolUse):
            yield ToolCallPart(
                item.name,
                dict(item.input),
                ids(item.call_id),
                **(_origin(item.metadata) if own and item.metadata else {}),
            )
        elif own and item.metadata:
            # Without its provider's metadata, a thought is useless to the provider.
            yield _thought(item)


def _thought(thought: Reasoning) -> ThinkingPart:
    metadata = thought.metadata or {}
    return ThinkingPart(
        thought.text,
        id=metadata.get("id"),
        signature=metadata.get("signature"),
        **_origin(metadata),
    )


def _origin(metadata: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "provider_name": metadata.get("provider"),
        "provider_details": metadata.get("details"),
    }


def _clean_id(call_id: str) -> str:
    return _NOT_IN_IDS.sub("_", call_id)


# An answer rarely needs more, and some providers count the limit against a rate limit.
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
# Names in the chat protocol; other settings go into the request body unchanged.
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
    if request.tools and request.tool_choice != "auto":
        settings["tool_choice"] = request.tool_choice
    budget = _thinking_budget(settings)
    if info.capabilities.temperature and not budget and not _is_set_in_its_ways(profile):
        settings.update(_sampling(request))
    if (limit := _output_limit(info, budget)) is not None:
        settings.setdefault("max_tokens", limit)
    return cast(ModelSettings, settings)


def _usual(request: ModelRequest, info: ModelInfo, protocol: Protocol) -> dict[str, Any]:
    """The defaults, which options can override."""
    usual: dict[str, Any] = {}
    if protocol == "responses" and request.purpose == "answer":
        if request.conversation is not None:
            usual["openai_prompt_cache_key"] = request.conversation
        if info.capabilities.reasoning:
            usual["openai_reasoning_summary"] = "auto"
    return usual


def _habits(protocol: Protocol) -> dict[str, Any]:
    if protocol == "anthropic":
        # The conversation only grows, so nearly all of it can be read from the cache.
        return {
            "anthropic_cache_instructions": True,
            "anthropic_cache_messages": True,
            "anthropic_cache_tool_definitions": True,
        }
    if protocol == "responses":
        # kedge stores the conversation, so the provider need not.
        return {"openai_store": False}
    return {}


def _is_set_in_its_ways(profile: ModelProfile) -> bool:
    """Whether the library knows that a model refuses a temperature; it would warn on stderr."""
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
