"""Requests to a session that another process may be running."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kedge.domain.events import SessionRequest
from kedge.domain.ids import IdMaker
from kedge.store.queries.background import defer_task
from kedge.store.queries.leases import clock
from kedge.store.queries.prompts import stop_waiting
from kedge.store.queries.sessions import about, lock_session, lock_session_tree
from kedge.store.transaction import Script, row, rows, run

IsRun: TypeAlias = Callable[[str, str, bool], bool]
"""Whether the run of a session lives, given its owner and whether its lease has expired."""

Asked: TypeAlias = dict[str, int]
"""By session, the generation of the run that was asked to end."""


def _any_run(session_id: str, owner: str, expired: bool) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A request to a run."""

    id: str
    kind: str
    data: str


def ask_to_stop(session_id: str, id: str, lives: IsRun = _any_run) -> Script[int | None]:
    """Ask the run of a session to end; return its generation, or None if there is none."""
    yield from lock_session(session_id)
    held = yield from row("lease_lock", session_id=session_id)
    if held is None or held[1] is None:
        return None
    if not lives(session_id, held[1], held[2] <= (yield from clock())):
        return None
    yield from add_request(session_id, id, "abort", generation=held[0])
    return int(held[0])


def ask_tree_to_stop(session_id: str, ids: IdMaker, lives: IsRun, *, now: int) -> Script[Asked]:
    """Ask the living runs of a session and its subtasks to end, all in one transaction, so that no
    run goes on because another one has ended; let no prompt wait for a run. The end of background
    tasks is told with the next prompt.

    Returns which runs were asked, in the order of `session_tree`.
    """
    asked: Asked = {}
    for info in (yield from lock_session_tree(session_id)):
        if info.id != session_id:
            yield from defer_task(info.id)
        generation = yield from ask_to_stop(info.id, ids.request(), lives)
        if generation is None:
            yield from stop_waiting(info.id, ids, now=now)
        else:
            asked[info.id] = generation
    return asked


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
