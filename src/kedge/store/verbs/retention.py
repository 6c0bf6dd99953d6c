"""Retention: what is left when a deleted session's time is over, and when old events are no longer
needed."""

from dataclasses import dataclass

import msgspec

from kedge.domain import wire
from kedge.domain.events import MessageUpdated, PartUpdated, SessionCreated, frame, read_frame
from kedge.domain.messages import Message
from kedge.domain.values import Value
from kedge.store.rows import join_message
from kedge.store.script import Script, row, rows, run
from kedge.store.verbs.eventlog import compact_session_events, log_head
from kedge.store.verbs.parts import decode_part
from kedge.store.verbs.search import COPIED, forget_session
from kedge.store.verbs.sessions import about, lock_session

_ROUND = "compaction"
_PURGED = (
    "purge_part",
    "purge_message",
    "purge_todo",
    "purge_share",
    "purge_lease",
    "purge_request",
    "purge_tail",
    "purge_change",
    "purge_plan_step",
    "purge_plan",
    "purge_event",
)


def expired_sessions(before: int, limit: int) -> Script[list[str]]:
    """Sessions that were deleted before a time, longest ago first."""
    found = yield from rows("session_expired", before=before, limit=limit)
    return [id for (id,) in found]


def purge_session(id: str, before: int) -> Script[bool]:
    """Remove a session deleted before a time for good, except for the event that says it is gone.

    Tells whether it was removed: somebody may have restored it in the meantime.
    """
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


@dataclass(frozen=True, slots=True)
class Compaction:
    """What there is to compact: sessions with events between the last two rounds."""

    sessions: list[str]
    until: int


def begin_compaction(now: int, every: int) -> Script[Compaction]:
    """Start a round, unless the last one is too recent; it reaches as far as the log did at the
    last one."""
    found = yield from row("meta_get", key=_ROUND)
    last = wire.decode(found[0], _Round) if found else _Round(time=0, head=0, done=0)
    if found and now - last.time < every:
        return Compaction([], 0)
    head = yield from log_head()
    following = _Round(time=now, head=head, done=last.head)
    yield from run("meta_set", key=_ROUND, value=wire.encode(following))
    sessions = yield from rows("event_sessions", seq=last.done, until=last.head)
    return Compaction([id for (id,) in sessions], last.head)


class _Round(Value, frozen=True, kw_only=True):
    time: int
    head: int
    done: int


def compact_session(id: str, until: int) -> Script[int]:
    """Drop events of a session that later ones made pointless; tells how many."""
    if (yield from row("session_lock", id=id)) is None:
        return 0
    yield from settle_forks(id)
    return (yield from compact_session_events(id, until))


def settle_forks(origin: str) -> Script[None]:
    """Before an origin's events thin out, give its forks' copies events of their own.

    Until then a fork's one event says how to make the copies from what the origin was at that time.
    """
    for (fork,) in (yield from rows("session_all_forks", id=origin)):
        found = yield from row("event_of_copy", session_id=fork)
        if found is None:
            continue
        seq, payload = found
        id, properties = read_frame(payload)
        if isinstance(properties, SessionCreated) and properties.copy and properties.copy.messages:
            yield from settle_forks(fork)
            yield from _announce_copies(fork)
            settled = msgspec.structs.replace(properties.copy, messages=0, parts=0)
            created = msgspec.structs.replace(properties, copy=settled)
            yield from run("event_rewrite", seq=seq, payload=frame(id, created))


def _announce_copies(fork: str) -> Script[None]:
    info = (yield from lock_session(fork)).info
    ids: dict[int, str] = {}
    for each in (yield from rows("message_page_forth", session_id=fork, pos=-1, limit=2**31)):
        ids[each[4]] = each[0]
        message: Message = wire.decode(join_message(fork, each), Message)
        event = MessageUpdated(sessionID=fork, info=message)
        yield about(info, event, f"message:{message.id}")
    found = yield from rows("part_range", session_id=fork, first=0, last=2**62)
    for pos, id, type, data in found:
        part = decode_part(fork, ids[pos], (id, type, data))
        update = PartUpdated(sessionID=fork, part=part, time=info.time.updated, extra=COPIED)
        yield about(info, update, f"part:{ids[pos]} {id}")
