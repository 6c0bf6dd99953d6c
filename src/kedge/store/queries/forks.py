"""Forks: a new session that starts as a copy of another one's messages, made inside the
database."""

from kedge.domain import wire_errors
from kedge.domain.errors import MessageNotFound
from kedge.domain.events import Copy, SessionCreated
from kedge.domain.ids import IdBlock, IdMaker
from kedge.domain.sessions import SessionInfo
from kedge.store.queries.copies import finish_copy, rename_tail_starts
from kedge.store.queries.interrupts import interrupt_open_messages
from kedge.store.queries.pruned_outputs import created_at, unprune
from kedge.store.queries.search import COPIED
from kedge.store.queries.sessions import (
    LockedSession,
    about,
    insert_session,
    lock_live_session,
)
from kedge.store.queries.todos import add_version, todos_before
from kedge.store.queries.totals import message_totals, with_totals
from kedge.store.transaction import Script, batch, row, rows, run

_LAST = 2**62


def fork_session(fork: SessionInfo, ids: IdMaker, now: int) -> Script[SessionInfo]:
    """Fill the new session `fork` with everything before its origin's message, in one event.

    The copies are numbered from one block of ids: messages in order, then parts in order. The event
    carries the block, so that a reader of the log can make the same copies.
    """
    assert fork.fork is not None
    origin = yield from lock_live_session(fork.fork.sessionID)
    pos = yield from _boundary(origin, fork.fork.messageID)
    sizes = yield from row("fork_size", origin=origin.info.id, pos=pos)
    messages, parts = sizes or (0, 0)
    block = ids.block(messages + parts)
    fork = yield from insert_session(fork, origin.worktree)
    args = {"fork": fork.id, "origin": origin.info.id, "pos": pos, "suffix": block.suffix}
    yield from run("fork_messages", base=block.base, **args)
    yield from run("fork_parents", fork=fork.id, origin=origin.info.id)
    yield from run("fork_parts", base=block.base + messages, **args)
    yield from _rename_tail_starts(origin.info.id, fork.id, pos, block)
    todos = yield from todos_before(origin.info.id, pos)
    if todos:
        yield from add_version(fork.id, todos, now=now, message_id=None, pos=pos - 1)
    info = with_totals(fork, (yield from message_totals(fork.id, 0, _LAST)))
    yield from finish_copy(info, pos, origin.last_created)
    copy = Copy(base=block.base, suffix=block.suffix, messages=messages, parts=parts, todos=todos)
    yield about(info, SessionCreated(sessionID=info.id, info=info, copy=copy))
    if fork.fork is not None and fork.fork.messageID is not None:
        began = yield from created_at(origin.info.id, pos)
        yield from unprune(info, since=began, before=pos, now=now, extra=COPIED)
    yield from _copy_pieces(origin.info.id, fork.id)
    error = wire_errors.aborted("The session was forked while this was running")
    yield from interrupt_open_messages(info, now, error)
    return info


def _boundary(origin: LockedSession, message_id: str | None) -> Script[int]:
    if message_id is None:
        return origin.next_pos
    found = yield from row("message_get", session_id=origin.info.id, id=message_id)
    if found is None:
        raise MessageNotFound(message_id)
    return int(found[4])


def _copy_pieces(origin: str, fork: str) -> Script[None]:
    """Copy the text of the origin's running parts since they were last stored."""
    growing = {id for (id,) in (yield from rows("piece_parts", session_id=origin))}
    if not growing:
        return
    for _, _, _, _, pos in (yield from rows("message_open_list", session_id=fork)):
        olds = yield from rows("part_range", session_id=origin, first=pos, last=pos)
        news = yield from rows("part_range", session_id=fork, first=pos, last=pos)
        copies = zip((old[1] for old in olds), (new[1] for new in news), strict=True)
        yield from batch(
            "piece_copy",
            [
                {"origin": origin, "old_id": old, "fork": fork, "id": new}
                for old, new in copies
                if old in growing
            ],
        )


def _rename_tail_starts(origin: str, fork: str, pos: int, block: IdBlock) -> Script[None]:
    if (yield from rows("part_compactions", session_id=fork)):
        ids = yield from rows("message_ids_before", session_id=origin, pos=pos)
        copies = {id: block.id("msg", n) for n, (id,) in enumerate(ids)}
        yield from rename_tail_starts(fork, copies)
