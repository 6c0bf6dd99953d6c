"""A plain model of what the event log means: fold the events, compare with the state tables.

It is no way to read sessions: it knows nothing of paging and keeps everything in memory. Values are JSON's own
types, so that the model shares no code with what it checks.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from kedge.domain.ids import IdBlock
from kedge.store.port import Store, StoredEvent
from kedge.store.rows import join_message, join_part
from kedge.store.script import Script, row, rows
from kedge.store.verbs.eventlog import events_after

Json: TypeAlias = dict[str, Any]

_IDLE: Json = {"type": "idle"}
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


@dataclass(frozen=True)
class State:
    """Everything that a database says; two that say the same are equal."""

    sessions: dict[str, SessionState]
    projects: dict[str, Json]


@dataclass
class _Session:
    info: Json
    hidden: bool = False
    announced: bool = False
    messages: dict[str, Json] = field(default_factory=dict)
    parts: dict[str, dict[str, Json]] = field(default_factory=dict)
    todos: list[Json] = field(default_factory=list)
    status: Json = field(default_factory=lambda: _IDLE)

    def ordered(self) -> list[str]:
        """The ids of the messages in the order of the conversation."""
        return sorted(self.messages, key=lambda id: int(self.messages[id]["time"]["created"]))

    def parts_of(self, message: str) -> list[Json]:
        found = self.parts.get(message, {})
        return [found[id] for id in sorted(found)]

    def state(self) -> SessionState:
        return SessionState(
            info=self.info,
            hidden=self.hidden,
            messages=[(self.messages[id], self.parts_of(id)) for id in self.ordered()],
            strays=sorted(
                id for message in self.parts.keys() - self.messages for id in self.parts[message]
            ),
            todos=self.todos,
            status=self.status,
        )


class Replay:
    """What somebody knows who has read the event log from its beginning."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._projects: dict[str, Json] = {}

    def apply(self, event: StoredEvent | str) -> None:
        """Take in the next event, or its JSON text."""
        payload = event.payload if isinstance(event, StoredEvent) else event
        frame = msgspec.json.decode(payload)
        fold = _FOLDS.get(frame["type"])
        if fold is not None:
            fold(self, frame["properties"])

    def apply_all(self, events: Iterable[StoredEvent | str]) -> "Replay":
        """Take in events in their order."""
        for event in events:
            self.apply(event)
        return self

    def state(self) -> State:
        """What the events so far amount to.

        Of a purged session only the news of its deletion is left, which is no session any more.
        """
        sessions = {id: each.state() for id, each in self._sessions.items() if each.announced}
        return State(sessions, dict(self._projects))

    def _session(self, id: str) -> _Session:
        """A session that the events are about; after compaction its own event may come last."""
        found = self._sessions.setdefault(id, _Session({}))
        found.announced = True
        return found

    def _created(self, event: Json) -> None:
        session = self._session(event["sessionID"])
        session.info, session.hidden = event["info"], False
        if copy := event.get("copy"):
            session.todos = copy["todos"]
            _copy(self._sessions.get(event["info"]["fork"]["sessionID"]), session, copy)

    def _updated(self, event: Json) -> None:
        session = self._session(event["sessionID"])
        session.info, session.hidden = event["info"], False

    def _deleted(self, event: Json) -> None:
        session = self._sessions.setdefault(event["sessionID"], _Session({}))
        session.info, session.hidden = event["info"], True

    def _status(self, event: Json) -> None:
        self._session(event["sessionID"]).status = event["status"]

    def _message(self, event: Json) -> None:
        self._session(event["sessionID"]).messages[event["info"]["id"]] = event["info"]

    def _message_removed(self, event: Json) -> None:
        session = self._session(event["sessionID"])
        session.messages.pop(event["messageID"], None)
        session.parts.pop(event["messageID"], None)

    def _part(self, event: Json) -> None:
        part = event["part"]
        parts = self._session(event["sessionID"]).parts
        parts.setdefault(part["messageID"], {})[part["id"]] = part

    def _part_removed(self, event: Json) -> None:
        parts = self._session(event["sessionID"]).parts.get(event["messageID"], {})
        parts.pop(event["partID"], None)

    def _todos(self, event: Json) -> None:
        self._session(event["sessionID"]).todos = event["todos"]

    def _project(self, event: Json) -> None:
        self._projects[event["id"]] = event


_FOLDS = {
    "session.created": Replay._created,
    "session.updated": Replay._updated,
    "session.deleted": Replay._deleted,
    "session.status": Replay._status,
    "message.updated": Replay._message,
    "message.removed": Replay._message_removed,
    "message.part.updated": Replay._part,
    "message.part.removed": Replay._part_removed,
    "todo.updated": Replay._todos,
    "project.updated": Replay._project,
}


def _copy(origin: _Session | None, fork: _Session, copy: Json) -> None:
    """Make the copies of a fork from what its origin is at this point of the log."""
    if origin is None or not copy["messages"]:
        return
    block = IdBlock(copy["base"], copy["suffix"])
    olds = origin.ordered()[: copy["messages"]]
    ids = {old: block.id("msg", n) for n, old in enumerate(olds)}
    n = copy["messages"]
    for old, new in ids.items():
        message = {**origin.messages[old], "id": new, "sessionID": fork.info["id"]}
        if message["role"] == "assistant":
            message["parentID"] = ids.get(message["parentID"], message["parentID"])
        fork.messages[new] = message
        for part in origin.parts_of(old):
            fork.parts.setdefault(new, {})[block.id("prt", n)] = _copied(
                part, block.id("prt", n), new, fork.info["id"], ids
            )
            n += 1


def _copied(part: Json, id: str, message: str, session: str, ids: dict[str, str]) -> Json:
    copied = {**part, "id": id, "messageID": message, "sessionID": session}
    if part["type"] == "compaction" and part.get("tail_start_id"):
        copied["tail_start_id"] = ids.get(part["tail_start_id"], part["tail_start_id"])
    return copied


async def replayed(store: Store) -> State:
    """What the store's event log, read from its beginning, amounts to."""
    return await store.scan(_replayed)


async def state_of(store: Store) -> State:
    """What the store's state tables say, read at one moment."""
    return await store.scan(_state)


async def both(store: Store) -> tuple[State, State]:
    """The replayed log and the state tables at the same moment, however many write meanwhile."""

    def script() -> Script[tuple[State, State]]:
        return (yield from _replayed()), (yield from _state())

    return await store.scan(script)


def _replayed() -> Script[State]:
    replay, seq = Replay(), 0
    while events := (yield from events_after(seq)):
        replay.apply_all(events)
        seq = events[-1].seq
    return replay.state()


def _state() -> Script[State]:
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
    return SessionState(
        info=info,
        hidden=hidden,
        messages=[messages[pos] for pos in sorted(messages)],
        strays=sorted(strays),
        todos=msgspec.json.decode(todos[1]) if todos else [],
        status=msgspec.json.decode(lease[3]) if lease and lease[1] is not None else _IDLE,
    )
