"""Makes a pending revert final when the next prompt comes: the hidden messages leave the
session."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from kedge.domain import wire
from kedge.domain.errors import SessionBusy
from kedge.domain.events import MessageRemoved, PartRemoved, TodoUpdated
from kedge.domain.messages import Message, UserMessage
from kedge.domain.parts import Part, ToolPart, ToolPending
from kedge.domain.sessions import SessionInfo, Todo
from kedge.store.queries.background import drop_task
from kedge.store.queries.boundaries import Boundary
from kedge.store.queries.change_queries import changes_of, hiding, undone_changes
from kedge.store.queries.changes import (
    ChangeKey,
    calls_between,
    changes_between,
    forget_seen,
    task_sessions,
)
from kedge.store.queries.messages import change_message
from kedge.store.queries.parts import decode_part
from kedge.store.queries.plans import StoredPlan, open_plans, settle_plans
from kedge.store.queries.pruned_outputs import created_at, unprune
from kedge.store.queries.sessions import LockedSession, about, save_session
from kedge.store.queries.tails import NewTail, cut_tail
from kedge.store.queries.todos import add_version, get_todos, todos_before
from kedge.store.queries.totals import (
    Totals,
    add_subtask_totals,
    message_totals,
    sum_finishes,
    with_totals,
)
from kedge.store.rows import join_message
from kedge.store.transaction import Row, Script, batch, row, rows

_LAST = 2**62


@dataclass(frozen=True, slots=True)
class _Place:
    """A message, or the place of one that is gone."""

    message_id: str
    pos: int


def make_final(locked: LockedSession, *, now: int) -> Script[None]:
    """Remove from a locked session what its pending revert hides, if there is one."""
    info = locked.info
    plans = yield from open_plans(info.id)
    if any(plan.state == "planned" for plan in plans):
        raise SessionBusy(info.id)
    yield from settle_plans(plans, "final")
    if info.revert is None:
        return
    if hidden := hiding(plans):
        info = yield from _take_out(info, hidden, now)
    yield from save_session(msgspec.structs.replace(info, revert=None))


def _take_out(info: SessionInfo, plans: Sequence[StoredPlan], now: int) -> Script[SessionInfo]:
    boundary = plans[-1].data.boundary
    assert boundary is not None
    messages = yield from rows("message_from", session_id=info.id, pos=boundary.first_gone)
    began = yield from created_at(info.id, boundary.pos)
    parts = yield from _parts_gone(info.id, boundary)
    totals = yield from message_totals(info.id, boundary.first_gone, _LAST)
    totals += _part_totals(parts)
    todos = yield from get_todos(info.id)
    earlier = yield from _todos_at(info.id, boundary, parts)
    tail = NewTail(
        id=f"tail{plans[-1].id.removeprefix('pln')}",
        session_id=info.id,
        boundary=boundary,
        messages=len(messages),
        todos=todos,
        snapshot=info.revert.snapshot if info.revert else None,
        time_created=now,
    )
    prompt = yield from _prompt_that_stays(info.id, boundary)
    changed = yield from _changed_in(prompt)
    yield from _hand_over(info.id, plans, boundary, tail.id)
    yield from cut_tail(tail)
    if prompt is not None:
        yield from _sum_up(info, prompt, changed)
    for child in (yield from task_sessions(info.id, boundary.pos, boundary.part_id)):
        yield from drop_task(child)
    yield from unprune(info, since=began, before=boundary.first_gone, now=now)
    # The model no longer knows what it read in messages that are gone.
    yield from forget_seen(info.id)
    for id, _ in messages:
        yield about(info, MessageRemoved(sessionID=info.id, messageID=id), f"message:{id}")
    home = boundary.message_id
    for _, id, _, _ in parts:
        removed = PartRemoved(sessionID=info.id, messageID=home, partID=id)
        yield about(info, removed, f"part:{home} {id}")
    if earlier != todos:
        yield from add_version(info.id, earlier, now=now, message_id=None, pos=boundary.pos - 1)
        yield about(info, TodoUpdated(sessionID=info.id, todos=earlier), "todo")
    yield from add_subtask_totals(info, totals.negative())
    return with_totals(info, totals.negative())


def _prompt_that_stays(session_id: str, boundary: Boundary) -> Script[UserMessage | None]:
    """The prompt whose turn is cut, if it has a summary of the turn's changes."""
    if boundary.part_id is None:
        return None
    cut = yield from row("message_get", session_id=session_id, id=boundary.message_id)
    asked = cut and (yield from row("message_get", session_id=session_id, id=cut[2] or cut[0]))
    if not asked:
        return None
    prompt = wire.decode(join_message(session_id, asked), Message)
    return prompt if isinstance(prompt, UserMessage) and prompt.summary else None


