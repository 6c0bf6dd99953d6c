"""Deletion of sessions that may be running: the run is ended first, in the same transaction."""

from kedge.domain.failures import aborted, not_run
from kedge.domain.ids import IdMaker
from kedge.domain.sessions import SessionInfo
from kedge.store.script import Script
from kedge.store.verbs.leases import take_over
from kedge.store.verbs.prompts import drop_prompts
from kedge.store.verbs.sessions import delete_session, lock_session, lock_session_tree


def stop_and_delete(id: str, owner: str, ids: IdMaker, now: int) -> Script[list[SessionInfo]]:
    """Hide a session and its subtasks; whoever still runs one of them can write no more, and no
    prompt is answered if it is restored."""
    error = aborted("The session was deleted while this was running")
    for each in (yield from lock_session_tree(id)):
        yield from take_over(each.id, owner, is_alive=_nobody, now=now, error=error)
        info = (yield from lock_session(each.id)).info
        yield from drop_prompts(info, not_run("the session was deleted"), ids, now)
    return (yield from delete_session(id, now))


def _nobody(owner: str, expired: bool) -> bool:
    return False
