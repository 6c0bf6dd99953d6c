"""Queries for the changes of a stretch of a conversation, and for those that still stand."""

from collections.abc import Iterable, Sequence

import msgspec

from kedge.domain import wire
from kedge.domain.errors import InvalidInput, MessageNotFound, SnapshotNotFound
from kedge.domain.file_states import LEFT
from kedge.domain.sessions import SessionInfo
from kedge.store.queries.changes import ChangeKey, StoredChange, family_changes
from kedge.store.queries.plans import StoredPlan, pending_plans, plan_steps
from kedge.store.queries.sessions import get_session_text
from kedge.store.transaction import Row, Script, row, rows


def standing_changes(session_id: str) -> Script[list[StoredChange]]:
    """The changes of a session and its subtasks that are still in the files."""
    hidden = yield from hidden_changes(session_id)
    changes = yield from family_changes(session_id, 0)
    return [each for each in changes if each.undone_by is None and each.key not in hidden]


def hidden_changes(session_id: str) -> Script[dict[ChangeKey, StoredChange]]:
    """The changes that pending reverts of a session and of its ancestors took out of the files."""
    hidden: dict[ChangeKey, StoredChange] = {}
    for each in (yield from _line(session_id)):
        hidden |= yield from undone_changes(hiding((yield from pending_plans(each))))
    return hidden


def hiding(plans: Iterable[StoredPlan]) -> list[StoredPlan]:
    """The plans that hide messages; what files-only ones wrote is a change like others."""
    return [plan for plan in plans if plan.kind == "revert"]


def undone_changes(plans: Sequence[StoredPlan]) -> Script[dict[ChangeKey, StoredChange]]:
    """The changes that a session's pending plans, oldest first, took out of the files: at each path
    the last plan that did not have to leave it alone decides."""
    undone: dict[ChangeKey, StoredChange] = {}
    for plan in plans:
        boundary = plan.data.boundary
        assert boundary is not None
        left = {entry.path_bytes for entry in plan.data.receipt.files if entry.outcome in LEFT}
        undone = {key: change for key, change in undone.items() if not _decides(plan, left, change)}
        found = yield from family_changes(plan.session_id, boundary.pos, from_part=boundary.part_id)
        wrote = {step.path for step in (yield from plan_steps(plan.id)) if step.is_done}
        for change in found:
            # A subtask may have gone on since, or may restore what it had taken out itself.
            is_own = change.session_id == plan.session_id
            is_gone = is_own or change.path_from(plan.worktree) in wrote
            # A shared change is never undone, even if the session's own change to the path was.
            if (
                change.source != "shared"
                and is_gone
                and change.timeline < plan.timeline
                and _decides(plan, left, change)
            ):
                undone[change.key] = change
    return undone


def _decides(plan: StoredPlan, left: set[bytes], change: StoredChange) -> bool:
    """Whether a plan restored what is at the path of a change."""
    path = change.path_from(plan.worktree)
    return path is not None and path not in left and plan.data.looks_at(path)


def _line(session_id: str) -> Script[list[str]]:
    """A session and its ancestors: their reverts undo its changes too."""
    line: list[str] = []
    above: str | None = session_id
    while above is not None and (found := (yield from row("session_get", id=above))):
        line.append(above)
        above = wire.decode(found[0], SessionInfo).parentID
    return line


def changes_of(
    session_id: str, message_id: str | None = None, until: str | None = None
) -> Script[list[StoredChange]]:
    """The changes of a session and its subtasks: all that stand; those of one message, which for a
    user message is its whole turn; or those from one message, or the first, to before another."""
    yield from get_session_text(session_id)
    if until is not None:
        first = 0 if message_id is None else (yield from _message(session_id, message_id))[4]
        end = (yield from _message(session_id, until))[4]
        if end <= first:
            raise InvalidInput("until must come after the message", field="until")
        return (yield from family_changes(session_id, first, end - 1))
    if message_id is None:
        return (yield from standing_changes(session_id))
    found: list[StoredChange] = []
    message = yield from _message(session_id, message_id)
    for first, last in (yield from turn_positions(session_id, message)):
        found += yield from family_changes(session_id, first, last)
    return found


