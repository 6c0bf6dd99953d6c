"""The interface of a model: a request, answered by a stream of events.

    async with model.stream(request) as events:
        async for event in events:
            ...

A model that cannot answer raises `ModelFailure`, before the first event or between two.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from kedge.domain.providers import ModelInfo
from kedge.domain.sessions import NO_TOKENS, TokenCount
from kedge.domain.wire_errors import Failure

# Requests.


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Text from the user or from the model."""

    text: str
    is_prompt: bool = False
    """Whether the user typed it and the requested answer is the answer to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """An image or another file that is passed to the model as it is."""

    mime: str
    data: bytes
    filename: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """A thought of the model; `metadata` is what its provider needs back."""

    text: str
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """A tool call of the model."""

    call_id: str
    name: str
    input: Mapping[str, Any]
    metadata: Mapping[str, Any] | None = None
    """What its provider needs back, from `ToolCalled`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a tool call."""

    call_id: str
    name: str
    output: str
    is_error: bool = False
    media: tuple[Media, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTurn:
    """A message from the user, or results of tools."""

    content: tuple[Text | Media | ToolResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantTurn:
    """An earlier answer; `model` is the model that wrote it, as provider/model."""

    content: tuple[Text | Reasoning | ToolUse, ...]
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool that the model may call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """A JSON schema of an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Everything that one request sends."""

    system: tuple[str, ...]
    turns: tuple[UserTurn | AssistantTurn, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: Literal["auto", "none", "required"] = "auto"
    """With "none" the request still lists the tools, because they are part of what the provider has
    cached, but the model must not call them now; with "required" it must call one."""
    temperature: float | None = None
    top_p: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings from the model's configuration and its variant, in the provider's names."""
    conversation: str | None = None
    """A name shared by all requests of a conversation, by which a provider finds its cache."""
    purpose: Literal["answer", "title", "summary"] = "answer"
    attempt: int = 1
    """The number of this attempt; earlier ones failed."""


# Events.


@dataclass(frozen=True, slots=True, kw_only=True)
class TextStarted:
    """The model starts a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """The next piece of a text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEnded:
    """A text is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWasThought:
    """A text is complete, and turns out to be a thought: `text` is all of it since its start."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningStarted:
    """The model starts a thought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta:
    """The next piece of a thought."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningEnded:
    """A thought is complete; send `metadata` back with it."""

    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtWasText:
    """Nothing followed the last thought, so `text`, with its tags, is the answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """The model starts a tool call; the arguments follow."""

    call_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """A tool call is complete. `input` is None if the model's text, `raw`, is not a JSON object."""

    call_id: str
    name: str
    input: Mapping[str, Any] | None
    raw: str
    metadata: Mapping[str, Any] | None = None
    """To be sent back with the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The last event of every answer: why the model stopped, and what it cost in dollars.

    The reason is "stop", "tool-calls", "length", "content-filter" or "other".
    """

    reason: str
    tokens: TokenCount
    cost: float


ModelEvent: TypeAlias = (
    TextStarted
    | TextDelta
    | TextEnded
    | TextWasThought
    | ReasoningStarted
    | ReasoningDelta
    | ReasoningEnded
    | ThoughtWasText
    | ToolStarted
    | ToolCalled
    | Finished
)


Setback: TypeAlias = Literal["busy", "broken", "silent"]


class ModelFailure(Exception):
    """The model did not answer, or not completely."""

    def __init__(
        self,
        failure: Failure,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        setback: Setback = "busy",
    ) -> None:
        super().__init__(str(failure.data.get("message") or failure.name))
        self.failure = failure
        self.retryable = retryable
        self.setback = setback
        """What another attempt wastes: nothing if there was no answer ("busy"), money if the answer
        was unusable ("broken"), minutes if nothing arrived at all ("silent")."""
        self.retry_after = retry_after
        """Seconds that the provider asked to wait."""
        self.tokens: TokenCount = NO_TOKENS
        """Tokens that were counted, if the answer was complete but unusable."""
        self.cost: float = 0
        """What it cost anyway, in dollars."""


class Model(Protocol):
    """A model that takes requests."""

    info: ModelInfo

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Send a request; leaving the block early cancels it."""
