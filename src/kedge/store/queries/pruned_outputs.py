"""Pruning: marks on the outputs of tools that models are not sent any more."""

from collections.abc import Iterable
from typing import Any

import msgspec

from kedge.domain import wire
from kedge.domain.events import PartUpdated
from kedge.domain.messages import Message
from kedge.domain.parts import ToolCompleted, ToolPart
from kedge.domain.sessions import SessionInfo
from kedge.store.queries.fences import Fence
from kedge.store.queries.parts import decode_part, put_part
from kedge.store.queries.sessions import about, lock_live_session
from kedge.store.rows import join_message, split_part
from kedge.store.transaction import Script, row, rows, run

_LAST = 2**62
_MARK = '%"compacted":%'
"""Inside a text the quotation marks would be escaped."""


def prune(
    session_id: str, parts: Iterable[tuple[str, str]], *, fence: Fence, now: int
) -> Script[None]:
    """Mark the outputs of these calls, each named by its message and part: models are not sent them
    any more.

    Messages that come later are newer than the marks, whatever the clock says. So it is known which
    marks are older than a message.
    """
    locked = yield from lock_live_session(session_id, fence)
    time = max(now, locked.last_created)
    yield from run("session_advance", id=session_id, next_pos=locked.next_pos, last_created=time)
    for message_id, id in parts:
        home = yield from row("message_get", session_id=session_id, id=message_id)
        found = home and (
            yield from row("part_get", session_id=session_id, message_pos=home[4], id=id)
        )
        part = decode_part(session_id, message_id, found) if found else None
        if isinstance(part, ToolPart) and isinstance(part.state, ToolCompleted):
            yield from put_part(_marked(part, part.state, time), now=now)


def unprune(
    info: SessionInfo, *, since: int, before: int, now: int, extra: dict[str, Any] | None = None
) -> Script[None]:
    """Remove the marks that are not older than the time `since` from messages before a position."""
    found = yield from rows("part_pruned", session_id=info.id, pos=before, pattern=_MARK)
    for message_id, pos, id, type, data in found:
        part = decode_part(info.id, message_id, (id, type, data))
        if not (isinstance(part, ToolPart) and isinstance(part.state, ToolCompleted)):
            continue
        if (part.state.time.compacted or -1) < since:
            continue
        sent_again = _marked(part, part.state, None)
        yield from run(
            "part_set_data",
            session_id=info.id,
            message_pos=pos,
            id=id,
            data=split_part(sent_again),
        )
        event = PartUpdated(sessionID=info.id, part=sent_again, time=now, extra=extra)
        yield about(info, event, f"part:{message_id} {id}")


def created_at(session_id: str, pos: int) -> Script[int]:
    """When the message at a position was created."""
    found = yield from row("message_at", session_id=session_id, pos=pos)
    if found is None:
        return _LAST
    message: Message = wire.decode(join_message(session_id, found), Message)
    return int(message.time.created)


def _marked(part: ToolPart, state: ToolCompleted, time: int | None) -> ToolPart:
    times = msgspec.structs.replace(state.time, compacted=time)
    return msgspec.structs.replace(part, state=msgspec.structs.replace(state, time=times))
