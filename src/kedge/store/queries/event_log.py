"""The event log: reads it from a cursor on, and compacts it."""

from kedge.domain.errors import InvariantBroken
from kedge.domain.events import MessageRemoved, SessionCreated
from kedge.store.port import StoredEvent
from kedge.store.transaction import Script, batch, row, rows

PAGE = 256
_FIRST_BIT = 4
_PAGE_CHARACTERS = 4 * 1024 * 1024


def log_head() -> Script[int]:
    """The sequence number of the newest event ever stored."""
    found = yield from row("event_head")
    if found is None:
        raise InvariantBroken("the event log has no head")
    return int(found[0])


def session_head(session_id: str) -> Script[int]:
    """The sequence number of the newest event about a session; 0 if none is left."""
    found = yield from row("event_head_of_session", session_id=session_id)
    return int(found[0]) if found is not None and found[0] is not None else 0


def events_after(seq: int, limit: int = PAGE) -> Script[list[StoredEvent]]:
    """The events that follow, oldest first: as many as asked for, or fewer if they are large."""
    return (yield from _page("event_after", seq, limit))


def session_events_after(session_id: str, seq: int, limit: int = PAGE) -> Script[list[StoredEvent]]:
    """The events about one session that follow."""
    return (yield from _page("event_after_in_session", seq, limit, session_id=session_id))


def directory_events_after(
    directory: str, seq: int, until: int, limit: int = PAGE
) -> Script[list[StoredEvent]]:
    """The events about one directory that follow, searched up to `until`."""
    args = {"directory": directory, "until": until}
    return (yield from _page("event_after_in_directory", seq, limit, **args))


def _page(query: str, seq: int, limit: int, **args: object) -> Script[list[StoredEvent]]:
    # In small steps, because one event may be as large as a thousand others.
    found: list[StoredEvent] = []
    size = 0
    while len(found) < limit and size < _PAGE_CHARACTERS:
        fitting = (_PAGE_CHARACTERS - size) * len(found) // max(size, 1) if found else _FIRST_BIT
        wanted = min(max(fitting, 1), limit - len(found))
        bit = yield from rows(query, seq=seq, limit=wanted, **args)
        found += [StoredEvent(*each) for each in bit]
        if len(bit) < wanted:
            break
        seq = found[-1].seq
        size += sum(len(event.payload) for event in found[-wanted:])
    return found


def compact_session_events(session_id: str, until: int) -> Script[int]:
    """Drop events up to `until` that a later one made redundant; return how many.

    The newest event of each entity stays, including removals, and so does how a fork was made;
    events without lasting state are dropped. Replaying the rest gives the same state.
    """
    log = _Newest()
    seq = 0
    while found := (
        yield from rows("event_entities", session_id=session_id, seq=seq, until=until, limit=PAGE)
    ):
        for seq, entity, type in found:
            log.add(seq, entity, type)
    yield from batch("event_drop", [{"seq": each} for each in sorted(log.stale)])
    return len(log.stale)


class _Newest:
    """Finds, event by event, those that a later one made redundant."""

    def __init__(self) -> None:
        self.stale: list[int] = []
        self._newest: dict[str, int] = {}
        self._parts: dict[str, set[str]] = {}

    def add(self, seq: int, entity: str, type: str) -> None:
        if type == SessionCreated.type:
            return
        if not entity:
            self.stale.append(seq)
            return
        kind, _, id = entity.partition(":")
        if kind == "part":
            self._parts.setdefault(id.partition(" ")[0], set()).add(entity)
        elif type == MessageRemoved.type:
            # The events of its parts are redundant with the message's.
            self._forget(entity, *self._parts.pop(id, ()))
            # Kept beside a message that is written under this id again: the first may be a copy.
            entity = f"removed {entity}"
        self._forget(entity)
        self._newest[entity] = seq

    def _forget(self, *entities: str) -> None:
        known = self._newest.keys() & entities
        self.stale += [self._newest.pop(each) for each in known]
