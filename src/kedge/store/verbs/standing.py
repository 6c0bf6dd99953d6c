"""Which changes stand: all but those that pending reverts took out of the files."""

from collections.abc import Iterable, Sequence

from kedge.domain import wire
from kedge.domain.receipts import LEFT
from kedge.domain.sessions import SessionInfo
from kedge.store.script import Script, row
from kedge.store.verbs.changes import ChangeKey, StoredChange, family_changes
from kedge.store.verbs.plans import StoredPlan, pending_plans, plan_steps


def standing_changes(session_id: str) -> Script[list[StoredChange]]:
    """The changes of a session and its subtasks that are still in the files."""
    undone: set[ChangeKey] = set()
    for each in (yield from _line(session_id)):
        plans = hiding((yield from pending_plans(each)))
        undone |= (yield from undone_changes(plans)).keys()
    changes = yield from family_changes(session_id, 0)
    return [change for change in changes if change.key not in undone]


def hiding(plans: Iterable[StoredPlan]) -> list[StoredPlan]:
    """The plans that hide messages; what files-only ones wrote is a change like others."""
    return [plan for plan in plans if plan.kind == "revert"]


def undone_changes(plans: Sequence[StoredPlan]) -> Script[dict[ChangeKey, StoredChange]]:
    """The changes that a session's pending plans, oldest first, took out of the files: at each
    path, the last plan decides that did not have to leave it alone."""
    undone: dict[ChangeKey, StoredChange] = {}
    for plan in plans:
        boundary = plan.data.boundary
        assert boundary is not None
        left = {entry.path_bytes for entry in plan.data.receipt.files if entry.outcome in LEFT}
        undone = {key: change for key, change in undone.items() if not _decides(plan, left, change)}
        found = yield from family_changes(plan.session_id, boundary.pos, from_part=boundary.part_id)
        wrote = {step.path for step in (yield from plan_steps(plan.id)) if step.is_done}
        for change in found:
            # A subtask may have gone on since, or may bring back what it had taken out itself.
            is_own = change.session_id == plan.session_id
            is_gone = is_own or change.path_from(plan.worktree) in wrote
            # What is shared nobody undoes, also where the session's own change to the path went.
            if (
                change.source != "shared"
                and is_gone
                and change.timeline < plan.timeline
                and _decides(plan, left, change)
            ):
                undone[change.key] = change
    return undone


def _decides(plan: StoredPlan, left: set[bytes], change: StoredChange) -> bool:
    """Whether a plan put back what is at the path of a change."""
    path = change.path_from(plan.worktree)
    return path is not None and path not in left and plan.data.looks_at(path)


def _line(session_id: str) -> Script[list[str]]:
    """A session and those that it is a subtask of: their reverts take its changes along."""
    line: list[str] = []
    above: str | None = session_id
    while above is not None and (found := (yield from row("session_get", id=above))):
        line.append(above)
        above = wire.decode(found[0], SessionInfo).parentID
    return line
