"""The port to models: one request, answered by a stream of events.

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

# What the model is asked.


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Words of the person or of the model."""

    text: str
    is_prompt: bool = False
    """A person typed it, and the answer that is asked for is the answer to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """An image or another file that is handed to the model as it is."""

    mime: str
    data: bytes
    filename: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """What the model thought; `metadata` is what its provider wants to have back."""

    text: str
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """A tool that the model called."""

    call_id: str
    name: str
    input: Mapping[str, Any]
    metadata: Mapping[str, Any] | None = None
    """What its provider wants to have back, as `ToolCalled` gave it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What came of a tool that the model called."""

    call_id: str
    name: str
    output: str
    is_error: bool = False
    media: tuple[Media, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTurn:
    """What a person said, or what tools gave back."""

    content: tuple[Text | Media | ToolResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantTurn:
    """What the model said before; `model` tells which one it was, as provider/model."""

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
    tool_choice: Literal["auto", "none"] = "auto"
    """With "none" the model is told of the tools, which are part of what its provider has cached,
    and that it must not call them now."""
    temperature: float | None = None
    top_p: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the model's configuration and of its variant, as the provider names them."""
    conversation: str | None = None
    """A name that all requests of a conversation have, by which a provider finds what it cached."""
    purpose: Literal["answer", "title"] = "answer"
    attempt: int = 1
    """Which try this is; those before it failed."""


# What is heard back.


@dataclass(frozen=True, slots=True, kw_only=True)
class TextStarted:
    """The model begins to say something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """The next piece of what it says."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEnded:
    """It has said it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWasThought:
    """It has ended too, and shows only now that `text`, all since its start, was a thought."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningStarted:
    """The model begins to think."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta:
    """The next piece of what it thinks."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningEnded:
    """It has thought; `metadata` is to be handed back with the thought."""

    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtWasText:
    """Nothing followed the thought that has just ended: `text`, with its tags, is the answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """The model begins to call a tool, and will say with what."""

    call_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """The call is complete. `input` is None if what the model wrote, `raw`, is no JSON object."""

    call_id: str
    name: str
    input: Mapping[str, Any] | None
    raw: str
    metadata: Mapping[str, Any] | None = None
    """To be handed back with the call."""


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
    """The model did not answer, or not to the end."""

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
        """What asking again costs: nothing where there was no answer ("busy"), money where there
        was one that is of no use ("broken"), minutes where nothing came at all ("silent")."""
        self.retry_after = retry_after
        """Seconds that the provider asked to wait."""
        self.tokens: TokenCount = NO_TOKENS
        """What was counted, if the answer came to its end and is of no use."""
        self.cost: float = 0
        """Dollars that it cost all the same."""


class Model(Protocol):
    """A model that can be asked."""

    info: ModelInfo

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """Ask; leaving the block early ends the request."""
