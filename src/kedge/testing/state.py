"""The state tables of a store, read whole; only tests can afford that."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from kedge.store.port import Store
from kedge.store.rows import join_message, join_part
from kedge.store.transaction import Script, row, rows

Json: TypeAlias = dict[str, Any]

IDLE: Json = {"type": "idle"}
_ALL = 2**31
_PAGE = 500


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


@dataclass(frozen=True)
class State:
    """The whole content of a database; equal states compare equal."""

    sessions: dict[str, SessionState]
    projects: dict[str, Json]


async def state_of(store: Store) -> State:
    """The state tables of a store, read at one moment."""
    return await store.scan(read_state)


def read_state() -> Script[State]:
    """Everything, as one script."""
    sessions: dict[str, SessionState] = {}
    for text, hidden in (yield from _session_texts()):
        info = msgspec.json.decode(text)
        sessions[info["id"]] = yield from _session_state(info, hidden)
    projects: dict[str, Json] = {}
    after = ""
    while found := (yield from rows("project_all", after=after, limit=_PAGE)):
        for (data,) in found:
            project = msgspec.json.decode(data)
            projects[project["id"]] = project
            after = project["id"]
    return State(sessions, projects)


def _session_texts() -> Script[list[tuple[str, bool]]]:
    texts: list[tuple[str, bool]] = []
    for bucket in range(4):
        time, id = 2**62, ""
        args = {"place": "all", "bucket": bucket, "start": -(2**62), "limit": _PAGE}
        while found := (yield from rows("place_page", time=time, id=id, **args)):
            texts += [(data, False) for data, _, _ in found]
            _, time, id = found[-1]
    time, id = -(2**62), ""
    while found := (yield from rows("session_deleted_list", time=time, id=id, limit=_PAGE)):
        texts += [(data, True) for data, _ in found]
        time, id = found[-1][1], msgspec.json.decode(found[-1][0])["id"]
    return texts


def _session_state(info: Json, hidden: bool) -> Script[SessionState]:
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
