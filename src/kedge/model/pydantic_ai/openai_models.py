"""OpenAI's two protocols, as its own and other servers accept them.

Chat completions: earlier messages are sent again unchanged, Claude's cache is used, and
OpenRouter's `reasoning_details` are sent back as received. Responses: thoughts are summarised.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from openai.types.chat import chat_completion_chunk
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponseStreamEvent, PartStartEvent, ThinkingPart
from pydantic_ai.models.openai import (
    OpenAIChatModel,
    OpenAIResponsesModel,
    OpenAIStreamedResponse,
)

from kedge.model.pydantic_ai.request import previous_and_last

DETAILS = "reasoning_details"
_FIELDS = ("reasoning", "reasoning_content")
_GROWING = ("text", "summary", "data")
"""The fields of a detail that are streamed in pieces."""
_REFUSED = (400, 422)
_FELL_OVER_LISTS = re.compile(
    r"cache_control|unmarshal|deseriali[sz]|\barray\b|\.content\b|'list'|messages\["
    r"|(expected|must be|not) (a |an? instance of )?'?str",
    re.IGNORECASE,
)
_MARK = {"type": "ephemeral"}
_SUMMARY = "openai_reasoning_summary"


class ChatModel(OpenAIChatModel):
    """A model behind a server with chat completions."""

    _takes_marks: bool | None = None
    """Whether the server accepts marks for Claude's cache; None before the first request."""

    @property
    def _marks(self) -> bool:
        return "claude" in self.model_name.lower() and self._takes_marks is not False

    async def _completions_create(self, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - as theirs
        """Send a request; a server that refuses the first one with marks gets it without them."""
        if not self._marks:
            return await super()._completions_create(*given, **named)
        try:
            answer = await super()._completions_create(*given, **named)
        except ModelHTTPError as error:
            if self._takes_marks or not _may_be_about_marks(error):
                raise
        else:
            self._takes_marks = True
            return answer
        self._takes_marks = False
        try:
            return await super()._completions_create(*given, **named)
        except BaseException:
            # The marks were not the cause, or it is unknown.
            self._takes_marks = None
            raise

    def _finalize_cache_breakpoints(
        self,
        tools: list[Any],
        openai_messages: list[Any],
    ) -> None:
        _settle_thoughts(openai_messages)
        if self._marks:
            _mark(openai_messages)

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return ChatStream

    @dataclass
    class _MapModelResponseContext(OpenAIChatModel._MapModelResponseContext):
        details: list[dict[str, Any]] = field(default_factory=list)

        def _map_response_thinking_part(self, item: ThinkingPart) -> None:
            if details := (item.provider_details or {}).get(DETAILS):
                self.details += details
            else:
                super()._map_response_thinking_part(item)

        def _into_message_param(self) -> Any:  # noqa: ANN401 - as theirs
            message: Any = super()._into_message_param()
            if message is not None and self.details:
                message[DETAILS] = self.details
            return message


class ResponsesModel(OpenAIResponsesModel):
    """A model behind OpenAI's Responses, which show a model's thoughts only to some accounts."""

    _is_told_thoughts: bool = True

    async def _responses_create(  # type: ignore[override]
        self,
        messages: Any,  # noqa: ANN401 - as theirs
        stream: bool,
        model_settings: dict[str, Any],
        model_request_parameters: Any,  # noqa: ANN401 - as theirs
    ) -> Any:  # noqa: ANN401 - as theirs
        """Send a request, without summaries once the account was refused them."""
        create: Any = super()._responses_create
        plain = {key: model_settings[key] for key in model_settings if key != _SUMMARY}
        settings = model_settings if self._is_told_thoughts else plain
        try:
            return await create(messages, stream, settings, model_request_parameters)
        except ModelHTTPError as error:
            if len(plain) == len(settings) or not _is_about_summaries(error):
                raise
        self._is_told_thoughts = False
        return await create(messages, stream, plain, model_request_parameters)


def _may_be_about_marks(error: ModelHTTPError) -> bool:
    """Whether the server refused the request, or failed on contents that are lists."""
    if error.status_code in _REFUSED:
        return True
    # Other faults may be temporary; giving up the cache for them would cost its savings.
    return error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR and bool(
        _FELL_OVER_LISTS.search(str(error.body))
    )


def _is_about_summaries(error: ModelHTTPError) -> bool:
    return error.status_code in _REFUSED and "summar" in str(error.body)


def _settle_thoughts(messages: Sequence[dict[str, Any]]) -> None:
    """Decide for each message of the model whether it has the field for thoughts, permanently.

    pydantic-ai adds it only to messages after the last prompt, so the next prompt would change
    messages that were already sent.
    """
    name: str | None = None
    for message in messages:
        if message["role"] != "assistant":
            continue
        own = next((each for each in _FIELDS if message.get(each)), None)
        name = own or name
        for each in _FIELDS:
            if message.get(each) == "":
                del message[each]
        if name is not None and name not in message and message.get("tool_calls"):
            message[name] = ""


def _mark(messages: Sequence[dict[str, Any]]) -> None:
    """Mark what Claude's cache shall keep: the system text, which comes after the tools, and
    everything up to the ends of the previous request and of this one."""
    for message in messages:
        if message["role"] != "assistant" and message["content"]:
            # All of them, so that messages whose mark moved on stay unchanged.
            message["content"] = _as_parts(message["content"])
    for message in _worth_a_mark(messages):
        message["content"][-1]["cache_control"] = _MARK


def _as_parts(content: str | list[Any]) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _worth_a_mark(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most four, which is Claude's limit."""
    previous, last = _ends(messages)
    found = [
        _last_able(messages, "system"),
        _last_able(messages[:previous]),
        _last_able(messages[:last]),
        # Some servers drop the marks on tool results.
        _last_able(messages, "user"),
    ]
    return [message for message in found if message is not None]


def _ends(messages: Sequence[dict[str, Any]]) -> tuple[int, int]:
    ends = previous_and_last([message["role"] == "assistant" for message in messages])
    previous, last = [0, 0, *(index + 1 for index in ends)][-2:]
    return previous, last


def _last_able(
    messages: Sequence[dict[str, Any]], role: str | None = None
) -> dict[str, Any] | None:
    """The last message that can carry a mark; a tool result may be empty."""
    able = (
        message
        for message in reversed(messages)
        if role in (None, message["role"]) and isinstance(message.get("content"), list)
    )
    return next(able, None)


@dataclass
class ChatStream(OpenAIStreamedResponse):
    """Keeps the details of a thought with it."""

    _details: dict[int, list[dict[str, Any]]] = field(default_factory=dict, init=False)
    """The details of each thought, by its index."""
    _told_in: str = field(default=_FIELDS[0], init=False)
    """The field in which the words of thoughts arrive."""

    def _map_thinking_delta(
        self, choice: chat_completion_chunk.Choice
    ) -> Iterable[ModelResponseStreamEvent]:
        is_told = False
        for name in _FIELDS:
            if getattr(choice.delta, name, None) and not is_told:
                self._told_in, is_told = name, True
        yield from super()._map_thinking_delta(choice)
        if not (found := _details_of(choice)):
            return
        details = self._details.setdefault(self._reasoning_generation, [])
        for each in found:
            _add_detail(details, each)
        for event in self._parts_manager.handle_thinking_delta(
            vendor_part_id=("reasoning", self._told_in, self._reasoning_generation),
            id=self._told_in,
            content=None if is_told else _text_of(found),
            provider_name=self.provider_name,
            provider_details={DETAILS: details},
        ):
            if isinstance(event, PartStartEvent):
                self._advance_part_boundary("reasoning")
            yield event


def _details_of(choice: chat_completion_chunk.Choice) -> list[dict[str, Any]]:
    given = getattr(choice.delta, DETAILS, None)
    return [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []


def _text_of(details: Iterable[dict[str, Any]]) -> str:
    return "".join(str(each.get("text") or each.get("summary") or "") for each in details)


def _add_detail(details: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    """Add a piece to its detail, or start a new detail with it."""
    last = next((each for each in reversed(details) if _is_one(each, piece)), None)
    if last is None:
        details.append(dict(piece))
        return
    for name, value in piece.items():
        if name in _GROWING and isinstance(value, str) and isinstance(last.get(name), str):
            last[name] += value
        elif value is not None:
            last[name] = value


def _is_one(detail: dict[str, Any], piece: dict[str, Any]) -> bool:
    if detail.get("type") != piece.get("type") or detail.get("index") != piece.get("index"):
        return False
    ids = {each["id"] for each in (detail, piece) if each.get("id")}
    # Without an index, a signed detail is complete.
    return len(ids) < 2 and (piece.get("index") is not None or not detail.get("signature"))
