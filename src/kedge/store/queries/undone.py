"""Calls that an undo took out of the files: which are meant, what they did at each path, and the
marks on their parts."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from kedge.domain import wire
from kedge.domain.errors import CallNotFound, InvalidInput, MessageNotFound, PartNotFound
from kedge.domain.events import PartUpdated
from kedge.domain.file_states import LEFT, Known
from kedge.domain.parts import ToolPart, Undone
from kedge.domain.receipts import Receipt
from kedge.domain.sessions import SessionInfo
from kedge.domain.worktrees import are_related, path_in
from kedge.store.queries.change_queries import hidden_changes, turn_positions
from kedge.store.queries.changes import (
    ChangeKey,
    StoredChange,
    calls_between,
    changes_between,
    family_changes,
    in_order,
    state_of_columns,
    stored_change,
)
from kedge.store.queries.parts import decode_part
from kedge.store.queries.plans import PlanData, StoredPlan
from kedge.store.queries.sessions import about, get_session_text, lock_session
from kedge.store.rows import quoted, split_part
from kedge.store.transaction import Row, Script, batch, row, rows, run

_LAST = 2**62
_TELLING = 1000
"""Characters by which calls are found; patterns must not be too long."""
_FEW = 16
"""Up to so many calls are looked for one by one."""
_CALL_ID = '{"callID":'
_DECODER = json.JSONDecoder()

Home = tuple[str, int, str]
"""A part: session, position of its message, id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The calls of a session that are meant; those of all four together."""

    calls: tuple[str, ...] = ()
    """By the id that the model gave the call."""
    parts: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    """A prompt stands for its turn."""
    is_all: bool = False
    """Whether all calls of the session are meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The calls that are meant, and what they did to files."""

    parts: tuple[Home, ...] = ()
    """Of the session itself: those that did something to files, or began a subtask."""
    changes: tuple[StoredChange, ...] = ()
    """In order, with those of the subtasks that worked for the calls."""
    hidden: frozenset[ChangeKey] = frozenset()
    """All that pending reverts have taken out, chosen or not."""


def select(session_id: str, wanted: Wanted) -> Script[Selection]:
    """What the calls that are meant did to files."""
    yield from get_session_text(session_id)
    parts: dict[Home, None] = {}
    found: dict[ChangeKey, StoredChange] = {}
    at_once = (yield from _calls_of(session_id)) if len(wanted.calls) > _FEW else {}
    for id in wanted.calls:
        parts[(yield from _part_of_call(session_id, id, at_once.get(id)))] = None
    for id in wanted.parts:
        parts |= dict.fromkeys((yield from _homes(session_id, id)))
    for part in list(parts):
        found |= {each.key: each for each in (yield from changes_of_part(part))}
    for id in wanted.messages:
        for first, last in (yield from _turn(session_id, id)):
            changes = yield from family_changes(session_id, first, last)
            found |= {each.key: each for each in changes if each.source != "revert"}
            parts |= dict.fromkeys((yield from _parts_between(session_id, first, last)))
    if wanted.is_all:
        changes = yield from family_changes(session_id, 0)
        found = {each.key: each for each in changes if each.source != "revert"}
        parts |= dict.fromkeys((yield from _parts_between(session_id, 0, _LAST)))
    return Selection(
        parts=tuple(parts),
        changes=tuple(sorted(found.values(), key=in_order)),
        hidden=(yield from hidden_in([session_id, *(key[0] for key in found)])),
    )


def hidden_in(session_ids: Iterable[str]) -> Script[frozenset[ChangeKey]]:
    """What pending reverts of these sessions and of their ancestors have taken out."""
    hidden: set[ChangeKey] = set()
    for each in set(session_ids):
        hidden |= (yield from hidden_changes(each)).keys()
    return frozenset(hidden)


def _parts_between(session_id: str, first: int, last: int) -> Script[list[Home]]:
    own = yield from changes_between(session_id, first, last)
    calls = yield from calls_between(session_id, first, last)
    tasks = yield from rows("task_turns_of", parent_id=session_id, pos=first)
    homes = [(change.pos, change.part_id) for change in own]
    homes += [(call.pos, call.part_id) for call in calls]
    homes += [(pos, part) for _, _, pos, part in tasks if pos <= last and part is not None]
    return [(session_id, pos, part) for pos, part in sorted(set(homes))]


def changes_of_part(part: Home) -> Script[list[StoredChange]]:
    """What a call did, and what the subtasks did that worked for it; in order."""
    session_id, pos, part_id = part
    args = {"session_id": session_id, "pos": pos, "part_id": part_id}
    found = [stored_change(each) for each in (yield from rows("change_of_part", **args))]
    args = {"parent_id": session_id, "parent_pos": pos, "parent_part_id": part_id}
    for child, first in (yield from rows("task_turns_of_part", **args)):
        following = yield from row("task_turn_next", session_id=child, pos=first)
        last = int(following[0]) - 1 if following else _LAST
        found += yield from family_changes(child, first, last)
    return sorted(found, key=in_order)


def subtasks_of(parts: Iterable[Home]) -> Script[list[str]]:
    """The subtasks that worked for calls, and have not begun to work for another one since."""
    found: dict[str, None] = {}
    for session_id, pos, part_id in parts:
        args = {"parent_id": session_id, "parent_pos": pos, "parent_part_id": part_id}
        for child, _ in (yield from rows("task_turns_of_part", **args)):
            newest = yield from row("task_turn_at", session_id=child, pos=_LAST)
            if newest is not None and tuple(newest) == (session_id, pos, part_id):
                found[child] = None
    return list(found)


def unknown_calls(parts: Iterable[Home]) -> Script[list[tuple[ToolPart, str | None]]]:
    """Those of the calls whose effects are unknown, and why these could not be inspected."""
    found = []
    for session_id, pos, part_id in parts:
        args = {"session_id": session_id, "pos": pos, "part_id": part_id}
        call = yield from row("change_call_of_part", **args)
        if call is not None:
            stored = yield from row("part_get", session_id=session_id, message_pos=pos, id=part_id)
            part = stored and decode_part(session_id, "", stored)
            if isinstance(part, ToolPart):
                found.append((part, call[0]))
    return found


def _calls_of(session_id: str) -> Script[dict[str, list[tuple[int, str]]]]:
    """The calls of a session by their ids, where these can be told from the beginning of a part."""
    calls: dict[str, list[tuple[int, str]]] = {}
    for pos, part_id, beginning in (yield from rows("part_beginnings", session_id=session_id)):
        if beginning.startswith(_CALL_ID):
            with suppress(ValueError):
                id, _ = _DECODER.raw_decode(beginning, len(_CALL_ID))
                calls.setdefault(id, []).append((pos, part_id))
    return calls


def _part_of_call(
    session_id: str, id: str, known: Sequence[tuple[int, str]] | None = None
) -> Script[Home]:
    found = list(known or ())
    # The id is nearly always at the beginning; other programs may store it anywhere.
    for before in () if found else ("{", "%"):
        pattern = _likeness(f'"callID":{quoted(id)}'[:_TELLING])
        args = {"session_id": session_id, "pattern": f"{before}{pattern}%"}
        candidates = yield from rows("part_calls_like", **args)
        found = [(pos, part_id) for pos, part_id, data in candidates if _call_id(data) == id]
        if found:
            break
    if not found:
        raise CallNotFound(id)
    if len(found) > 1:
        shown = ", ".join(part_id for _, part_id in found[:8])
        raise InvalidInput(f"call {id} may be {shown}; name one of these parts", field="calls")
    ((pos, part_id),) = found
    return session_id, pos, part_id


def _likeness(text: str) -> str:
    """A pattern that the text fits; what patterns give a meaning may be any character."""
    return "".join("_" if each in "\\%_" else each for each in text)


class _Call(msgspec.Struct):
    callID: str = ""


def _call_id(data: str) -> str:
    return msgspec.json.decode(data, type=_Call).callID


def _homes(session_id: str, id: str) -> Script[list[Home]]:
    found = yield from rows("part_homes", session_id=session_id, id=id)
    if not found:
        raise PartNotFound(id)
    return [(session_id, pos, id) for pos, _ in found]


def _turn(session_id: str, id: str) -> Script[list[tuple[int, int]]]:
    found = yield from row("message_get", session_id=session_id, id=id)
    if found is None:
        raise MessageNotFound(id)
    return (yield from turn_positions(session_id, found))


# What happened at a path.


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What an undo or redo did at a path."""

    number: int
    before: Known
    after: Known
    is_observed: bool
    changes: tuple[StoredChange, ...] = ()
    """What it took out and is still out."""
    is_whole: bool = False
    """Whether all of what it took out is still out."""


