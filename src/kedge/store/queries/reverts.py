"""Reverts: what is stored when one begins, is planned, completed or given up, in the order clients
expect; restoring files is not done here."""

import stat
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import msgspec

from kedge.domain import wire
from kedge.domain.errors import SessionBusy
from kedge.domain.events import SessionDeleted, SessionDiff
from kedge.domain.file_states import LEFT, Absent, Present, examined
from kedge.domain.ids import IdMaker
from kedge.domain.receipts import Receipt
from kedge.domain.sessions import Busy, Idle, RevertState, SessionInfo
from kedge.domain.wire_errors import not_run
from kedge.store.queries.changes import Home, NewChange, add_changes, drop_seen, set_seen
from kedge.store.queries.fences import Fence, pass_fence
from kedge.store.queries.leases import (
    IsAlive,
    LeaseState,
    acquire_lease,
    drop_lease,
    give_up_lease,
    status_event,
    told_status,
)
from kedge.store.queries.plans import (
    NewPlan,
    PlanState,
    PlanStep,
    StepOutcome,
    StoredPlan,
    add_plan,
    close_plan,
    get_plan,
    is_among,
    is_unfinished,
    narrow_plan,
    pending_plans,
    plan_steps,
    settle_plans,
    unfinished_plans,
)
from kedge.store.queries.prompts import drop_prompts
from kedge.store.queries.sessions import (
    LockedSession,
    about,
    lock_live_session,
    lock_session,
    save_session,
    store_session,
    touched,
)
from kedge.store.queries.timeline import NewCall, begin_call, end_call, next_number
from kedge.store.queries.undone import settle_calls
from kedge.store.transaction import Script, batch, row

_LAST = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The outcome of a plan."""

    receipt: Receipt
    outcomes: Mapping[int, StepOutcome]
    """By the number of the step."""
    seen: Sequence[tuple[bytes, str | None]]
    """Paths that the session knows without reading them again, with their blobs."""
    unseen: Sequence[bytes]
    """Paths that it has to read again before it edits them."""
    call_data: str
    """What the plan did, in the timeline's stored form."""


def begin_revert(
    session_id: str, owner: str, ids: IdMaker, *, ttl: int, is_alive: IsAlive, now: int
) -> Script[Fence]:
    """Take the lease of a session, so that nothing else runs in it meanwhile.

    Prompts that no run accepted are dropped: the revert may hide them.
    """
    info, fence = yield from _take(session_id, owner, ttl=ttl, is_alive=is_alive)
    yield from drop_prompts(info, not_run("the session was taken back"), ids, now)
    yield status_event(info, Busy())
    return fence


def begin_undo(session_id: str, owner: str, *, ttl: int, is_alive: IsAlive) -> Script[Fence]:
    """Take the lease of a session whose messages all stay, and with them the prompts that wait."""
    info, fence = yield from _take(session_id, owner, ttl=ttl, is_alive=is_alive)
    yield status_event(info, Busy())
    return fence


def _take(
    session_id: str, owner: str, *, ttl: int, is_alive: IsAlive
) -> Script[tuple[SessionInfo, Fence]]:
    info = (yield from lock_live_session(session_id)).info
    if (yield from is_unfinished(session_id)):
        raise SessionBusy(session_id)
    fence = yield from acquire_lease(info, owner, ttl=ttl, is_alive=is_alive, kind="revert")
    return info, fence


def resume_plan(id: str, owner: str, *, ttl: int, is_alive: IsAlive) -> Script[Fence | None]:
    """Take the lease for a plan that its owner left unfinished; None if it is finished by now."""
    found = yield from get_plan(id)
    if found is None:
        return None
    locked = yield from lock_session(found.session_id)
    found = yield from get_plan(id)
    if found is None or found.state != "planned":
        return None
    told = yield from told_status(found.session_id)
    fence = yield from acquire_lease(locked.info, owner, ttl=ttl, is_alive=is_alive, kind="revert")
    if locked.time_deleted is None and isinstance(told, Idle):
        yield status_event(locked.info, Busy())
    return fence


def end_revert(fence: Fence) -> Script[SessionInfo]:
    """Release the session without having changed it.

    While a plan is unfinished the session stays busy: nothing else may begin in it.
    """
    locked = yield from lock_session(fence.session_id)
    yield from pass_fence(fence)
    if (yield from is_unfinished(fence.session_id)):
        yield from give_up_lease(locked.info, Busy())
    else:
        yield from drop_lease(locked.info)
    return locked.info


def waiting_reverts() -> Script[list[LeaseState]]:
    """The sessions of unfinished plans, in the form of held leases."""
    found: list[LeaseState] = []
    for plan in (yield from unfinished_plans()):
        session = yield from row("session_get", id=plan.session_id)
        if session is not None:
            info = wire.decode(str(session[0]), SessionInfo)
            found.append(
                LeaseState(
                    session_id=info.id,
                    owner="",
                    expired=False,
                    status=Busy(),
                    since=plan.time_created,
                    directory=info.directory,
                    project_id=info.projectID,
                )
            )
    return found


def store_plan(
    plan: NewPlan, steps: Sequence[PlanStep], call: NewCall, *, fence: Fence
) -> Script[StoredPlan]:
    """Store a plan; from here on it will be completed, whatever happens."""
    yield from lock_live_session(plan.session_id, fence)
    number = yield from next_number()
    yield from add_plan(plan, steps, number=number)
    yield from begin_call(call, number)
    stored = yield from get_plan(plan.id)
    assert stored is not None
    return stored


