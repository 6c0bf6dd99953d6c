"""The twelve kinds of message parts, as on the wire."""

from typing import Any

from kedge.domain.sessions import TokenCount
from kedge.domain.values import Value
from kedge.domain.wire_errors import Failure


class PartTime(Value, frozen=True, kw_only=True):
    """When something started and, if it is over, ended."""

    start: int
    end: int | None = None


class PartBase(Value, frozen=True, kw_only=True):
    """The fields that all parts have."""

    id: str
    sessionID: str
    messageID: str


class TextPart(PartBase, tag_field="type", tag="text", frozen=True, kw_only=True):
    """Text from the user or from the model."""

    text: str
    synthetic: bool | None = None
    """Written by the program, not by the user."""
    ignored: bool | None = None
    """Shown, but not sent to the model."""
    time: PartTime | None = None
    metadata: dict[str, Any] | None = None


class SubtaskModel(Value, frozen=True, kw_only=True):
    """The model that a subtask shall use."""

    providerID: str
    modelID: str


class SubtaskPart(PartBase, tag_field="type", tag="subtask", frozen=True, kw_only=True):
    """A task that runs in its own session."""

    prompt: str
    description: str
    agent: str
    model: SubtaskModel | None = None
    command: str | None = None


class ReasoningPart(PartBase, tag_field="type", tag="reasoning", frozen=True, kw_only=True):
    """What the model thought before it answered."""

    text: str
    metadata: dict[str, Any] | None = None
    time: PartTime


class SourceText(Value, frozen=True, kw_only=True):
    """The text in a prompt that mentioned something, and its position."""

    value: str
    start: int
    end: int


class Position(Value, frozen=True, kw_only=True):
    """A position in a file, counted from zero."""

    line: int
    character: int


class Range(Value, frozen=True, kw_only=True):
    """A range in a file."""

    start: Position
    end: Position


class FileSource(Value, tag_field="type", tag="file", frozen=True, kw_only=True):
    """The attachment is a file."""

    text: SourceText
    path: str


class SymbolSource(Value, tag_field="type", tag="symbol", frozen=True, kw_only=True):
    """The attachment is a symbol that a language server found."""

    text: SourceText
    path: str
    range: Range
    name: str
    kind: int


class ResourceSource(Value, tag_field="type", tag="resource", frozen=True, kw_only=True):
    """The attachment is a resource of an MCP server."""

    text: SourceText
    clientName: str
    uri: str


FilePartSource = FileSource | SymbolSource | ResourceSource


class FilePart(PartBase, tag_field="type", tag="file", frozen=True, kw_only=True):
    """An attached file."""

    mime: str
    filename: str | None = None
    url: str
    source: FilePartSource | None = None


class ToolTime(Value, frozen=True, kw_only=True):
    """When a tool call ran, and when compaction left its output out."""

    start: int
    end: int
    compacted: int | None = None


class ToolPending(Value, tag_field="status", tag="pending", frozen=True, kw_only=True):
    """The model is still writing the arguments."""

    input: dict[str, Any]
    raw: str


class ToolRunning(Value, tag_field="status", tag="running", frozen=True, kw_only=True):
    """The tool is running."""

    input: dict[str, Any]
    title: str | None = None
    metadata: dict[str, Any] | None = None
    time: PartTime


class ToolCompleted(Value, tag_field="status", tag="completed", frozen=True, kw_only=True):
    """The tool has finished."""

    input: dict[str, Any]
    output: str
    title: str
    metadata: dict[str, Any]
    time: ToolTime
    attachments: list[FilePart] | None = None


class ToolError(Value, tag_field="status", tag="error", frozen=True, kw_only=True):
    """The tool failed, was refused or was interrupted."""

    input: dict[str, Any]
    error: str
    metadata: dict[str, Any] | None = None
    time: ToolTime


ToolState = ToolPending | ToolRunning | ToolCompleted | ToolError


class Undone(Value, frozen=True, kw_only=True):
    """What an undo took out of a call's changes to files, while it is out."""

    time: int
    files: int
    """How many files no longer have the call's changes."""
    left: int | None = None
    """How many files still have them, if some do."""


class ToolPart(PartBase, tag_field="type", tag="tool", frozen=True, kw_only=True):
    """A tool call and its state."""

    callID: str
    tool: str
    state: ToolState
    metadata: dict[str, Any] | None = None
    undone: Undone | None = None
    """Whether the call's changes to files were undone; not in OpenCode."""


class StepStartPart(PartBase, tag_field="type", tag="step-start", frozen=True, kw_only=True):
    """A model request begins; the snapshot is the worktree as it was before."""

    snapshot: str | None = None


class StepFinishPart(PartBase, tag_field="type", tag="step-finish", frozen=True, kw_only=True):
    """A model request and its tool calls are over."""

    reason: str
    snapshot: str | None = None
    cost: int | float
    tokens: TokenCount


class SnapshotPart(PartBase, tag_field="type", tag="snapshot", frozen=True, kw_only=True):
    """A snapshot taken outside of a step."""

    snapshot: str


class PatchPart(PartBase, tag_field="type", tag="patch", frozen=True, kw_only=True):
    """The files that a step changed."""

    hash: str
    """The snapshot at the start of the step."""
    files: list[str]
    """Absolute paths."""


class AgentPart(PartBase, tag_field="type", tag="agent", frozen=True, kw_only=True):
    """An agent that the prompt mentions."""

    name: str
    source: SourceText | None = None


class RetryTime(Value, frozen=True, kw_only=True):
    """When a retry was decided."""

    created: int


class RetryPart(PartBase, tag_field="type", tag="retry", frozen=True, kw_only=True):
    """A model request failed and will be sent again."""

    attempt: int
    error: Failure
    time: RetryTime


class CompactionPart(PartBase, tag_field="type", tag="compaction", frozen=True, kw_only=True):
    """A compaction: the answer summarises the conversation up to here."""

    auto: bool
    overflow: bool | None = None
    tail_start_id: str | None = None


Part = (
    TextPart
    | SubtaskPart
    | ReasoningPart
    | FilePart
    | ToolPart
    | StepStartPart
    | StepFinishPart
    | SnapshotPart
    | PatchPart
    | AgentPart
    | RetryPart
    | CompactionPart
)


def part_ended(part: Part) -> bool:
    """Whether this part makes no more progress."""
    match part:
        case TextPart(time=time) | ReasoningPart(time=time):
            return time is None or time.end is not None
        case ToolPart(state=state):
            return isinstance(state, ToolCompleted | ToolError)
        case _:
            return True