@dataclass(slots=True)
class PathLife:
    """All that happened at one path since a session began to change it."""

    own: list[StoredChange]
    """What the session and its subtasks did, in order, undone or not."""
    later: int | None
    """When another session last changed it."""
    acts: list[Act]
    """Undos and redos that together with what is still out come to nothing, oldest first."""
    written: list[Act] = field(default_factory=list)
    """All that plans of the session wrote there, also what was taken back since."""


def family_of(session_id: str) -> Script[set[str]]:
    """A session and its subtasks."""
    family = {session_id}
    todo = [session_id]
    while todo:
        found = yield from rows("task_children", parent_id=todo.pop())
        new = {child for (child,) in found} - family
        family |= new
        todo += new
    return family


def undone_in(session_id: str) -> Script[list[StoredChange]]:
    """The changes of a session and its subtasks that undos have taken out of the files."""
    found: list[StoredChange] = []
    for each in (yield from family_of(session_id)):
        found += map(stored_change, (yield from rows("change_undone", session_id=each)))
    return sorted(found, key=in_order)


def lives(
    root: str, paths: Iterable[bytes], family: Iterable[str]
) -> Script[dict[bytes, PathLife]]:
    """What happened at paths of a worktree, as a family of sessions sees it."""
    insiders = frozenset(family)
    others = yield from rows("worktree_paths")
    related = {root, *(other for (other,) in others if are_related(other, root))}
    plans = _Plans()
    found: dict[bytes, PathLife] = {}
    for path in paths:
        changes: list[StoredChange] = []
        for other in related:
            at = path_in(other, root, path)
            if at is not None:
                here = yield from rows("change_at_path", worktree=other, path=at)
                changes += map(stored_change, here)
        own = [each for each in changes if each.session_id in insiders]
        later = [each.timeline for each in changes if each.session_id not in insiders]
        own.sort(key=in_order)
        steps: list[Row] = []
        for session_id in insiders:
            steps += yield from rows("plan_writes_at", session_id=session_id, path=path)
        steps.sort(key=lambda each: int(each[2]))
        acts = yield from _acts_at(root, path, own, steps, plans)
        written = {act.number: act for act in acts}
        written |= {int(each[2]): _act(each) for each in steps if each[-1] in ("done", "undone")}
        life = PathLife(own, max(later, default=None), acts, list(written.values()))
        found[path] = life
    return found