def _changed_in(prompt: UserMessage | None) -> Script[Counter[str]]:
    """How many changes each file got in a prompt's turn, without those that were undone."""
    if prompt is None:
        return Counter()
    changes = yield from changes_of(prompt.sessionID, prompt.id)
    return Counter(change.path.decode(errors="replace") for change in changes)


def _sum_up(info: SessionInfo, prompt: UserMessage, changed: Counter[str]) -> Script[None]:
    """Let the prompt of a cut turn name only the files whose changes in the turn all stay: the
    result for the others is not known here."""
    assert prompt.summary is not None
    left = yield from _changed_in(prompt)
    whole = {file for file, times in left.items() if times == changed[file]}
    diffs = [each for each in prompt.summary.diffs if each.file in whole]
    if diffs != prompt.summary.diffs:
        summary = msgspec.structs.replace(prompt.summary, diffs=diffs) if diffs else None
        yield from change_message(info, msgspec.structs.replace(prompt, summary=summary))


def _parts_gone(session_id: str, boundary: Boundary) -> Script[list[Row]]:
    """The parts to remove from the message that stays."""
    if boundary.part_id is None:
        return []
    found = yield from rows(
        "part_range", session_id=session_id, first=boundary.pos, last=boundary.pos
    )
    return [each for each in found if each[1] >= boundary.part_id]


def _part_totals(parts: Iterable[Row]) -> Totals:
    return sum_finishes(data for _, _, type, data in parts if type == "step-finish")


def _todos_at(session_id: str, boundary: Boundary, parts: Sequence[Row]) -> Script[list[Todo]]:
    """The todo list as it was at the boundary."""
    if boundary.part_id is None:
        return (yield from todos_before(session_id, boundary.pos))
    home = boundary.message_id
    decoded = [decode_part(session_id, home, (id, type, data)) for _, id, type, data in parts]
    began = next((time for part in decoded if (time := _began(part)) is not None), _LAST)
    found = yield from row(
        "todo_before_time", session_id=session_id, pos=boundary.pos, time=int(began)
    )
    return wire.decode(found[1], list[Todo]) if found else []


def _began(part: Part) -> int | float | None:
    """When a part began; only those with a duration say so."""
    if isinstance(part, ToolPart):
        return None if isinstance(part.state, ToolPending) else part.state.time.start
    time = getattr(part, "time", None)
    return getattr(time, "start", None)


def _hand_over(
    session_id: str, plans: Sequence[StoredPlan], boundary: Boundary, tail_id: str
) -> Script[None]:
    """Undone changes move to the tail, wherever they were made; the others stay with the session,
    and so do the calls that made them."""
    yield from _to_tail((yield from undone_changes(plans)), tail_id)
    # Those of subtasks stay where they are, with their messages.
    behind = yield from changes_between(session_id, boundary.pos, from_part=boundary.part_id)
    yield from _to_tail([each.key for each in behind if each.undone_by is not None], tail_id)
    left = [each for each in behind if each.undone_by is None]
    calls = yield from calls_between(session_id, boundary.pos, from_part=boundary.part_id)
    parts = {(change.pos, change.part_id) for change in left}
    staying = [call for call in calls if (call.pos, call.part_id) in parts]
    yield from _to_tail([call.key for call in calls if call not in staying], tail_id)
    last = yield from row("message_newest", session_id=session_id, pos=boundary.first_gone)
    # No position is given twice, so changes without a message still come before the next one.
    home = _Place(*last) if last else _Place(boundary.message_id, boundary.pos)
    kept = [*(call.key for call in staying), *(change.key for change in left)]
    yield from _rehome([key for key in kept if key[1] != home.pos], home)


def _to_tail(keys: Iterable[ChangeKey], tail_id: str) -> Script[None]:
    yield from batch("change_set_tail", [{**_columns(key), "tail_id": tail_id} for key in keys])


def _rehome(keys: Iterable[ChangeKey], home: _Place) -> Script[None]:
    """Move changes to a place that stays, behind those that the same part has there."""
    following: dict[str, int] = {}
    moves = []
    for key in keys:
        session_id, _, part_id, _ = key
        if part_id not in following:
            args = {"session_id": session_id, "pos": home.pos, "part_id": part_id}
            newest = yield from row("change_count", **args)
            following[part_id] = int(newest[0]) + 1 if newest else 0
        moves.append(
            {
                **_columns(key),
                "to_pos": home.pos,
                "to_message": home.message_id,
                "to_n": following[part_id],
            }
        )
        following[part_id] += 1
    yield from batch("change_move", moves)


def _columns(key: ChangeKey) -> dict[str, object]:
    return dict(zip(("session_id", "pos", "part_id", "n"), key, strict=True))
