"""The state tables of a store, read whole; only tests can afford that."""

from dataclasses import dataclass

import msgspec

from kedge.store.port import Store
from kedge.store.session_state import IDLE, Json, SessionState, session_state
from kedge.store.transaction import Script, rows

__all__ = ["IDLE", "Json", "SessionState", "State", "read_state", "state_of"]

_PAGE = 500


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
        sessions[info["id"]] = yield from session_state(info, hidden)
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