def turn_positions(session_id: str, message: Row) -> Script[list[tuple[int, int]]]:
    """The positions of a message, of a prompt with its answers: ranges from first to last."""
    return _runs((yield from _turn(session_id, message)))


def changes_of_turn(info: SessionInfo, message_id: str) -> Script[list[StoredChange]]:
    """The changes of a message or, if it is a fork's copy without any, of the original, while that
    exists."""
    found = yield from changes_of(info.id, message_id)
    message = yield from _message(info.id, message_id)
    while not found and info.fork is not None:
        origin = yield from row("session_get", id=info.fork.sessionID)
        args = {"session_id": info.fork.sessionID, "pos": message[4] - 1, "limit": 1}
        at = yield from row("message_page_forth", **args)
        if origin is None or at is None or not _is_copy(message, at):
            break
        info = wire.decode(origin[0], SessionInfo)
        found = yield from changes_of(info.id, at[0])
    return found


def _is_copy(message: Row, other: Row) -> bool:
    """A copy keeps its place and its time; what came after the fork has at most the same place."""
    created = [msgspec.json.decode(each[3])["time"]["created"] for each in (message, other)]
    return bool(message[4] == other[4] and created[0] == created[1])


def snapshot_at(session_id: str, message_id: str) -> Script[str]:
    """The snapshot of the files as of a message.

    An assistant message: as its step left them, or found them if it never ended. A user message: as
    they were when it was first answered; before that, as the last step before it left them.
    """
    yield from get_session_text(session_id)
    message = yield from _message(session_id, message_id)
    role, pos = message[1], message[4]
    if role == "assistant":
        steps = yield from rows("part_steps", session_id=session_id, pos=pos)
        found = next((data for type, data in reversed(steps) if type == "step-finish"), None)
        if found is None and (
            yield from row("tail_of_message", session_id=session_id, id=message_id)
        ):
            raise SnapshotNotFound(f"of message {message_id}", "the end of its step was taken back")
        if found is None and steps:
            found = steps[0][1]
    else:
        found = yield from _before_answer(session_id, pos)
    if found is None:
        raise SnapshotNotFound(f"of message {message_id}", "no step has begun there")
    snapshot = msgspec.json.decode(found).get("snapshot")
    if snapshot is None:
        raise SnapshotNotFound(f"of message {message_id}", "none could be taken at that time")
    return str(snapshot)


def opening_snapshots(session_id: str, positions: Iterable[int]) -> Script[list[str]]:
    """The files as the first step from each position on found them, as far as that is known."""
    found: dict[str, None] = {}
    for pos in positions:
        step = yield from _before_answer(session_id, pos - 1)
        snapshot = None if step is None else msgspec.json.decode(step).get("snapshot")
        if snapshot is not None:
            found[snapshot] = None
    return list(found)


def _before_answer(session_id: str, pos: int) -> Script[str | None]:
    answer = yield from row("message_next_answer", session_id=session_id, pos=pos)
    if answer is not None:
        steps = yield from rows("part_steps", session_id=session_id, pos=answer[0])
        return next((data for type, data in steps if type == "step-start"), None)
    last = yield from row("part_last_finish", session_id=session_id, pos=pos)
    return None if last is None else str(last[0])


def _message(session_id: str, id: str) -> Script[Row]:
    found = yield from row("message_get", session_id=session_id, id=id)
    if found is None:
        raise MessageNotFound(id)
    return found


def _turn(session_id: str, message: Row) -> Script[list[int]]:
    """The positions of a message and of its answers."""
    id, role, _, _, pos = message
    if role == "assistant":
        return [pos]
    answers = yield from rows("message_answers", session_id=session_id, pos=pos, parent_id=id)
    return [pos, *(answer for (answer,) in answers)]


def _runs(positions: Iterable[int]) -> list[tuple[int, int]]:
    """Rising positions as ranges of neighbours: another message may stand in between."""
    runs: list[tuple[int, int]] = []
    for pos in positions:
        if runs and runs[-1][1] == pos - 1:
            runs[-1] = runs[-1][0], pos
        else:
            runs.append((pos, pos))
    return runs
