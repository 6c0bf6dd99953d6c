"""Repairs of what the doctor finds: each is one transaction that looks again before it changes
anything."""

from collections.abc import Mapping

import msgspec

from kedge.domain import wire
from kedge.domain.events import (
    MessageUpdated,
    PartUpdated,
    SessionDeleted,
    SessionUpdated,
    TodoUpdated,
)
from kedge.domain.messages import Message
from kedge.domain.parts import Part, part_ended
from kedge.domain.sessions import SessionInfo, SessionStatus, Todo
from kedge.domain.wire_errors import aborted
from kedge.store.queries.asks import withdraw_asks
from kedge.store.queries.interrupts import interrupt_open_messages, interrupted
from kedge.store.queries.leases import status_event
from kedge.store.queries.pieces import take_pieces
from kedge.store.queries.processes import drop_processes
from kedge.store.queries.session_lists import list_session, unlist_session
from kedge.store.queries.sessions import about, lock_session, store_session
from kedge.store.queries.timeline import abandon_calls, next_number
from kedge.store.replay import replay_session
from kedge.store.rows import join_part, split_part
from kedge.store.session_state import Json, SessionState, session_state
from kedge.store.transaction import Rows, Script, ScriptMaker, row, rows, run

_CLOSED = aborted("Closed by kedge doctor: no process was running it")

SAVED: Mapping[str, str] = {
    "message": "checkup_save_message",
    "part": "checkup_save_part",
    "todo": "checkup_save_todo",
    "lease": "checkup_save_lease",
    "request": "checkup_save_request",
    "change": "checkup_save_change",
    "call": "checkup_save_call",
    "seen": "checkup_save_seen",
    "step_head": "checkup_save_head",
    "plan": "checkup_save_plan",
    "plan_step": "checkup_save_step",
    "tail": "checkup_save_tail",
    "ask": "checkup_save_ask",
    "process": "checkup_save_process",
    "piece": "checkup_save_piece",
    "session_place": "checkup_save_place",
    "event": "checkup_save_event",
    "session": "checkup_save_session",
    "permission_rule": "checkup_save_rules",
    "meta": "checkup_save_meta",
}
"""By table, the query for the rows of an owner."""

_DROPPED: Mapping[str, str] = {
    "message": "purge_message",
    "part": "purge_part",
    "todo": "purge_todo",
    "lease": "purge_lease",
    "request": "purge_request",
    "change": "purge_change",
    "call": "purge_call",
    "seen": "purge_seen",
    "step_head": "purge_head",
    "plan": "purge_plan",
    "tail": "purge_tail",
    "ask": "purge_ask",
    "process": "purge_process",
    "piece": "purge_piece",
    "session_place": "place_drop",
    "event": "purge_event",
}


def rows_of(table: str, owner: str) -> Script[Rows]:
    """The rows of a table that belong to a session, or to what else owns them."""
    return (yield from rows(SAVED[table], session_id=owner))


def drop_orphans(table: str, owner: str) -> Script[bool]:
    """Remove the rows of a session or plan that does not exist; return whether it does not."""
    if table == "plan_step":
        if (yield from row("plan_get", id=owner)) is not None:
            return False
        yield from run("checkup_drop_steps", id=owner)
        return True
    if (yield from row("session_lock", id=owner)) is not None:
        return False
    yield from run(_DROPPED[table], session_id=owner)
    return True


def let_go(session_id: str, now: int, closing: ScriptMaker[None]) -> Script[bool]:
    """End everything that only a run leaves open, in a session that has none; return whether that
    is so. `closing` records that what its calls did is not known."""
    info = (yield from lock_session(session_id)).info
    held = yield from row("lease_get", session_id=session_id)
    if held is not None and held[1] is not None:
        return False
    yield from interrupt_open_messages(info, now, _CLOSED)
    yield from _interrupt_calls(info, now)
    yield from take_pieces(session_id)
    yield from closing()
    yield from abandon_calls(session_id)
    yield from run("checkup_end_call", session_id=session_id, ended=(yield from next_number()))
    yield from drop_processes(session_id)
    yield from run("request_handle_all", session_id=session_id, now=now)
    yield from withdraw_asks(info, now)
    return True


def _interrupt_calls(info: SessionInfo, now: int) -> Script[None]:
    """End calls that seem to run in messages that are complete."""
    found = yield from rows("part_range", session_id=info.id, first=-1, last=2**62)
    ids = {each[4]: each[0] for each in (yield from _messages(info.id))}
    for pos, id, type, data in found:
        if type != "tool" or pos not in ids:
            continue
        part = wire.decode(join_part(info.id, ids[pos], id, type, data), Part)
        if not part_ended(part):
            closed = interrupted(part, now)
            args = {"session_id": info.id, "message_pos": pos, "id": id}
            yield from run("part_set_data", data=split_part(closed), **args)
            event = PartUpdated(sessionID=info.id, part=closed, time=now)
            yield about(info, event, f"part:{ids[pos]} {id}")._replace(after_progress=True)


def _messages(session_id: str) -> Script[Rows]:
    return (yield from rows("message_page_forth", session_id=session_id, pos=-1, limit=2**31))


def list_anew(session_id: str) -> Script[bool]:
    """Put a session into its lists again."""
    locked = yield from lock_session(session_id)
    yield from unlist_session(session_id)
    yield from store_session(locked.info)
    if locked.time_deleted is None:
        yield from list_session(locked.info)
    return True


def announce_anew(session_id: str, now: int) -> Script[bool]:
    """Announce what the tables say of a session where the log says something else.

    What only the log has stays there, because it may be all that is left of it. Asks, which end
    with their run, are left alone.
    """
    locked = yield from lock_session(session_id)
    info = locked.info
    state = yield from session_state(msgspec.to_builtins(info), locked.time_deleted is not None)
    known = (yield from replay_session(session_id)) or SessionState(
        info={}, hidden=False, messages=[], strays=[], todos=[], status={}, asks={}
    )
    yield from _announce_messages(info, state, known, now)
    if state.todos != known.todos:
        todos = wire.decode(wire.encode(state.todos), list[Todo])
        yield about(info, TodoUpdated(sessionID=session_id, todos=todos), "todo")
    if state.status != known.status:
        yield status_event(info, wire.decode(wire.encode(state.status), SessionStatus))
    if state.hidden:
        yield about(info, SessionDeleted(sessionID=session_id, info=info))
    else:
        yield about(info, SessionUpdated(sessionID=session_id, info=info))
    return True


def _announce_messages(
    info: SessionInfo, state: SessionState, known: SessionState, now: int
) -> Script[None]:
    told = {message["id"]: (message, _by_id(parts)) for message, parts in known.messages}
    for message, parts in state.messages:
        id = message["id"]
        before, before_parts = told.get(id, ({}, {}))
        if before != message:
            value = wire.decode(wire.encode(message), Message)
            event = MessageUpdated(sessionID=info.id, info=value)
            yield about(info, event, f"message:{id}")
        for part in parts:
            if before_parts.get(part["id"]) != part:
                growing = wire.decode(wire.encode(part), Part)
                changed = PartUpdated(sessionID=info.id, part=growing, time=now)
                entity = f"part:{id} {part['id']}"
                yield about(info, changed, entity)._replace(after_progress=True)


def _by_id(parts: list[Json]) -> dict[str, Json]:
    return {part["id"]: part for part in parts}
