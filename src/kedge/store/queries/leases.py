"""Leases: which process runs a session, and so whether the session is busy.

A lease is taken over only when its owner is gone, and every takeover raises the generation, so that
a paused owner's writes are refused from then on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kedge.domain import wire
from kedge.domain.errors import SessionBusy
from kedge.domain.events import SessionIdle, SessionStatusChanged
from kedge.domain.sessions import Busy, Idle, SessionInfo, SessionStatus
from kedge.domain.wire_errors import Failure, aborted
from kedge.store.queries.asks import withdraw_asks
from kedge.store.queries.fences import Fence, pass_fence
from kedge.store.queries.grants import renew_rules
from kedge.store.queries.interrupts import interrupt_open_messages
from kedge.store.queries.processes import drop_processes
from kedge.store.queries.sessions import about, get_session_text, lock_session
from kedge.store.queries.timeline import abandon_calls
from kedge.store.queries.unanswered import leave_prompts, say_cut_off
from kedge.store.transaction import Emit, Script, ScriptMaker, T, row, rows, run

LeaseKind: TypeAlias = Literal["turn", "revert"]
"""The purpose of a lease."""

IsAlive: TypeAlias = Callable[[str, bool], bool]
"""Whether an owner still lives, given its description and whether its lease has expired."""


@dataclass(frozen=True, slots=True)
class LeaseState:
    """A session that some process runs, or ran when it died."""

    session_id: str
    owner: str
    expired: bool
    status: SessionStatus
    since: int
    directory: str
    project_id: str


def acquire_lease(
    info: SessionInfo,
    owner: str,
    *,
    ttl: int,
    is_alive: IsAlive,
    kind: LeaseKind = "turn",
    first_pos: int = 0,
) -> Script[Fence]:
    """Take the lease of a locked session, if it is free or its owner is gone; `first_pos` is the
    position of the run's first message.

    The caller announces that the session is busy: `status_event` belongs after the first events of
    the run.
    """
    now = yield from clock()
    held = yield from row("lease_lock", session_id=info.id)
    generation = 1
    if held is not None:
        last, holder, expires = held[:3]
        if holder is not None and is_alive(holder, expires <= now):
            raise SessionBusy(info.id)
        generation = last + 1
        if holder is not None:
            # An owner that releases its lease withdraws its asks; one that is gone could not.
            yield from withdraw_asks(info, now)
    yield from run(
        "lease_take",
        session_id=info.id,
        generation=generation,
        owner=owner,
        now=now,
        time_expires=now + ttl,
        status=wire.encode(Busy()),
        kind=kind,
        first_pos=first_pos,
    )
    return Fence(info.id, generation)


def set_status(fence: Fence, status: SessionStatus) -> Script[None]:
    """Set the status that the owner of a lease reports."""
    info = (yield from lock_session(fence.session_id)).info
    yield from pass_fence(fence)
    now = yield from clock()
    text = wire.encode(status)
    yield from run("lease_status", session_id=info.id, status=text, now=now)
    yield status_event(info, status)


def release_lease(fence: Fence) -> Script[SessionInfo]:
    """Release the lease, and announce that the session is idle.

    A step that could not store its own end has left a message open: it is closed here.
    """
    info = (yield from lock_session(fence.session_id)).info
    yield from pass_fence(fence)
    now = yield from clock()
    yield from interrupt_open_messages(
        info, now, aborted("The turn ended before this was finished")
    )
    yield from free_lease(info)
    return info


def free_lease(info: SessionInfo) -> Script[None]:
    """Make a locked session idle, even if prompts wait, and announce that its turn is over."""
    yield from drop_lease(info)
    yield about(info, SessionIdle(sessionID=info.id), "")


def drop_lease(info: SessionInfo) -> Script[None]:
    """Make a locked session idle, and close the asks of its run and the requests to it.

    Announces no end of a turn: some programs notify the user of that.
    """
    yield from give_up_lease(info, Idle())
    yield status_event(info, Idle())


def give_up_lease(info: SessionInfo, status: SessionStatus) -> Script[None]:
    """Like `drop_lease`, but clients get no event: `status` is what they were last told."""
    now = yield from clock()
    # Calls that are still active without having ended have no known end.
    yield from abandon_calls(info.id)
    yield from drop_processes(info.id)
    yield from run("lease_release", session_id=info.id, status=wire.encode(status), now=now)
    yield from run("request_handle_all", session_id=info.id, now=now)
    yield from withdraw_asks(info, now)


def take_over(
    session_id: str,
    owner: str,
    *,
    is_alive: IsAlive,
    now: int,
    error: Failure,
    closing: ScriptMaker[None] | None = None,
    notes: Mapping[str, str] | None = None,
) -> Script[bool]:
    """End the run of an owner that is gone: close what it left open and make the session idle.

    Returns whether there was such a run. From here on the old owner's writes are refused. `closing`
    records how its calls ended; `notes` describe their results, by part. Prompts that it has not
    begun to answer are left.
    """
    info = (yield from lock_session(session_id)).info
    held = yield from row("lease_lock", session_id=session_id)
    if held is None or held[1] is None:
        return False
    try:
        yield from acquire_lease(info, owner, ttl=0, is_alive=is_alive)
    except SessionBusy:
        return False
    interrupted = yield from interrupt_open_messages(info, now, error, notes or {})
    if not interrupted and held[4] == "turn":
        yield from say_cut_off(info, error, held[5])
    yield from leave_prompts(session_id)
    if closing is not None:
        yield from closing()
    yield from free_lease(info)
    return True


def renew_leases(owner: str, *, ttl: int) -> Script[None]:
    """Extend everything this owner holds, the rules that hold while it lives, and its background
    tasks."""
    now = yield from clock()
    yield from run("lease_renew", owner=owner, time_expires=now + ttl)
    yield from run("background_task_renew", owner=owner, time_expires=now + ttl)
    yield from renew_rules(owner, now + ttl)


def lease_owners(after: str, limit: int) -> Script[list[tuple[str, str, bool]]]:
    """The sessions that are held, by session id, with the owner and whether the lease has
    expired."""
    now = yield from clock()
    found = yield from rows("lease_owned", after=after, limit=limit)
    return [(each[0], each[1], each[2] <= now) for each in found]


def held_leases(after: str, limit: int) -> Script[list[LeaseState]]:
    """Held leases, of dead or living owners, by session id."""
    now = yield from clock()
    found = yield from rows("lease_owned", after=after, limit=limit)
    return [
        LeaseState(
            session_id,
            owner,
            expires <= now,
            wire.decode(status, SessionStatus),
            since,
            directory,
            project_id,
        )
        for session_id, owner, expires, status, since, directory, project_id in found
    ]


def lease_of(session_id: str) -> Script[tuple[str | None, bool, SessionStatus]]:
    """Owner, whether the lease has expired, and status of one session."""
    yield from get_session_text(session_id)
    now = yield from clock()
    found = yield from row("lease_get", session_id=session_id)
    if found is None or found[1] is None:
        return None, False, Idle()
    status: SessionStatus = wire.decode(found[3], SessionStatus)
    return found[1], found[2] <= now, status


def told_status(session_id: str) -> Script[SessionStatus]:
    """The status of a session that was last announced to clients."""
    found = yield from row("lease_get", session_id=session_id)
    return Idle() if found is None else wire.decode(found[3], SessionStatus)


def when_idle(session_id: str, is_alive: IsAlive, do: ScriptMaker[T]) -> Script[T]:
    """Run a script on an idle session; `SessionBusy` if it is held."""
    # Locked, so that no run begins meanwhile.
    yield from lock_session(session_id)
    owner, expired, _ = yield from lease_of(session_id)
    if owner is not None and is_alive(owner, expired):
        raise SessionBusy(session_id)
    return (yield from do())


def run_of(session_id: str) -> Script[tuple[str | None, bool, int]]:
    """Owner of a session's run, whether its lease has expired, and which run it is."""
    now = yield from clock()
    found = yield from row("lease_get", session_id=session_id)
    return (found[1], found[2] <= now, found[0]) if found else (None, False, 0)


def clock() -> Script[int]:
    """The database's own clock: the only one that processes on several machines share."""
    found = yield from row("clock")
    assert found is not None
    return int(found[0])


def status_event(info: SessionInfo, status: SessionStatus) -> Emit:
    """The event that announces a session's status."""
    return about(info, SessionStatusChanged(sessionID=info.id, status=status), "status")