def finish_plan(plan: StoredPlan, finish: Finish, *, fence: Fence, now: int) -> Script[SessionInfo]:
    """Store the outcome of a plan, announce it, and release the session."""
    locked = yield from lock_session(plan.session_id)
    yield from pass_fence(fence)
    if plan.kind == "unrevert":
        info = yield from _finish_unrevert(plan, finish, locked, now)
    elif plan.kind in ("undo", "redo"):
        info = yield from _finish_undo(plan, finish, locked, now)
    else:
        info = yield from _finish_revert(plan, finish, locked, now)
    yield from set_seen(info.id, finish.seen)
    yield from drop_seen(info.id, finish.unseen)
    yield from _record(plan, finish, locked)
    yield from drop_lease(info)
    return info


def _finish_revert(
    plan: StoredPlan, finish: Finish, locked: LockedSession, now: int
) -> Script[SessionInfo]:
    yield from _close(plan, finish, "pending", now)
    data, info = plan.data, locked.info
    if locked.time_deleted is None:
        yield about(info, SessionDiff(sessionID=info.id, diff=data.diffs), "")
    if plan.kind == "revert":
        assert data.messageID is not None
        state = RevertState(
            messageID=data.messageID, partID=data.boundaryPartID, snapshot=data.snapshot
        )
        info = msgspec.structs.replace(info, revert=state)
    info = touched(msgspec.structs.replace(info, summary=data.summary), now)
    yield from _save(locked, info)
    return info


def _finish_undo(
    plan: StoredPlan, finish: Finish, locked: LockedSession, now: int
) -> Script[SessionInfo]:
    yield from _close(plan, finish, "final", now)
    info = touched(locked.info, now)
    if plan.data.summary is not None and info.revert is None:
        info = msgspec.structs.replace(info, summary=plan.data.summary)
    yield from settle_calls(plan, finish.receipt, info, now)
    yield from _save(locked, info)
    return info


def _finish_unrevert(
    plan: StoredPlan, finish: Finish, locked: LockedSession, now: int
) -> Script[SessionInfo]:
    info = locked.info
    pending = yield from pending_plans(info.id)
    yield from batch(
        "change_drop_of_plan", [{"session_id": info.id, "plan_id": each.id} for each in pending]
    )
    left = {entry.path_bytes for entry in finish.receipt.files if entry.outcome in LEFT}
    for each in pending:
        yield from _take_back(each, left, locked)
    yield from _close(plan, finish, "final", now)
    before = pending[0].data.before if pending else info.summary
    info = touched(msgspec.structs.replace(info, revert=None, summary=before), now)
    yield from _save(locked, info)
    return info


def _take_back(plan: StoredPlan, left: Set[bytes], locked: LockedSession) -> Script[None]:
    """Record that a pending plan was taken back. At the paths that had to be left alone it becomes
    a files-only plan, so that another unrevert can try again."""
    done = [step for step in (yield from plan_steps(plan.id)) if step.is_done]
    kept = [step for step in done if step.path in left]
    if not kept:
        yield from settle_plans([plan], "undone")
        return
    yield from narrow_plan(plan, [step.number for step in done if step.path not in left])
    made = [folder for folder in plan.data.made if any(is_among(path, [folder]) for path in left)]
    changes = [*_made(made), *_changes(kept)]
    yield from _add(plan, changes, locked, number=plan.timeline)


def _save(locked: LockedSession, info: SessionInfo) -> Script[None]:
    """Store the changed session; one that was deleted meanwhile stays deleted, and may be
    restored."""
    if locked.time_deleted is None:
        yield from save_session(info)
    else:
        yield from store_session(info)
        yield about(info, SessionDeleted(sessionID=info.id, info=info))


def _close(plan: StoredPlan, finish: Finish, state: PlanState, now: int) -> Script[None]:
    data = msgspec.structs.replace(plan.data, receipt=finish.receipt)
    yield from close_plan(plan.id, state, data, finish.outcomes, now=now)


def _record(plan: StoredPlan, finish: Finish, locked: LockedSession) -> Script[None]:
    """Record the end of the plan's call; what a files-only revert wrote is a change like others."""
    number = yield from next_number()
    yield from end_call(
        plan.session_id,
        plan.data.partID,
        machine=plan.data.machine,
        ended=number,
        data=finish.call_data,
    )
    if plan.kind == "files":
        changes = [*_made(plan.data.made), *_changes((yield from plan_steps(plan.id)))]
        yield from _add(plan, changes, locked, number=number)


def _add(
    plan: StoredPlan, changes: Sequence[NewChange], locked: LockedSession, *, number: int
) -> Script[None]:
    """Changes that a plan wrote without hiding messages belong to the last message."""
    newest = yield from row("message_newest", session_id=plan.session_id, pos=_LAST)
    if newest is None:
        return
    home = Home(
        session_id=plan.session_id,
        message_id=newest[0],
        part_id=plan.data.partID,
        worktree=locked.worktree,
    )
    yield from add_changes(home, changes, number=number, plan_id=plan.id)


def _made(folders: Iterable[bytes]) -> Iterable[NewChange]:
    for folder in folders:
        yield NewChange(
            path=folder, before=Absent(), after=Present("", stat.S_IFDIR), source="folder"
        )


def _changes(steps: Iterable[PlanStep]) -> Iterable[NewChange]:
    for step in steps:
        # A step that may never have happened is not recorded as a change.
        if step.outcome == "done":
            yield NewChange(
                path=step.path,
                before=examined(step.expect),
                after=examined(step.want),
                source="revert",
            )
