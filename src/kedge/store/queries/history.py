"""What happened to a path: every write that kedge knows of, also those that were taken back."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import msgspec

from kedge.domain import wire
from kedge.domain.file_states import Known, Present
from kedge.domain.parts import ToolCompleted, ToolError, ToolPart
from kedge.domain.sessions import SessionInfo
from kedge.domain.worktrees import path_in
from kedge.store.queries.changes import ChangeSource, state_of_columns, task_turns
from kedge.store.queries.parts import decode_part
from kedge.store.queries.plans import PlanData, PlanKind
from kedge.store.transaction import Row, Script, row, rows

_LAST = 2**62
_NONE: frozenset[tuple[str, str]] = frozenset()
_MOST_PATHS = 64
"""Paths that a file is followed through when it was moved again and again."""
_MOST_SOURCES = 16
"""Files that disappeared in one call, of which a new file may be one."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a conversation."""

    session_id: str
    first: int
    last: int
    from_part: str | None = None

    def holds(self, write: "Write") -> bool:
        """Whether a call belongs to it."""
        if write.is_plan or write.session_id != self.session_id:
            return False
        if not self.first <= write.pos <= self.last:
            return False
        is_first = write.pos == self.first
        return self.from_part is None or not is_first or write.part_id >= self.from_part


@dataclass(frozen=True, slots=True)
class Gone:
    """A file that disappeared in the call that made another."""

    path: bytes
    """From the file system's root on."""
    blob: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write at a path, by a call or by a plan."""

    number: int
    """Its place in the timeline."""
    session_id: str
    message_id: str
    pos: int
    part_id: str
    n: int
    """Its place among the changes of the call, or the steps of the plan."""
    source: ChangeSource | PlanKind
    before: Known
    after: Known
    time: int | None
    is_plan: bool = False
    is_unsure: bool = False
    """Whether it is uncertain, after a crash, that it ever happened."""
    takes_out: tuple[Stretch, ...] = ()
    """Of a plan, what it takes out."""
    chosen: frozenset[tuple[str, str]] = frozenset()
    """The sessions and parts of the calls that an undo takes out."""
    gone: tuple[Gone, ...] = ()
    """Of a new file, what it may have been moved from; the likeliest first."""

    @property
    def order(self) -> tuple[int, bool, int, str, int]:
        """Writes of a path in this order follow each other, and stay in it. A plan begins with its
        number, and a call ends with it; of a shared change, the first to tell of it is first."""
        return self.number, self.is_plan, self.time or 0, self.part_id, self.n


@dataclass(frozen=True, slots=True)
class PathWrites:
    """The history of one path."""

    path: bytes
    """From the file system's root on."""
    writes: tuple[Write, ...]
    unwatched: tuple[int, ...] = ()
    """The numbers of calls that may have written it too, as nobody could see what they did."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The snapshot of a worktree before the first change that was recorded in it."""

    snapshot: str
    number: int
    """That of the change."""

    def precedes(self, history: PathWrites) -> bool:
        """Whether nothing was written at a path before, as from a folder above or below."""
        return not history.writes or self.number <= history.writes[0].number


@dataclass(frozen=True, slots=True)
class FileHistory:
    """The history of a file, and of those that it was moved from."""

    paths: tuple[PathWrites, ...]
    """The first one is the path that was asked for."""
    opening: Opening | None
    worktrees: tuple[str, ...]
    """Those whose sessions may have written it."""


def file_history(path: bytes, root: str) -> Script[FileHistory]:
    """What happened at a path, which is from the file system's root on and in this worktree."""
    known = [each for (each,) in (yield from rows("worktree_paths"))]
    pending = [path]
    found: list[PathWrites] = []
    worktrees: set[str] = set()
    while pending and len(found) < _MOST_PATHS:
        at = pending.pop(0)
        if any(each.path == at for each in found):
            continue
        writes: list[Write] = []
        unwatched: list[int] = []
        for worktree in known:
            below = path_in(worktree, "/", at.lstrip(b"/"))
            if below is not None:
                worktrees.add(worktree)
                writes += yield from _writes_at(worktree, below)
                calls = yield from rows("history_unwatched", worktree=worktree)
                unwatched += [number for (number,) in calls]
        writes.sort(key=lambda write: write.order)
        found.append(PathWrites(at, tuple(writes), tuple(sorted(unwatched))))
        pending += [gone.path for write in writes for gone in write.gone]
    opening = yield from _opening(root)
    return FileHistory(tuple(found), opening, tuple(sorted(worktrees)))


def _opening(worktree: str) -> Script[Opening | None]:
    first = yield from row("history_first", worktree=worktree)
    if first is None:
        return None
    session_id, pos, part_id, number = first
    found = yield from _stored_part(session_id, pos, part_id)
    if found is None:
        return None
    owner, pos = found[6:]
    # If only a part of the message was taken out, the beginning of its step is still there.
    for each in (owner, session_id):
        for type, data in (yield from rows("part_steps", session_id=each, pos=pos)):
            if type == "step-start":
                snapshot = msgspec.json.decode(data, type=_StepStart).snapshot
                return None if snapshot is None else Opening(snapshot, number)
    return None


class _StepStart(msgspec.Struct, frozen=True):
    """What is needed of the beginning of a step."""

    snapshot: str | None = None


def _stored_part(session_id: str, pos: int, part_id: str) -> Script[Row | None]:
    """The part of a call with its message and its place, even if it was taken out of the
    conversation and its changes have moved to another message."""
    found = yield from row("history_tool", session_id=session_id, pos=pos, id=part_id)
    if found is None:
        found = yield from row("history_tool_in_tail", session_id=session_id, id=part_id)
    return found


