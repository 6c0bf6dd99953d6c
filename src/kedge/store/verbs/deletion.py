"""Deletion of sessions that may be running: the run is ended first, in the same transaction."""

from kedge.domain.failures import aborted
from kedge.domain.sessions import SessionInfo
from kedge.store.script import Script
from kedge.store.verbs.leases import take_over
from kedge.store.verbs.sessions import delete_session, lock_session_tree


def stop_and_delete(id: str, owner: str, now: int) -> Script[list[SessionInfo]]:
    """Hide a session and its subtasks; whoever still runs one of them can write no more."""
    error = aborted("The session was deleted while this was running")
    for each in (yield from lock_session_tree(id)):
        yield from take_over(each.id, owner, is_alive=_nobody, now=now, error=error)
    return (yield from delete_session(id, now))


def _nobody(owner: str, expired: bool) -> bool:
    return False