class _Plans:
    """The plans of undos and redos, each read once."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[PlanData, frozenset[ChangeKey]]] = {}

    def at(
        self, step: Row, root: str, own: Sequence[StoredChange]
    ) -> Script[tuple[list[StoredChange], Act] | None]:
        """What a step took out or put back, and the step; None where that is not known any more."""
        id, _, _, worktree, n, *_, outcome = step
        if id not in self._read:
            found = yield from row("plan_get", id=id)
            assert found is not None
            data = wire.decode(found[6], PlanData)
            self._read[id] = data, frozenset(data.chosen)
        data, chosen = self._read[id]
        changes = [each for each in own if each.key in chosen]
        if worktree != root or outcome != "done" or data.counts.get(n) != len(changes):
            return None
        out = tuple(each for each in changes if each.undone_by == id)
        act = replace(
            _act(step),
            is_observed=any(each.source == "observed" for each in changes),
            changes=out,
            is_whole=len(out) == len(changes),
        )
        return changes, act


def _acts_at(
    root: str, path: bytes, own: Sequence[StoredChange], steps: Iterable[Row], plans: _Plans
) -> Script[list[Act]]:
    every = yield from _all_acts(root, own, steps, plans)
    if every is not None:
        return every
    acts = []
    for id in dict.fromkeys(each.undone_by for each in own if each.undone_by is not None):
        step = yield from row("plan_move_at", plan_id=id, path=path)
        found = step and (yield from plans.at(step, root, own))
        if found and found[1].is_whole:
            acts.append(found[1])
    return sorted(acts, key=lambda act: act.number)


def _act(step: Row) -> Act:
    states = step[5:9]
    return Act(
        number=step[2],
        before=state_of_columns(*states[:2]),
        after=state_of_columns(*states[2:]),
        is_observed=False,
    )


def _all_acts(
    root: str, own: Sequence[StoredChange], steps: Iterable[Row], plans: _Plans
) -> Script[list[Act] | None]:
    """All undos and redos at a path; None if they do not account for what is out now: something may
    have moved to a tail, or belong to another session."""
    acts = []
    out: set[ChangeKey] = set()
    for step in steps:
        kind, outcome = step[1], step[-1]
        if kind not in ("undo", "redo") or outcome in ("conflict", "skipped"):
            continue
        found = yield from plans.at(step, root, own)
        if found is None:
            return None
        keys = {each.key for each in found[0]}
        out = out | keys if kind == "undo" else out - keys
        acts.append(found[1])
    if out != {each.key for each in own if each.undone_by is not None}:
        return None
    return _without_returns(acts, [each.timeline for each in own])


def _without_returns(acts: Sequence[Act], edits: Sequence[int]) -> list[Act]:
    """The acts without those that the next one took back to the byte before anything else was
    done."""
    left: list[Act] = []
    for act in acts:
        last = left[-1] if left else None
        if (
            last is not None
            and not (last.changes or act.changes)
            and (last.before, last.after) == (act.after, act.before)
            and not any(last.number < each < act.number for each in edits)
        ):
            left.pop()
        else:
            left.append(act)
    return left


def moved_paths(root: str, family: Iterable[str]) -> Script[set[bytes]]:
    """The paths that undos and redos of a family of sessions wrote."""
    paths: set[bytes] = set()
    for session_id in family:
        found = yield from rows("plan_moved_paths", session_id=session_id, worktree=root)
        paths |= {bytes(path) for (path,) in found}
    return paths


def paths_with(root: str, family: Iterable[str], blobs: Iterable[str]) -> Script[set[bytes]]:
    """The paths of a worktree at which a family of sessions found or left one of these contents."""
    paths: set[bytes] = set()
    wanted = sorted(set(blobs))
    for session_id in family:
        for blob in wanted:
            args = {"session_id": session_id, "blob": blob}
            for worktree, path in (yield from rows("change_with_blob", **args)):
                inside = path_in(root, worktree, bytes(path))
                if inside is not None:
                    paths.add(inside)
    return paths


def was_moved_since(family: Iterable[str], path: bytes, number: int) -> Script[bool]:
    """Whether a family's undo or redo wrote a path after a number."""
    for session_id in family:
        args = {"session_id": session_id, "path": path, "after": number}
        if (yield from row("plan_of_path", **args)) is not None:
            return True
    return False


