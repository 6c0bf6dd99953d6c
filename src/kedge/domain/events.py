"""The properties of events on the wire, one class per type; storing and sending are elsewhere."""

from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from kedge.domain.messages import Message
from kedge.domain.parts import Part
from kedge.domain.permissions import PermissionReply, PermissionRequest
from kedge.domain.projects import Project
from kedge.domain.questions import QuestionRequest
from kedge.domain.sessions import FileDiff, SessionInfo, SessionStatus, Todo
from kedge.domain.values import Value
from kedge.domain.wire import decode, encode
from kedge.domain.wire_errors import Failure


class EventProperties(Value, frozen=True, kw_only=True):
    """An event's content; each subclass is one type of event."""

    type: ClassVar[str]
    stored: ClassVar[bool] = True
    """Whether it is stored, instead of only being sent to the current listeners."""


class Copy(Value, frozen=True, kw_only=True):
    """How the ids of a fork's copies were made: messages first, then parts, from one `IdBlock`."""

    base: int
    suffix: str
    messages: int
    parts: int
    todos: list[Todo]


class SessionCreated(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "session.created"
    sessionID: str
    info: SessionInfo
    copy: Copy | None = None
    """Present when the session is a fork, instead of an event for every copied message and part."""


class SessionUpdated(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "session.updated"
    sessionID: str
    info: SessionInfo


class SessionDeleted(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "session.deleted"
    sessionID: str
    info: SessionInfo


class SessionStatusChanged(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "session.status"
    sessionID: str
    status: SessionStatus


class SessionIdle(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "session.idle"
    sessionID: str


class SessionErrored(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "session.error"
    sessionID: str | None = None
    error: Failure | None = None


class SessionDiff(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "session.diff"
    sessionID: str
    diff: list[FileDiff]


class SessionCompacted(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "session.compacted"
    sessionID: str


class SessionRequest(EventProperties, frozen=True, kw_only=True):
    """A request to a running session, possibly in another process."""

    type: ClassVar[str] = "kedge.request"
    sessionID: str
    requestID: str
    kind: str
    generation: int | None = None
    """The run that the request is for: it does not affect a later run of the same session."""


class MessageUpdated(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "message.updated"
    sessionID: str
    info: Message


class MessageRemoved(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "message.removed"
    sessionID: str
    messageID: str


class PartUpdated(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "message.part.updated"
    sessionID: str
    part: Part
    time: int


class PartRemoved(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "message.part.removed"
    sessionID: str
    messageID: str
    partID: str


class PartDelta(EventProperties, frozen=True, kw_only=True):
    """More of a streamed text; `PartUpdated` has the whole text when the part ends."""

    type: ClassVar[str] = "message.part.delta"
    stored: ClassVar[bool] = False
    sessionID: str
    messageID: str
    partID: str
    field: str
    delta: str


class TodoUpdated(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "todo.updated"
    sessionID: str
    todos: list[Todo]
    messageID: str | None = None
    """The message that wrote the list, so that a revert can undo it."""


class PermissionAsked(PermissionRequest, EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "permission.asked"


class PermissionReplied(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "permission.replied"
    sessionID: str
    requestID: str
    reply: PermissionReply


class QuestionAsked(QuestionRequest, EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "question.asked"


class QuestionReplied(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "question.replied"
    sessionID: str
    requestID: str
    answers: list[list[str]]


class QuestionRejected(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "question.rejected"
    sessionID: str
    requestID: str


class FileEdited(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "file.edited"
    file: str


class FileWatcherUpdated(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "file.watcher.updated"
    file: str
    event: Literal["add", "change", "unlink"]


class CommandExecuted(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "command.executed"
    name: str
    sessionID: str
    arguments: str
    messageID: str


class ProjectUpdated(Project, EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "project.updated"


class VcsBranchUpdated(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "vcs.branch.updated"
    branch: str | None = None


class LspUpdated(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "lsp.updated"


class McpToolsChanged(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "mcp.tools.changed"
    server: str


class ServerConnected(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "server.connected"
    stored: ClassVar[bool] = False


class ServerHeartbeat(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "server.heartbeat"
    stored: ClassVar[bool] = False


class ServerResync(EventProperties, frozen=True, kw_only=True):
    """The listener missed events, or its cursor is unusable; it must reload the state."""

    type: ClassVar[str] = "server.resync"
    stored: ClassVar[bool] = False
    cursor: str
    reason: Literal["slow", "foreign", "future"]


class InstanceDisposed(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "server.instance.disposed"
    stored: ClassVar[bool] = False
    directory: str


class GlobalDisposed(EventProperties, frozen=True, kw_only=True):
    type: ClassVar[str] = "global.disposed"
    stored: ClassVar[bool] = False


class UnknownEvent(Value, frozen=True, kw_only=True):
    """An event of a type that kedge does not know; `extra` has the keys beside its properties."""

    type: str
    properties: dict[str, Any]


P = TypeVar("P")


class EventFrame(Value, Generic[P], frozen=True, kw_only=True):
    """An event as listeners receive it."""

    id: str
    type: str
    properties: P


class _Head(msgspec.Struct, frozen=True):
    type: str


class _UnknownFrame(Value, frozen=True, kw_only=True):
    id: str
    type: str
    properties: dict[str, Any] = msgspec.field(default_factory=dict)


EVENTS: dict[str, type[EventProperties]] = {
    event.type: event
    for event in (
        SessionCreated,
        SessionUpdated,
        SessionDeleted,
        SessionStatusChanged,
        SessionIdle,
        SessionErrored,
        SessionDiff,
        SessionCompacted,
        SessionRequest,
        MessageUpdated,
        MessageRemoved,
        PartUpdated,
        PartRemoved,
        PartDelta,
        TodoUpdated,
        PermissionAsked,
        PermissionReplied,
        QuestionAsked,
        QuestionReplied,
        QuestionRejected,
        FileEdited,
        FileWatcherUpdated,
        CommandExecuted,
        ProjectUpdated,
        VcsBranchUpdated,
        LspUpdated,
        McpToolsChanged,
        ServerConnected,
        ServerHeartbeat,
        ServerResync,
        InstanceDisposed,
        GlobalDisposed,
    )
}


# Subscripted at run time, which type checkers do not support.
_frame_of: Any = EventFrame
_FRAMES = {name: _frame_of[kind] for name, kind in EVENTS.items()}


def frame(id: str, properties: EventProperties | UnknownEvent) -> str:
    """The JSON text of an event."""
    if isinstance(properties, UnknownEvent):
        return encode(
            EventFrame(
                id=id,
                type=properties.type,
                properties=properties.properties,
                extra=properties.extra,
            )
        )
    return encode(EventFrame(id=id, type=properties.type, properties=properties))


def frame_text(id: str, type: str, properties: str) -> str:
    """The JSON text of an event whose properties are already JSON text."""
    return f'{{"id":"{id}","type":"{type}","properties":{properties}}}'


def read_frame(raw: str | bytes) -> tuple[str, EventProperties | UnknownEvent]:
    """The id and the properties of an event from its JSON text."""
    kind = decode(raw, _Head).type
    if kind in _FRAMES:
        known: EventFrame[EventProperties] = decode(raw, _FRAMES[kind])
        return known.id, known.properties
    other = decode(raw, _UnknownFrame)
    return other.id, UnknownEvent(type=kind, properties=other.properties, extra=other.extra)
