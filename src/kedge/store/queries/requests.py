"""Requests to a session that another process may be running."""

from dataclasses import dataclass

from kedge.domain.events import SessionRequest
from kedge.store.queries.leases import clock
from kedge.store.queries.sessions import about, lock_session
from kedge.store.transaction import Script, row, rows, run


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A request to a run."""

    id: str
    kind: str
    data: str


def ask_to_stop(session_id: str, id: str) -> Script[int | None]:
    """Ask the run of a session to end; return its generation, or None if there is none."""
    yield from lock_session(session_id)
    held = yield from row("lease_lock", session_id=session_id)
    if held is None or held[1] is None:
        return None
    yield from add_request(session_id, id, "abort", generation=held[0])
    return int(held[0])


def add_request(
    session_id: str, id: str, kind: str, data: str = "{}", *, generation: int | None = None
) -> Script[None]:
    """Leave a request for the owner of the session's lease."""
    info = (yield from lock_session(session_id)).info
    now = yield from clock()
    yield from run("request_add", id=id, session_id=session_id, kind=kind, data=data, now=now)
    event = SessionRequest(sessionID=session_id, requestID=id, kind=kind, generation=generation)
    yield about(info, event, "")


def open_requests(session_id: str) -> Script[list[RunRequest]]:
    """The requests that were not acted on yet, oldest first."""
    found = yield from rows("request_open", session_id=session_id)
    return [RunRequest(id, kind, data) for id, kind, data in found]
