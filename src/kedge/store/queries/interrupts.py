"""Interrupts: close what a run left open when it ended without finishing."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kedge.domain import wire
from kedge.domain.events import MessageUpdated, PartUpdated
from kedge.domain.messages import AssistantMessage
from kedge.domain.parts import (
    Part,
    PartTime,
    ReasoningPart,
    TextPart,
    ToolError,
    ToolPart,
    ToolPending,
    ToolRunning,
    ToolTime,
    part_ended,
)
from kedge.domain.sessions import SessionInfo
from kedge.domain.wire_errors import Failure
from kedge.store.queries.parts import decode_part
from kedge.store.queries.pieces import joined, take_pieces
from kedge.store.queries.sessions import about
from kedge.store.rows import join_message, part_type, split_message, split_part
from kedge.store.transaction import Script, rows, run

TOOL_ABORTED = "Tool execution aborted"


def interrupt_open_messages(
    info: SessionInfo, now: int, error: Failure, notes: Mapping[str, str] | None = None
) -> Script[int]:
    """Complete every open message of a locked session with an error, and its tool calls as
    interrupted; `notes` add details to some of these, by part."""
    pieces = yield from take_pieces(info.id)
    found = yield from rows("message_open_list", session_id=info.id)
    for each in found:
        yield from _interrupt_parts(info, each[0], each[4], now, notes or {}, pieces)
        message = wire.decode(join_message(info.id, each), AssistantMessage)
        time = msgspec.structs.replace(message.time, completed=now)
        closed = msgspec.structs.replace(message, time=time, error=message.error or error)
        role, parent, data = split_message(closed)
        yield from run(
            "message_update",
            session_id=info.id,
            id=closed.id,
            role=role,
            parent_id=parent,
            open=0,
            data=data,
        )
        event = MessageUpdated(sessionID=info.id, info=closed)
        yield about(info, event, f"message:{closed.id}")
    return len(found)


def _interrupt_parts(
    info: SessionInfo,
    message_id: str,
    pos: int,
    now: int,
    notes: Mapping[str, str],
    pieces: Mapping[str, Sequence[tuple[int, str]]],
) -> Script[None]:
    found = yield from rows("part_range", session_id=info.id, first=pos, last=pos)
    for _, id, type, data in found:
        part = decode_part(info.id, message_id, (id, type, data))
        if part_ended(part):
            continue
        if isinstance(part, TextPart | ReasoningPart):
            part = msgspec.structs.replace(part, text=joined(part.text, pieces.get(id, ())))
        closed = interrupted(part, now, notes.get(id, ""))
        yield from run(
            "part_put",
            session_id=info.id,
            message_pos=pos,
            id=id,
            type=part_type(closed),
            data=split_part(closed),
        )
        event = PartUpdated(sessionID=info.id, part=closed, time=now)
        entity = f"part:{message_id} {id}"
        yield about(info, event, entity)._replace(after_progress=True)


def interrupted(part: Part, now: int, note: str = "") -> Part:
    """The part after an interrupt: text ends where it was, a tool call fails."""
    if isinstance(part, ToolPart):
        return msgspec.structs.replace(part, state=_interrupted_state(part, now, note))
    if isinstance(part, TextPart | ReasoningPart) and part.time is not None:
        time: PartTime = msgspec.structs.replace(part.time, end=now)
        return msgspec.structs.replace(part, time=time)
    return part


def _interrupted_state(part: ToolPart, now: int, note: str) -> ToolError:
    state = part.state
    assert isinstance(state, ToolPending | ToolRunning)
    start = state.time.start if isinstance(state, ToolRunning) else now
    known: dict[str, Any] = (state.metadata or {}) if isinstance(state, ToolRunning) else {}
    if not note and (subtask := known.get("sessionId")):
        note = f"The session {subtask} that worked for it was interrupted too; what it did stays."
    return ToolError(
        input=state.input,
        error=f"{TOOL_ABORTED}. {note}" if note else TOOL_ABORTED,
        metadata={**known, "interrupted": True},
        time=ToolTime(start=start, end=now),
    )
