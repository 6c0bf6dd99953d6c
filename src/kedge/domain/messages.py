"""User and assistant messages as on the wire; their parts are in `parts`."""

from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from kedge.domain.parts import Part
from kedge.domain.sessions import FileDiff, TokenCount
from kedge.domain.values import Value
from kedge.domain.wire_errors import Failure

if TYPE_CHECKING:
    # TypeVar of Python 3.11 has no default; type checkers ship the newer one.
    from typing_extensions import TypeVar
else:
    from typing import TypeVar


class MessageModel(Value, frozen=True, kw_only=True):
    """The model that a message was sent to; sessions use `ModelRef`."""

    providerID: str
    modelID: str
    variant: str | None = None


class MessageTime(Value, frozen=True, kw_only=True):
    """When a message was created (this never changes) and, if the model wrote it, completed."""

    created: int
    completed: int | None = None


class TextFormat(Value, tag_field="type", tag="text", frozen=True, kw_only=True):
    """The answer shall be plain text."""


class JsonSchemaFormat(Value, tag_field="type", tag="json_schema", frozen=True, kw_only=True):
    """The answer shall be JSON that fits a schema."""

    schema: dict[str, Any]
    retryCount: int | None = None


OutputFormat = TextFormat | JsonSchemaFormat

ANSWER_TOOL = "StructuredOutput"
"""The tool by which a model answers in such a format; clients know its name."""


class TurnSummary(Value, frozen=True, kw_only=True):
    """What the turn of a user message changed."""

    title: str | None = None
    body: str | None = None
    diffs: list[FileDiff]


class UserMessage(Value, tag_field="role", tag="user", frozen=True, kw_only=True):
    """A message of the user."""

    id: str
    sessionID: str
    time: MessageTime
    format: OutputFormat | None = None
    summary: TurnSummary | None = None
    agent: str
    model: MessageModel
    system: str | None = None
    tools: dict[str, bool] | None = None


class MessagePath(Value, frozen=True, kw_only=True):
    """The folder in which the model worked."""

    cwd: str
    root: str


class AssistantMessage(Value, tag_field="role", tag="assistant", frozen=True, kw_only=True):
    """One step of the answer."""

    id: str
    sessionID: str
    time: MessageTime
    error: Failure | None = None
    parentID: str
    """The user message that this answers."""
    modelID: str
    providerID: str
    mode: str
    agent: str
    path: MessagePath
    summary: bool | None = None
    """Whether it is the summary that a compaction wrote."""
    cost: int | float
    tokens: TokenCount
    structured: Any = None
    """The answer in the format that the user message asked for."""
    variant: str | None = None
    finish: str | None = None


Message = UserMessage | AssistantMessage


if TYPE_CHECKING:
    MessageT = TypeVar("MessageT", bound=Message, covariant=True, default=Message)
else:
    MessageT = TypeVar("MessageT", bound=Message, covariant=True)


class MessageWithParts(Value, Generic[MessageT], frozen=True, kw_only=True):
    """A message and its parts, ordered by part id."""

    info: MessageT
    parts: list[Part]


Answer: TypeAlias = MessageWithParts[AssistantMessage]
"""The last message of an answer."""