def _writes_at(worktree: str, path: bytes) -> Script[list[Write]]:
    writes: list[Write] = []
    for found in (yield from rows("history_of_path", worktree=worktree, path=path)):
        write = yield from _of_call(worktree, path, found)
        if write is not None:
            writes.append(write)
    for found in (yield from rows("history_of_plans", worktree=worktree, path=path)):
        write = yield from _of_plan(found)
        if write is not None:
            writes.append(write)
    return writes


def _of_call(worktree: str, path: bytes, found: Row) -> Script[Write | None]:
    session_id, pos, part_id, n, message_id, number, source, *states, time = found
    # What a plan wrote is known from its steps.
    if source in ("folder", "call", "revert"):
        return None
    write = Write(
        number=number,
        session_id=session_id,
        message_id=message_id,
        pos=pos,
        part_id=part_id,
        n=n,
        source=source,
        before=state_of_columns(*states[:2]),
        after=state_of_columns(*states[2:]),
        time=time,
    )
    is_new = source != "uncovered" and not isinstance(write.before, Present)
    if not is_new or not isinstance(write.after, Present):
        return write
    others = yield from rows(
        "history_gone_with",
        worktree=worktree,
        timeline=number,
        session_id=session_id,
        part_id=part_id,
    )
    top = os.fsencode(worktree)
    gone = [Gone(os.path.join(top, bytes(other)), blob) for other, blob in others]
    return replace(write, gone=tuple(_likeliest(gone, path, write.after.blob)))


def _likeliest(gone: list[Gone], path: bytes, blob: str) -> list[Gone]:
    """The files that a new one may have been: all with its content, then those with its name."""
    same = [each for each in gone if each.blob == blob]
    name = os.path.basename(path)
    end = os.path.splitext(name)[1]

    def unlike(each: Gone) -> tuple[bool, bool, bytes]:
        other = os.path.basename(each.path)
        return other != name, os.path.splitext(other)[1] != end, each.path

    return sorted(same or gone, key=unlike)[:_MOST_SOURCES]


def _of_plan(found: Row) -> Script[Write | None]:
    session_id, kind, number, text, time, n, *states, outcome = found
    # What was taken back since was done once.
    if outcome not in ("done", "undone", "unsure"):
        return None
    data = wire.decode(text, PlanData)
    return Write(
        number=number,
        session_id=session_id,
        message_id=data.messageID or "",
        pos=-1 if data.pos is None else data.pos,
        part_id=data.partID,
        n=n,
        source=kind,
        before=state_of_columns(*states[:2]),
        after=state_of_columns(*states[2:]),
        time=time,
        is_plan=True,
        is_unsure=outcome == "unsure",
        takes_out=(yield from _taken_out(session_id, kind, data)),
        chosen=frozenset((id, part) for id, _, part, _ in data.chosen) if kind == "undo" else _NONE,
    )


def _taken_out(session_id: str, kind: PlanKind, data: PlanData) -> Script[tuple[Stretch, ...]]:
    """The stretches whose changes a plan takes out, with those of subtasks; none if it takes back
    other plans, or chosen calls out."""
    boundary = data.boundary
    if kind in ("unrevert", "undo", "redo"):
        return ()
    whole = Stretch(session_id, 0, _LAST)
    if boundary is not None:
        whole = Stretch(session_id, boundary.pos, _LAST, boundary.part_id)
    return (whole, *(yield from _of_subtasks(whole)))


def _of_subtasks(stretch: Stretch) -> Script[list[Stretch]]:
    found: list[Stretch] = []
    turns = yield from task_turns(
        stretch.session_id, stretch.first, stretch.last, stretch.from_part
    )
    for child, first, last in turns:
        turn = Stretch(child, first, last)
        found += [turn, *(yield from _of_subtasks(turn))]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInfo:
    """What people want to know of a call."""

    title: str | None
    """The session's; None if it is deleted."""
    message_id: str
    prompt_id: str | None = None
    """The prompt that it worked for."""
    tool: str | None = None
    time: int | None = None
    """When it ended."""


Call: TypeAlias = tuple[str, str, int, str]
"""The session, message and position, and the part of a call, as its changes have them."""


def call_infos(calls: Sequence[Call]) -> Script[list[CallInfo]]:
    """What is known of calls, wherever final reverts have put them."""
    titles = yield from session_titles(call[0] for call in calls)
    found: list[CallInfo] = []
    for call in calls:
        found.append((yield from _call_info(call, titles[call[0]])))
    return found


def session_titles(sessions: Iterable[str]) -> Script[dict[str, str | None]]:
    """The title of each session; None if it is deleted."""
    titles: dict[str, str | None] = {}
    for id in dict.fromkeys(sessions):
        found = yield from row("session_get", id=id)
        titles[id] = None if found is None else wire.decode(found[0], SessionInfo).title
    return titles


def _call_info(call: Call, title: str | None) -> Script[CallInfo]:
    session_id, message_id, pos, part_id = call
    found = yield from _stored_part(session_id, pos, part_id)
    message = None if found is None else found[3:6]
    if message is None or message[0] is None:
        other = yield from row("message_get", session_id=session_id, id=message_id)
        message = (message_id, other[2], other[1]) if other else (message_id, None, None)
    id, parent, role = message
    part = decode_part(session_id, id, found[:3]) if found else None
    tool, time = (part.tool, _end(part)) if isinstance(part, ToolPart) else (None, None)
    prompt = id if role == "user" else parent
    return CallInfo(title=title, message_id=id, prompt_id=prompt, tool=tool, time=time)


def _end(part: ToolPart) -> int | None:
    state = part.state
    return int(state.time.end) if isinstance(state, ToolCompleted | ToolError) else None
