"""What the doctor reads: rows that fit together with nothing, and everything about one session."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kedge.domain import wire
from kedge.domain.sessions import SessionInfo
from kedge.store.queries.leases import clock
from kedge.store.queries.plans import PlanData
from kedge.store.queries.session_lists import places_of
from kedge.store.replay import replay_session
from kedge.store.session_state import Json, SessionState, session_state
from kedge.store.transaction import Row, Script, row, rows

_PAGE = 500
_ID = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class LeftOpen:
    """Something that only a run may leave open."""

    kind: str
    session_id: str
    id: str
    owner: str | None
    """The owner of the session's lease."""
    expired: bool


@dataclass(frozen=True, slots=True)
class KnownSession:
    """What people recognize a session by."""

    title: str
    is_deleted: bool


@dataclass(slots=True)
class Examined:
    """What was found in one session."""

    differences: list[str] = field(default_factory=list)
    """Between the tables and the log, in words."""
    lost: list[str] = field(default_factory=list)
    """What the log has and the tables have not, in words."""
    damaged: str = ""
    """Why its rows cannot be read."""
    is_listed: bool = True
    running: list[str] = field(default_factory=list)
    """Tool calls that have not ended, in messages that have."""
    owner: str | None = None
    expired: bool = False
    files: set[str] = field(default_factory=set)
    """Ids of objects that a revert needs."""
    shown: set[str] = field(default_factory=set)
    """Ids of trees that its parts name."""


def is_id(text: str) -> bool:
    """Whether a text can be the id of an object: programs may store any."""
    return _ID.fullmatch(text) is not None


def orphans() -> Script[list[Row]]:
    """Rows of sessions that do not exist: table, session, count."""
    found = list((yield from rows("checkup_orphans")))
    for plan, count in (yield from rows("checkup_steps_without_plan")):
        found.append(("plan_step", plan, count))
    return found


def without_project() -> Script[list[Row]]:
    """Sessions and worktrees whose project does not exist."""
    return list((yield from rows("checkup_without_project")))


def differing_projects() -> Script[list[str]]:
    """Projects that are not as their newest event says."""
    told: dict[str, Json] = {}
    seq = 0
    while page := (yield from rows("checkup_project_events", seq=seq, limit=_PAGE)):
        seq = page[-1][0]
        for _, payload in page:
            properties = msgspec.json.decode(payload)["properties"]
            told[properties["id"]] = properties
    found: list[str] = []
    after = ""
    while page := (yield from rows("project_all", after=after, limit=_PAGE)):
        for (data,) in page:
            project = msgspec.json.decode(data)
            after = project["id"]
            if told.pop(after, None) != project:
                found.append(after)
    return found + list(told)


def left_open() -> Script[list[LeftOpen]]:
    """All that is open now, of living runs too."""
    now = yield from clock()
    found = yield from rows("checkup_open")
    return [
        LeftOpen(kind, session, id, owner, expires is None or expires <= now)
        for kind, session, id, owner, expires in found
    ]


def passing_rules() -> Script[list[Row]]:
    """The rules that hold for as long as an engine is open, with whether they have expired."""
    now = yield from clock()
    return [(*each[:4], each[4] <= now) for each in (yield from rows("checkup_rules"))]


def size() -> Script[tuple[int, int]]:
    """How many sessions there are, and how many messages they had."""
    found = yield from row("checkup_size")
    assert found is not None
    return int(found[0]), int(found[1])


def session_ids(after: str, limit: int) -> Script[list[tuple[str, int]]]:
    """Sessions by id, deleted ones too, each with how many messages it had."""
    found = yield from rows("checkup_sessions", after=after, limit=limit)
    return [(each[0], int(each[1])) for each in found]


def known_session(id: str) -> Script[KnownSession | None]:
    """A session, deleted or not."""
    found = yield from row("checkup_session", id=id)
    if found is None:
        return None
    return KnownSession(wire.decode(found[2], SessionInfo).title, found[1] is not None)


def examine_session(id: str, machine: str) -> Script[Examined | None]:
    """Everything about a session, read at one moment; None if it is gone."""
    found = yield from row("checkup_session", id=id)
    if found is None:
        return None
    result = Examined()
    now = yield from clock()
    lease = yield from row("lease_get", session_id=id)
    if lease is not None and lease[1] is not None:
        result.owner, result.expired = lease[1], lease[2] <= now
    try:
        yield from _examine(id, found, result, machine)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        result.damaged = str(error) or repr(error)
    return result


