"""The event log: read it from a cursor on, and keep it from growing without bound."""

from kedge.domain.errors import InvariantBroken
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

    Per entity the newest stays, removals included, and so does the copy a fork was made by; news
    that leaves no state behind goes. Replaying what is left gives the same state.
    """
    newest: dict[str, int] = {}
    stale: list[int] = []
    seq = 0
    while found := (
        yield from rows(
            "event_entities", session_id=session_id, seq=seq, until=until, limit=PAGE * 4
        )
    ):
        for seq, entity, type in found:
            if type == "session.created":
                continue
            if not entity:
                stale.append(seq)
            elif entity in newest:
                stale.append(newest[entity])
            newest[entity] = seq
    yield from batch("event_drop", [{"seq": each} for each in sorted(stale)])
    return len(stale)
