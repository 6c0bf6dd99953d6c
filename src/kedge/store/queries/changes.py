"""Changes: what each call of a session did to each path, in order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kedge.domain.file_states import Absent, Known, Present
from kedge.domain.worktrees import are_related, path_in
from kedge.store.transaction import Row, Script, batch, row, rows, run

ChangeSource: TypeAlias = Literal[
    "declared", "observed", "shared", "revert", "folder", "uncovered", "call"
]

ChangeKey: TypeAlias = tuple[str, int, str, int]
"""Session, position, part and number of a change: unique."""

_LAST = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChange:
    """A change that is about to be recorded."""

    path: bytes
    before: Known
    after: Known
    """Of what could not be inspected, nothing is recorded: as if it were absent."""
    source: ChangeSource
    reason: str | None = None
    """Why it could not be inspected, if it could not."""
    timeline: int | None = None
    """When it was over; None for the number of the transaction that records it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChange:
    """One change of a path that belongs to a session."""

    session_id: str
    pos: int
    part_id: str
    n: int
    message_id: str
    worktree: str
    path: bytes
    timeline: int
    source: ChangeSource
    before: Known
    after: Known
    reason: str | None
    plan_id: str | None
    """The files-only revert that wrote it."""
    undone_by: str | None = None
    """The undo that took it out of the files, while it is out."""

    @property
    def key(self) -> ChangeKey:
        """The unique key."""
        return self.session_id, self.pos, self.part_id, self.n

    def path_from(self, root: str) -> bytes | None:
        """The path relative to the root of a worktree, which may be another one; None if it is
        outside."""
        return path_in(root, self.worktree, self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The part that changes belong to."""

    session_id: str
    message_id: str
    part_id: str
    worktree: str


def add_changes(
    home: Home,
    changes: Sequence[NewChange],
    *,
    number: int,
    time: int | None = None,
    plan_id: str | None = None,
) -> Script[None]:
    """Append changes to those that the part has already."""
    if not changes:
        return
    found = yield from row("message_get", session_id=home.session_id, id=home.message_id)
    if found is None:
        # The message was removed while its call ran; the call's changes go unrecorded with it.
        return
    pos = found[4]
    args = {"session_id": home.session_id, "pos": pos, "part_id": home.part_id}
    newest = yield from row("change_count", **args)
    first = int(newest[0]) + 1 if newest else 0
    yield from batch(
        "change_add",
        [
            {
                **args,
                "n": n,
                "message_id": home.message_id,
                "worktree": home.worktree,
                "path": change.path,
                "timeline": number if change.timeline is None else change.timeline,
                "source": change.source,
                **state_columns("before", change.before),
                **state_columns("after", change.after),
                "reason": change.reason,
                "plan_id": plan_id,
                "time": time,
            }
            for n, change in enumerate(changes, start=first)
        ],
    )


def changes_between(
    session_id: str, first: int, last: int = _LAST, *, from_part: str | None = None
) -> Script[list[StoredChange]]:
    """A session's own changes in the messages at these positions, in order.

    `from_part` leaves out the changes of parts before it in the first of the messages.
    """
    found = yield from rows("change_range", session_id=session_id, first=first, last=last)
    changes = [
        change
        for change in map(stored_change, found)
        if from_part is None or change.pos > first or change.part_id >= from_part
    ]
    return sorted(changes, key=in_order)


def family_changes(
    session_id: str, first: int, last: int = _LAST, *, from_part: str | None = None
) -> Script[list[StoredChange]]:
    """The changes of a session and of the subtasks that worked for it meanwhile, in order."""
    found = yield from changes_between(session_id, first, last, from_part=from_part)
    for child, begin, end in (yield from task_turns(session_id, first, last, from_part)):
        found += yield from family_changes(child, begin, end)
    return sorted(found, key=in_order)


def message_changes(session_id: str, message_id: str) -> Script[list[StoredChange]]:
    """The changes of one message's calls, and of the subtasks that worked for them."""
    found = yield from row("message_get", session_id=session_id, id=message_id)
    if found is None:
        return []
    return (yield from family_changes(session_id, found[4], found[4]))


@dataclass(frozen=True, slots=True)
class UnknownCall:
    """A call of unknown effect that ran."""

    session_id: str
    pos: int
    part_id: str
    n: int
    message_id: str
    timeline: int
    reason: str | None
    """Why its changes are unknown, if they are."""

    @property
    def key(self) -> ChangeKey:
        """The unique key."""
        return self.session_id, self.pos, self.part_id, self.n


def calls_between(
    session_id: str, first: int, last: int = _LAST, *, from_part: str | None = None
) -> Script[list[UnknownCall]]:
    """A session's own calls of unknown effect; the arguments are those of `changes_between`."""
    found = yield from rows("change_calls", session_id=session_id, first=first, last=last)
    calls = [UnknownCall(*each) for each in found]
    return [
        call for call in calls if from_part is None or call.pos > first or call.part_id >= from_part
    ]


def family_calls(
    session_id: str, first: int, last: int = _LAST, *, from_part: str | None = None
) -> Script[list[UnknownCall]]:
    """A session's calls of unknown effect, and those of the subtasks that worked for it."""
    calls = yield from calls_between(session_id, first, last, from_part=from_part)
    for child, begin, end in (yield from task_turns(session_id, first, last, from_part)):
        calls += yield from family_calls(child, begin, end)
    return sorted(calls, key=lambda call: (call.timeline, call.part_id))


def task_turns(
    session_id: str, first: int, last: int, from_part: str | None
) -> Script[list[tuple[str, int, int]]]:
    """The turns of subtasks that worked for parts of these messages: session, first and last
    position."""
    turns: list[tuple[str, int, int]] = []
    found = yield from rows("task_turns_of", parent_id=session_id, pos=first)
    for child, pos, parent_pos, parent_part in found:
        is_before = parent_pos == first and from_part is not None and parent_part < from_part
        if parent_pos > last or is_before:
            continue
        following = yield from row("task_turn_next", session_id=child, pos=pos)
        turns.append((child, pos, int(following[0]) - 1 if following else _LAST))
    return turns


def begin_task_turn(
    session_id: str, pos: int, parent_id: str, works_for: tuple[str, str] | None = None
) -> Script[None]:
    """Begin a turn of a subtask; it works for a part of its parent, by default the newest."""
    home = yield from _home_of_task(parent_id, works_for)
    if home is not None:
        parent_pos, part_id = home
        yield from run(
            "task_turn_add",
            session_id=session_id,
            pos=pos,
            parent_id=parent_id,
            parent_pos=parent_pos,
            parent_part_id=part_id,
        )


def _home_of_task(
    parent_id: str, works_for: tuple[str, str] | None
) -> Script[tuple[int, str] | None]:
    if works_for is not None:
        message_id, part_id = works_for
        message = yield from row("message_get", session_id=parent_id, id=message_id)
        if message is not None:
            return int(message[4]), part_id
    newest = yield from row("part_newest", session_id=parent_id)
    return None if newest is None else (newest[0], newest[1])


def task_sessions(session_id: str, first: int, from_part: str | None) -> Script[list[str]]:
    """The subtasks that have worked for these messages of a session, or for later ones."""
    turns = yield from task_turns(session_id, first, _LAST, from_part)
    return list(dict.fromkeys(child for child, _, _ in turns))


def later_changes(worktree: str, after: int, family: Iterable[str]) -> Script[dict[bytes, int]]:
    """When sessions outside this family last changed each path, since a number.

    Sessions in worktrees that contain this one, or lie in it, change its files as well.
    """
    insiders = set(family)
    later: dict[bytes, int] = {}
    for (other,) in (yield from rows("worktree_paths")):
        if not are_related(other, worktree):
            continue
        for path, session, number in (yield from rows("change_later", worktree=other, after=after)):
            inside = path_in(worktree, other, bytes(path))
            if session not in insiders and inside is not None:
                later[inside] = max(number, later.get(inside, 0))
    return later


def set_seen(session_id: str, states: Iterable[tuple[bytes, str | None]]) -> Script[None]:
    """Record what a session last read or wrote at paths; no blob means that nothing is there."""
    args = [{"session_id": session_id, "path": path, "blob": blob} for path, blob in states]
    yield from batch("seen_put", args)


def get_seen(session_id: str, paths: Iterable[bytes]) -> Script[dict[bytes, str | None]]:
    """What a session last read or wrote at these paths, for those it knows."""
    seen: dict[bytes, str | None] = {}
    for path in paths:
        found = yield from row("seen_get", session_id=session_id, path=path)
        if found is not None:
            seen[path] = found[0]
    return seen


def drop_seen(session_id: str, paths: Iterable[bytes]) -> Script[None]:
    """The session has to read these paths again before it edits them."""
    args = [{"session_id": session_id, "path": path} for path in paths]
    yield from batch("seen_drop", args)


def forget_seen(session_id: str) -> Script[None]:
    """The session has to read everything again before it edits it."""
    yield from run("purge_seen", session_id=session_id)


def in_order(change: StoredChange) -> tuple[int, int, str, int]:
    """Sorts changes: the order in which they were made."""
    return change.timeline, change.pos, change.part_id, change.n


def state_columns(side: str, state: Known) -> dict[str, object]:
    """A state as two columns, prefixed with its side of the change."""
    blob, mode = (state.blob, state.mode) if isinstance(state, Present) else (None, None)
    return {f"{side}_blob": blob, f"{side}_mode": mode}


def state_of_columns(blob: str | None, mode: int | None) -> Known:
    """The state in two columns."""
    return Absent() if blob is None or mode is None else Present(blob, mode)


def stored_change(found: Row) -> StoredChange:
    """A change from its row."""
    session_id, pos, part_id, n, message_id, worktree, path, timeline, source, *rest = found
    before_blob, before_mode, after_blob, after_mode, reason, plan_id, undone_by = rest
    return StoredChange(
        session_id=session_id,
        pos=pos,
        part_id=part_id,
        n=n,
        message_id=message_id,
        worktree=worktree,
        path=bytes(path),
        timeline=timeline,
        source=source,
        before=state_of_columns(before_blob, before_mode),
        after=state_of_columns(after_blob, after_mode),
        reason=reason,
        plan_id=plan_id,
        undone_by=undone_by,
    )
