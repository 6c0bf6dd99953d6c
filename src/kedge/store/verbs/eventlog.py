"""The event log: read it from a cursor on, and keep it from growing without bound."""

from kedge.domain.errors import InvariantBroken
from kedge.domain.events import MessageRemoved, SessionCreated
from kedge.store.port import StoredEvent
from kedge.store.script import Script, batch, row, rows

PAGE = 256


def log_head() -> Script[int]:
    """The sequence number of the newest event ever stored."""
    found = yield from row("event_head")
    if found is None:
        raise InvariantBroken("the event log has no head")
    return int(found[0])


def events_after(seq: int, limit: int = PAGE) -> Script[list[StoredEvent]]:
    """The events that follow, oldest first."""
    found = yield from rows("event_after", seq=seq, limit=limit)
    return [StoredEvent(*each) for each in found]


def session_events_after(session_id: str, seq: int, limit: int = PAGE) -> Script[list[StoredEvent]]:
    """The events about one session that follow."""
    found = yield from rows("event_after_in_session", session_id=session_id, seq=seq, limit=limit)
    return [StoredEvent(*each) for each in found]


def directory_events_after(
    directory: str, seq: int, until: int, limit: int = PAGE
) -> Script[list[StoredEvent]]:
    """The events about one directory that follow, looked for up to `until`."""
    found = yield from rows(
        "event_after_in_directory", directory=directory, seq=seq, until=until, limit=limit
    )
    return [StoredEvent(*each) for each in found]


def compact_session_events(session_id: str, until: int) -> Script[int]:
    """Drop events up to `until` that a later one made pointless; tells how many.

    Per entity the newest stays, removals included, and so does how a fork was made; news that
    leaves no state behind goes. Replaying what is left gives the same state.
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
    """Sorts out, event by event, which ones a later one made pointless."""

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
            # What was said of its parts went with the message.
            self._forget(entity, *self._parts.pop(id, ()))
            # Kept beside a message that is written under this id again: the first may be a copy.
            entity = f"removed {entity}"
        self._forget(entity)
        self._newest[entity] = seq

    def _forget(self, *entities: str) -> None:
        known = self._newest.keys() & entities
        self.stale += [self._newest.pop(each) for each in known]