def _examine(id: str, found: Row, result: Examined, machine: str) -> Script[None]:
    project, deleted, data = found
    info = wire.decode(data, SessionInfo)
    state = yield from session_state(msgspec.json.decode(data), deleted is not None)
    replayed = yield from replay_session(id)
    result.differences = list(_differences(state, replayed))
    result.lost = list(_lost(state, replayed))
    result.is_listed = yield from _is_listed(info, project, deleted)
    _look_at_parts(state, result)
    if info.revert is not None and info.revert.snapshot:
        result.shown.add(info.revert.snapshot)
    yield from _references(id, result, machine)


def _differences(state: SessionState, replayed: SessionState | None) -> Iterator[str]:
    if replayed is None:
        yield "no event announces the session"
        return
    for name in ("info", "hidden", "todos", "status", "asks"):
        if getattr(state, name) != getattr(replayed, name):
            yield _NAMES[name]
    theirs = _by_id(replayed)
    for id, ours in _by_id(state).items():
        if theirs.get(id) != ours:
            yield _named(id)
    known = [message["id"] for message, _ in replayed.messages]
    order = [message["id"] for message, _ in state.messages]
    if [id for id in known if id in order] != [id for id in order if id in known]:
        yield "the order of its messages"


def _lost(state: SessionState, replayed: SessionState | None) -> Iterator[str]:
    ours = _by_id(state)
    for id in _by_id(replayed) if replayed is not None else ():
        if id not in ours:
            yield f"{_named(id)} is gone"
    for id in state.strays:
        yield f"the message of {_named(id)} is gone"


def _named(id: str) -> str:
    return f"the message {id}" if id.startswith("msg") else f"the part {id}"


_NAMES = {
    "info": "the session itself",
    "hidden": "whether it is deleted",
    "todos": "its todo list",
    "status": "its status",
    "asks": "what it asks",
}


def _by_id(state: SessionState) -> dict[str, Json]:
    found = {}
    for message, parts in state.messages:
        found[message["id"]] = message
        found |= {part["id"]: part for part in parts}
    return found


def _is_listed(info: SessionInfo, project: str, deleted: int | None) -> Script[bool]:
    found = [tuple(each) for each in (yield from rows("checkup_places", session_id=info.id))]
    expected = [] if deleted is not None else sorted(places_of(info))
    return sorted(found) == expected and project == info.projectID


def _look_at_parts(state: SessionState, result: Examined) -> None:
    for message, parts in state.messages:
        has_ended = message["role"] == "user" or "completed" in message["time"]
        for part in parts:
            status = part.get("state", {}).get("status") if part["type"] == "tool" else None
            if status in ("pending", "running") and has_ended:
                result.running.append(part["id"])
            result.shown |= _trees_of(part)


def _trees_of(part: Json) -> set[str]:
    """The trees that a part names."""
    if part["type"] in ("step-start", "step-finish", "snapshot"):
        found = part.get("snapshot")
    elif part["type"] == "patch":
        found = part.get("hash")
    else:
        return set()
    return {found} if found else set()


def _references(id: str, result: Examined, machine: str) -> Script[None]:
    for sides in (yield from rows("checkup_changes", session_id=id)):
        result.files |= {blob for blob in sides if blob}
    for sides in (yield from rows("checkup_plan_steps", session_id=id)):
        result.files |= {blob for blob in sides if blob}
    for _, data in (yield from rows("checkup_plans", session_id=id)):
        plan = wire.decode(data, PlanData)
        if plan.snapshot and plan.machine == machine:
            result.shown.add(plan.snapshot)
    for kind, home, data in (yield from rows("checkup_calls", session_id=id)):
        if kind == "declared" and home == machine:
            paths: list[dict[str, Any]] = msgspec.json.decode(data)["paths"]
            result.files |= {blob for each in paths if (blob := each["before"].get("blob"))}
    for (data,) in (yield from rows("checkup_tail_parts", session_id=id)):
        part = msgspec.json.decode(data)
        found = part.get("snapshot") or part.get("hash")
        result.shown |= {found} if found else set()
    for (data,) in (yield from rows("checkup_tails", session_id=id)):
        snapshot = msgspec.json.decode(data).get("snapshot")
        result.shown |= {snapshot} if snapshot else set()
