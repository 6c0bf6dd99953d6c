"""Deletes sessions, purges old deleted ones, and compacts old events."""

from dataclasses import dataclass

import msgspec

from kedge.domain import wire
from kedge.domain.events import SessionCreated, frame, read_frame
from kedge.domain.ids import IdMaker
from kedge.domain.sessions import SessionInfo
from kedge.domain.values import Value
from kedge.domain.wire_errors import aborted, not_run
from kedge.store.queries.copies import announce_copy
from kedge.store.queries.event_log import compact_session_events, log_head
from kedge.store.queries.leases import take_over
from kedge.store.queries.prompts import drop_prompts
from kedge.store.queries.search import forget_session
from kedge.store.queries.sessions import delete_session, lock_session, lock_session_tree
from kedge.store.transaction import Script, row, rows, run

_ROUND = "compaction"
_SETTLED_AT_ONCE = 50
_PURGED = (
    "purge_part",
    "purge_piece",
    "purge_message",
    "purge_todo",
    "purge_share",
    "purge_lease",
    "purge_request",
    "purge_ask",
    "purge_tail_part",
    "purge_tail_message",
    "purge_tail",
    "purge_change",
    "purge_plan_step",
    "purge_plan",
    "purge_call",
    "purge_process",
    "purge_seen",
    "purge_head",
    "purge_task_turn",
    "purge_task_parent",
    "purge_background_task",
    "purge_event",
)


def expired_sessions(before: int, limit: int) -> Script[list[str]]:
    """Sessions that were deleted before a time, the earliest first."""
    found = yield from rows("session_expired", before=before, limit=limit)
    return [id for (id,) in found]


def project_of_session(id: str) -> Script[str]:
    """The project of a session, deleted or not; empty if the session is purged."""
    found = yield from row("session_project", id=id)
    return "" if found is None else str(found[0])


def purge_session(id: str, before: int) -> Script[bool]:
    """Purge a session that was deleted before a time, except for the event that says it is gone.

    Returns whether it was purged: it may have been restored in the meantime.
    """
    if (yield from row("session_lock", id=id)) is None:
        return False
    locked = yield from lock_session(id)
    if locked.time_deleted is None or locked.time_deleted > before:
        return False
    yield from settle_forks(id)
    while (yield from forget_session(id, 1000)):
        pass
    for query in _PURGED:
        yield from run(query, session_id=id)
    yield from run("purge_session", id=id)
    return True


def is_purged(id: str) -> Script[bool]:
    """Whether this session existed and was purged.

    One that the database never had is not: it may belong to another database.
    """
    if (yield from project_of_session(id)):
        return False
    return (yield from row("event_of_deletion", session_id=id)) is not None


@dataclass(frozen=True, slots=True)
class Compaction:
    """What to compact: sessions with events between the last two rounds."""

    sessions: list[str]
    until: int
    head: int


def due_compaction(now: int, every: int) -> Script[Compaction | None]:
    """What to compact, unless the last round was too recent.

    A round goes up to the end of the log at the last round: newer events may still be wanted.
    """
    found = yield from row("meta_get", key=_ROUND)
    last = wire.decode(found[0], _Round) if found else _Round(time=0, head=0, done=0)
    if found and now - last.time < every:
        return None
    head = yield from log_head()
    sessions = yield from rows("event_sessions", seq=last.done, until=last.head)
    return Compaction([id for (id,) in sessions], last.head, head)


def finish_compaction(done: Compaction, now: int) -> Script[None]:
    """Record how far a round came, so that the next one goes on there."""
    following = _Round(time=now, head=done.head, done=done.until)
    yield from run("meta_set", key=_ROUND, value=wire.encode(following))


class _Round(Value, frozen=True, kw_only=True):
    time: int
    head: int
    done: int


def compact_session(id: str, until: int) -> Script[int]:
    """Drop events of a session that later ones made redundant; return how many."""
    if (yield from row("session_lock", id=id)) is None:
        return 0
    yield from settle_forks(id)
    return (yield from compact_session_events(id, until))


def settle_forks(origin: str) -> Script[None]:
    """Before an origin's events are compacted, give its forks' copies events of their own.

    Until then a fork's only event says how to make the copies from the origin's state at that time.
    """
    forks = yield from unsettled_forks(origin)
    for fork in forks:
        pos: int | None = 0
        while pos is not None:
            pos = yield from settle_fork(fork, pos)


def unsettled_forks(origin: str) -> Script[list[str]]:
    """The forks of a session, and their forks, whose copies have no events; forks of forks
    first."""
    found: list[str] = []
    walked = [origin]
    for each in walked:  # It grows during the iteration.
        for (fork,) in (yield from rows("session_all_forks", id=each)):
            created = yield from _copied_by(fork)
            if created is not None:
                found.append(fork)
                walked.append(fork)
    return found[::-1]


def settle_fork(fork: str, pos: int) -> Script[int | None]:
    """Announce the next of a fork's copies, from a position on; return where to go on, or None."""
    info = (yield from lock_session(fork)).info
    created = yield from _copied_by(fork)
    if created is None:
        return None
    page = yield from rows(
        "message_page_forth", session_id=fork, pos=pos - 1, limit=_SETTLED_AT_ONCE
    )
    for each in page:
        yield from announce_copy(info, each)
    if len(page) == _SETTLED_AT_ONCE:
        return int(page[-1][4]) + 1
    seq, id, properties = created
    assert properties.copy is not None
    settled = msgspec.structs.replace(properties.copy, messages=0, parts=0)
    changed = msgspec.structs.replace(properties, copy=settled)
    yield from run("event_rewrite", seq=seq, payload=frame(id, changed))
    return None


def _copied_by(fork: str) -> Script[tuple[int, str, SessionCreated] | None]:
    found = yield from row("event_of_copy", session_id=fork)
    if found is None:
        return None
    seq, payload = found
    id, properties = read_frame(payload)
    if isinstance(properties, SessionCreated) and properties.copy and properties.copy.messages:
        return seq, id, properties
    return None


def stop_and_delete(id: str, owner: str, ids: IdMaker, now: int) -> Script[list[SessionInfo]]:
    """Hide a session and its subtasks; their runs can write no more, and no prompt is answered if
    they are restored."""
    error = aborted("The session was deleted while this was running")
    for each in (yield from lock_session_tree(id)):
        yield from take_over(each.id, owner, is_alive=_nobody, now=now, error=error)
        info = (yield from lock_session(each.id)).info
        yield from drop_prompts(info, not_run("the session was deleted"), ids, now)
    return (yield from delete_session(id, now))


def _nobody(owner: str, expired: bool) -> bool:
    return False