# What an undo or redo leaves.


def settle_calls(plan: StoredPlan, receipt: Receipt, info: SessionInfo, now: int) -> Script[None]:
    """Record which changes are out of the files, or in them again, after an undo or redo, and mark
    the parts that they belong to."""
    left = {entry.path_bytes for entry in receipt.files if entry.outcome in LEFT}
    changes = []
    for session_id, pos, part_id, n in plan.data.chosen:
        args = {"session_id": session_id, "pos": pos, "part_id": part_id, "n": n}
        found = yield from row("change_one", **args)
        if found is not None:
            change = stored_change(found)
            if change.path_from(plan.worktree) not in left:
                changes.append(change)
    undone_by = plan.id if plan.kind == "undo" else None
    yield from batch(
        "change_set_undone", [{**_columns(each.key), "plan_id": undone_by} for each in changes]
    )
    yield from _mark(dict.fromkeys((c.session_id, c.pos, c.part_id) for c in changes), info, now)


def _mark(parts: Mapping[Home, None], info: SessionInfo, now: int) -> Script[None]:
    """Mark parts, and those that the subtasks worked for which they belong to."""
    infos = {info.id: info}
    todo = list(parts)
    done: set[Home] = set()
    while todo:
        part = todo.pop(0)
        if part in done:
            continue
        done.add(part)
        yield from _mark_part(part, infos, now)
        above = yield from row("task_turn_at", session_id=part[0], pos=part[1])
        if above is not None and above[2] is not None:
            todo.append((above[0], above[1], above[2]))


def _mark_part(home: Home, infos: dict[str, SessionInfo], now: int) -> Script[None]:
    session_id, pos, part_id = home
    args = {"session_id": session_id, "message_pos": pos, "id": part_id}
    found = yield from row("part_get", **args)
    message = found and (yield from row("message_at", session_id=session_id, pos=pos))
    if not found or not message:
        return
    part = decode_part(session_id, message[0], found)
    if not isinstance(part, ToolPart):
        return
    mark = _mark_of((yield from changes_of_part(home)), now)
    if part.undone is not None and mark is not None:
        mark = msgspec.structs.replace(mark, time=part.undone.time)
    if part.undone == mark:
        return
    marked = msgspec.structs.replace(part, undone=mark)
    yield from run("part_set_data", **args, data=split_part(marked))
    if session_id not in infos:
        # It may be in the trash, and be restored.
        infos[session_id] = (yield from lock_session(session_id)).info
    event = PartUpdated(sessionID=session_id, part=marked, time=now)
    yield about(infos[session_id], event, f"part:{message[0]} {part_id}")


def _mark_of(changes: Iterable[StoredChange], now: int) -> Undone | None:
    files = [each for each in changes if each.source != "folder"]
    out = {(each.worktree, each.path) for each in files if each.undone_by is not None}
    left = {(each.worktree, each.path) for each in files if each.undone_by is None}
    return Undone(time=now, files=len(out), left=len(left) or None) if out else None


def _columns(key: ChangeKey) -> dict[str, object]:
    return dict(zip(("session_id", "pos", "part_id", "n"), key, strict=True))
