"""Tails: the messages that a final revert took out of a session. Their rows are kept, under the
tail's id, until the session is purged; restoring a tail makes a new session of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kedge.domain import wire, wire_errors
from kedge.domain.errors import TailNotFound
from kedge.domain.events import Copy, SessionCreated
from kedge.domain.ids import IdBlock, IdMaker
from kedge.domain.parts import Part
from kedge.domain.sessions import SessionInfo, Tail, Todo
from kedge.domain.values import Value
from kedge.store.queries.boundaries import Boundary
from kedge.store.queries.changes import UnknownCall
from kedge.store.queries.copies import announce_copies, finish_copy, rename_tail_starts
from kedge.store.queries.interrupts import interrupt_open_messages
from kedge.store.queries.parts import decode_part
from kedge.store.queries.pruned_outputs import created_at, unprune
from kedge.store.queries.search import COPIED
from kedge.store.queries.sessions import about, get_session_text, insert_session, lock_live_session
from kedge.store.queries.todos import add_version
from kedge.store.queries.totals import message_totals, with_totals
from kedge.store.transaction import Row, Script, batch, row, rows, run

_LAST = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTail:
    """A tail that is about to be cut off."""

    id: str
    session_id: str
    boundary: Boundary
    messages: int
    todos: list[Todo]
    """The todo list when the tail was still part of the session."""
    snapshot: str | None
    time_created: int


class _TailData(Value, frozen=True, kw_only=True):
    messages: int
    todos: list[Todo]
    snapshot: str | None = None


@dataclass(frozen=True, slots=True)
class _Stored:
    tail: Tail
    pos: int
    data: _TailData


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the rows of a message are kept: under a session's or a tail's id."""

    owner: str
    pos: int
    id: str
    parent_id: str | None = None


def cut_tail(tail: NewTail) -> Script[None]:
    """Move everything behind the boundary from the session to the tail."""
    boundary = tail.boundary
    data = _TailData(messages=tail.messages, todos=tail.todos, snapshot=tail.snapshot)
    yield from run(
        "tail_add",
        id=tail.id,
        session_id=tail.session_id,
        message_id=boundary.message_id,
        part_id=boundary.part_id,
        pos=boundary.pos,
        now=tail.time_created,
        data=wire.encode(data),
    )
    args = {"tail_id": tail.id, "session_id": tail.session_id}
    yield from run("message_to_tail", pos=boundary.first_gone, **args)
    yield from run("part_to_tail", pos=boundary.first_gone, **args)
    if boundary.part_id is not None:
        yield from run("part_to_tail_from", pos=boundary.pos, part_id=boundary.part_id, **args)


def list_tails(session_id: str) -> Script[list[Tail]]:
    """The tails of a session, oldest first."""
    yield from get_session_text(session_id)
    return [each.tail for each in (yield from _stored(session_id))]


def restore_tail(id: str, fork: SessionInfo, ids: IdMaker, now: int) -> Script[SessionInfo]:
    """Fill the new session `fork` with a tail and everything before it, as it was then."""
    assert fork.fork is not None
    origin = yield from lock_live_session(fork.fork.sessionID)
    stored = yield from _stored(origin.info.id)
    index = next((n for n, each in enumerate(stored) if each.tail.id == id), None)
    if index is None:
        raise TailNotFound(id)
    chosen, later = stored[index], stored[index + 1 :]
    boundary = Boundary(
        message_id=chosen.tail.messageID, part_id=chosen.tail.partID, pos=chosen.pos
    )
    messages, parts = yield from _sources(origin.info.id, chosen, later, boundary)
    block = ids.block(len(messages) + len(parts))
    from_message = msgspec.structs.replace(fork.fork, messageID=boundary.message_id)
    fork = msgspec.structs.replace(fork, fork=from_message)
    fork = yield from insert_session(fork, origin.worktree)
    yield from _copy(fork.id, messages, parts, block)
    todos = chosen.data.todos
    if todos:
        yield from add_version(fork.id, todos, now=now, message_id=None, pos=boundary.pos - 1)
    info = with_totals(fork, (yield from message_totals(fork.id, 0, _LAST)))
    yield from finish_copy(info, origin.next_pos, origin.last_created)
    made = Copy(base=block.base, suffix=block.suffix, messages=0, parts=0, todos=todos)
    yield about(info, SessionCreated(sessionID=info.id, info=info, copy=made))
    yield from announce_copies(info, indexed_from=boundary.first_gone)
    began = yield from created_at(info.id, boundary.pos)
    yield from unprune(info, since=began, before=boundary.pos, now=now, extra=COPIED)
    error = wire_errors.aborted("The session was forked while this was running")
    yield from interrupt_open_messages(info, now, error)
    return info


def part_of_call(call: UnknownCall) -> Script[Part | None]:
    """The part of a call, even if a final revert removed it and left the call's changes."""
    found = yield from row(
        "part_get", session_id=call.session_id, message_pos=call.pos, id=call.part_id
    )
    if found is None:
        args = {"session_id": call.session_id, "id": call.part_id}
        found = yield from row("part_in_tail", **args)
    return None if found is None else decode_part(call.session_id, call.message_id, found)


def _stored(session_id: str) -> Script[list[_Stored]]:
    found = yield from rows("tail_list", session_id=session_id)
    return [_decoded(each) for each in found]


def _decoded(found: Row) -> _Stored:
    id, message_id, part_id, pos, time, text = found
    data = wire.decode(text, _TailData)
    tail = Tail(
        id=id,
        messageID=message_id,
        partID=part_id,
        time=time,
        messages=data.messages,
        snapshot=data.snapshot,
    )
    return _Stored(tail, pos, data)


def _sources(
    session_id: str, chosen: _Stored, later: Sequence[_Stored], boundary: Boundary
) -> Script[tuple[list[_Source], list[_Source]]]:
    """The messages and parts that the session had then, wherever they are kept now.

    Positions are never given twice: what later reverts removed from before the boundary was there.
    """
    messages: list[_Source] = []
    parts: list[_Source] = []
    for owner in (session_id, *(each.tail.id for each in later), chosen.tail.id):
        own = owner == chosen.tail.id
        limit = _LAST if own else boundary.first_gone
        for id, pos, parent in (yield from rows("copy_sources", session_id=owner, pos=limit)):
            messages.append(_Source(owner, pos, id, parent))
        limit = _LAST if own else boundary.first_gone - 1
        for pos, id in (yield from rows("copy_part_sources", session_id=owner, pos=limit)):
            if own or pos < boundary.pos or boundary.part_id is None or id < boundary.part_id:
                parts.append(_Source(owner, pos, id))
    messages.sort(key=lambda source: source.pos)
    kept = {source.pos for source in messages}
    parts = [source for source in parts if source.pos in kept]
    parts.sort(key=lambda source: (source.pos, source.id))
    return messages, parts


def _copy(
    fork: str, messages: Sequence[_Source], parts: Sequence[_Source], block: IdBlock
) -> Script[None]:
    copies = {source.id: block.id("msg", n) for n, source in enumerate(messages)}
    yield from batch(
        "copy_message",
        [
            {
                "fork": fork,
                "source": source.owner,
                "pos": source.pos,
                "id": copies[source.id],
                "parent_id": copies.get(source.parent_id or "", source.parent_id),
            }
            for source in messages
        ],
    )
    yield from batch(
        "copy_part",
        [
            {
                "fork": fork,
                "source": source.owner,
                "pos": source.pos,
                "old_id": source.id,
                "id": block.id("prt", n),
            }
            for n, source in enumerate(parts, start=len(messages))
        ],
    )
    yield from rename_tail_starts(fork, copies)
