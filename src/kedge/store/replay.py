"""A plain model of the event log's meaning: the state that follows from the events.

The doctor and the tests compare it with the state tables. It is not meant for reading sessions:
what it replays is kept in memory. Values are JSON's own types, so that the model shares no code
with what it checks.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

import msgspec

from kedge.domain.ids import IdBlock
from kedge.store.port import StoredEvent
from kedge.store.queries.event_log import session_events_after
from kedge.store.session_state import IDLE, Json, SessionState
from kedge.store.transaction import Script


@dataclass
class _Session:
    info: Json
    hidden: bool = False
    announced: bool = False
    messages: dict[str, Json] = field(default_factory=dict)
    parts: dict[str, dict[str, Json]] = field(default_factory=dict)
    todos: list[Json] = field(default_factory=list)
    status: Json = field(default_factory=lambda: IDLE)
    asks: dict[str, Json] = field(default_factory=dict)

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
            asks=dict(self.asks),
        )


class Replay:
    """The state that follows from reading the event log from its beginning."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._projects: dict[str, Json] = {}

    def apply(self, event: StoredEvent | str) -> None:
        """Apply the next event, or its JSON text."""
        payload = event.payload if isinstance(event, StoredEvent) else event
        frame = msgspec.json.decode(payload)
        fold = _FOLDS.get(frame["type"])
        if fold is not None:
            fold(self, frame["properties"])

    def apply_all(self, events: Iterable[StoredEvent | str]) -> Self:
        """Apply events in their order."""
        for event in events:
            self.apply(event)
        return self

    def sessions(self) -> dict[str, SessionState]:
        """The sessions after the events so far.

        Of a purged session only the event of its deletion is left, and no session.
        """
        return {id: each.state() for id, each in self._sessions.items() if each.announced}

    def projects(self) -> dict[str, Json]:
        """The projects after the events so far."""
        return dict(self._projects)

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

    def _asked(self, event: Json) -> None:
        self._session(event["sessionID"]).asks[event["id"]] = event

    def _answered(self, event: Json) -> None:
        self._session(event["sessionID"]).asks.pop(event["requestID"], None)

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
    "permission.asked": Replay._asked,
    "permission.replied": Replay._answered,
    "question.asked": Replay._asked,
    "question.replied": Replay._answered,
    "question.rejected": Replay._answered,
    "project.updated": Replay._project,
}


def _copy(origin: _Session | None, fork: _Session, copy: Json) -> None:
    """Make the copies of a fork from its origin's state at this point of the log."""
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


def replay_session(id: str) -> Script[SessionState | None]:
    """What follows from the events of one session; of its origin, if copies of that are still to be
    made, only what came before. None if nothing announces the session."""
    replay = Replay()
    yield from _replay_until(replay, id, None)
    return replay.sessions().get(id)


def _replay_until(replay: Replay, id: str, end: int | None) -> Script[None]:
    seq = 0
    while events := (yield from session_events_after(id, seq)):
        for event in events:
            if end is not None and event.seq >= end:
                return
            origin = _origin_of(event)
            if origin is not None:
                yield from _replay_until(replay, origin, event.seq)
            replay.apply(event)
        seq = events[-1].seq


def _origin_of(event: StoredEvent) -> str | None:
    """The session whose messages the event copies, if it does."""
    if event.type != "session.created":
        return None
    properties = msgspec.json.decode(event.payload)["properties"]
    if not properties.get("copy", {}).get("messages"):
        return None
    return str(properties["info"]["fork"]["sessionID"])
