"""Everything that the state tables say about one session, to be compared with the event log."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from kedge.store.rows import join_message, join_part
from kedge.store.transaction import Script, row, rows

Json: TypeAlias = dict[str, Any]

IDLE: Json = {"type": "idle"}
_ALL = 2**31


@dataclass(frozen=True)
class SessionState:
    """Everything that is known about one session."""

    info: Json
    hidden: bool
    messages: list[tuple[Json, list[Json]]]
    """Each message with its parts, in the order of the conversation."""
    strays: list[str]
    """Parts whose message does not exist; there must be none."""
    todos: list[Json]
    status: Json
    asks: dict[str, Json]
    """The open asks."""


def session_state(info: Json, hidden: bool) -> Script[SessionState]:
    """The state of one session, as a part of a script."""
    id = info["id"]
    messages: dict[int, tuple[Json, list[Json]]] = {}
    strays: list[str] = []
    for each in (yield from rows("message_page_forth", session_id=id, pos=-1, limit=_ALL)):
        messages[each[4]] = msgspec.json.decode(join_message(id, each)), []
    for pos, part_id, type, data in (
        yield from rows("part_range", session_id=id, first=-1, last=2**62)
    ):
        if pos in messages:
            message, parts = messages[pos]
            parts.append(msgspec.json.decode(join_part(id, message["id"], part_id, type, data)))
        else:
            strays.append(part_id)
    todos = yield from row("todo_newest", session_id=id)
    lease = yield from row("lease_get", session_id=id)
    asks = yield from rows("ask_open_of_session", session_id=id)
    return SessionState(
        info=info,
        hidden=hidden,
        messages=[messages[pos] for pos in sorted(messages)],
        strays=sorted(strays),
        todos=msgspec.json.decode(todos[1]) if todos else [],
        status=msgspec.json.decode(lease[3]) if lease and lease[1] is not None else IDLE,
        asks={ask_id: msgspec.json.decode(data) for ask_id, _, data, _, _ in asks},
    )
