"""Todos: each write is a new version, kept with the place in the conversation where it was made."""

from collections.abc import Sequence

from kedge.domain import wire
from kedge.domain.errors import MessageNotFound
from kedge.domain.events import TodoUpdated
from kedge.domain.sessions import Todo, TodoVersion
from kedge.store.queries.fences import Fence
from kedge.store.queries.sessions import LockedSession, about, get_session_text, lock_live_session
from kedge.store.rows import MAX_SESSION_BYTES, check_size
from kedge.store.transaction import Script, row, rows, run


def put_todos(
    session_id: str,
    todos: Sequence[Todo],
    *,
    now: int,
    message_id: str | None = None,
    fence: Fence | None = None,
) -> Script[None]:
    """Replace the whole list. Without a message the version belongs to the newest message that a
    pending revert does not hide."""
    locked = yield from lock_live_session(session_id, fence)
    pos = yield from _newest(locked)
    if message_id is not None:
        found = yield from row("message_get", session_id=session_id, id=message_id)
        if found is None:
            raise MessageNotFound(message_id)
        pos = found[4]
    yield from add_version(session_id, todos, now=now, message_id=message_id, pos=pos)
    event = TodoUpdated(sessionID=session_id, todos=list(todos), messageID=message_id)
    yield about(locked.info, event, "todo")


def _newest(locked: LockedSession) -> Script[int]:
    revert = locked.info.revert
    if revert is not None:
        found = yield from row("message_get", session_id=locked.info.id, id=revert.messageID)
        if found is not None:
            return int(found[4]) - 1
    return locked.next_pos - 1


def add_version(
    session_id: str, todos: Sequence[Todo], *, now: int, message_id: str | None, pos: int
) -> Script[None]:
    """The row of a new version, without the event that announces it."""
    newest = yield from row("todo_newest", session_id=session_id)
    data = check_size(wire.encode(list(todos)), "the todo list", MAX_SESSION_BYTES)
    yield from run(
        "todo_add",
        session_id=session_id,
        version=newest[0] + 1 if newest else 1,
        message_id=message_id,
        pos=pos,
        now=now,
        data=data,
    )


def get_todos(session_id: str) -> Script[list[Todo]]:
    """The current list."""
    yield from get_session_text(session_id)
    found = yield from row("todo_newest", session_id=session_id)
    return wire.decode(found[1], list[Todo]) if found else []


def todos_before(session_id: str, pos: int) -> Script[list[Todo]]:
    """The list before the message at this position."""
    found = yield from row("todo_before", session_id=session_id, pos=pos)
    return wire.decode(found[1], list[Todo]) if found else []


def todo_history(session_id: str) -> Script[list[TodoVersion]]:
    """Every version, oldest first."""
    yield from get_session_text(session_id)
    found = yield from rows("todo_versions", session_id=session_id)
    return [
        TodoVersion(version, message_id, time, wire.decode(data, list[Todo]))
        for version, message_id, time, data in found
    ]
