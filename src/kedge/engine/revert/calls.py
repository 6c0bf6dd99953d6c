"""The input of an undo or redo, path by path: what the chosen calls did, and the ways to take it
out or to put it back (decision 041).

Reads only the database; what is on disk is inspected elsewhere.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from functools import partial

from kedge.domain.file_states import LEFT, Present
from kedge.domain.sessions import SessionInfo
from kedge.engine.revert.material import (
    Dated,
    Material,
    add_change,
    by_number,
    dated,
    pairs,
    whole_life,
)
from kedge.engine.revert.merge import Segment, Source
from kedge.engine.revert.prepare import Asked, Prepared
from kedge.store.port import Store
from kedge.store.queries.change_queries import opening_snapshots
from kedge.store.queries.changes import ChangeKey, StoredChange, family_changes, in_order
from kedge.store.queries.plans import pending_plans
from kedge.store.queries.undone import (
    Act,
    Home,
    PathLife,
    Selection,
    Wanted,
    family_of,
    hidden_in,
    lives,
    paths_with,
    select,
    was_moved_since,
)
from kedge.store.transaction import Script

_FEW = 16
"""Up to so many contents are looked for one by one among all that a session did."""

_NO_FILES = "these calls changed no files here"
_HIDDEN = "a revert has taken it out already; unrevert brings that back first"
_UNDONE = "it is undone already; redo brings it back"
_STANDS = "it is not undone"


@dataclass(slots=True)
class Calls:
    """What chosen calls did, and what is to be done about it."""

    material: Material
    is_redo: bool
    parts: tuple[Home, ...] = ()
    """The chosen calls of the session itself."""
    chosen: dict[bytes, list[StoredChange]] = field(default_factory=dict)
    """By path, what is to be taken out or put back."""
    by_force: dict[bytes, list[StoredChange]] = field(default_factory=dict)
    """By path, what goes along where the path is restored although there is a conflict."""
    standing: dict[bytes, list[StoredChange]] = field(default_factory=dict)
    """By path, all that stands of what the session did there."""
    words: list[str] = field(default_factory=list)
    """Why nothing of what was asked for is done."""
    notes: list[str] = field(default_factory=list)
    """Why some of it is not done."""

    def settled(self, prepared: Prepared) -> tuple[list[ChangeKey], dict[int, int]]:
        """The changes that a plan takes out or puts back, and how many each of its steps does."""
        plan = prepared.plan
        left = {entry.path for entry in plan.entries if entry.outcome in LEFT} | plan.moot
        steps = {step.path: step.number for step in plan.steps}
        keys: list[ChangeKey] = []
        counts: dict[int, int] = {}
        for path, changes in self.chosen.items():
            if path not in left:
                all_of_it = self.by_force[path] if path in plan.forced else changes
                keys += [change.key for change in all_of_it]
                if path in steps:
                    counts[steps[path]] = len(all_of_it)
        return keys, counts


async def calls_to_undo(store: Store, info: SessionInfo, wanted: Wanted, asked: Asked) -> Calls:
    """What an undo of these calls takes out."""
    return await store.scan(partial(_gathered, info, wanted, asked, is_redo=False))


async def calls_to_redo(store: Store, info: SessionInfo, wanted: Wanted, asked: Asked) -> Calls:
    """What a redo of these calls puts back."""
    return await store.scan(partial(_gathered, info, wanted, asked, is_redo=True))


def _gathered(info: SessionInfo, wanted: Wanted, asked: Asked, *, is_redo: bool) -> Script[Calls]:
    selection = yield from select(info.id, wanted)
    calls = Calls(Material(info.worktree), is_redo, parts=selection.parts)
    shared = _choose(calls, selection, asked, info)
    family = yield from family_of(info.id)
    found = yield from lives(info.worktree, sorted({*calls.chosen, *shared}), family)
    for path, life in found.items():
        if is_redo:
            _put_back(calls, path, life)
        else:
            if path in calls.chosen:
                yield from _add_reverts(calls.chosen[path], life)
            _take_out(calls, path, life, shared.get(path, []))
            if asked.strategy == "overwrite" and path in calls.chosen:
                yield from _force(calls, path, life, family)
        if life.later is not None:
            calls.material.later[path] = life.later
        calls.standing[path] = [each for each in life.own if each.undone_by is None]
    yield from _add_facts(calls, found, info, family, selection.hidden)
    return calls


def _choose(
    calls: Calls, selection: Selection, asked: Asked, info: SessionInfo
) -> dict[bytes, list[StoredChange]]:
    """Sort what the calls did by path; gives the shared changes, which are told of and stay."""
    shared: dict[bytes, list[StoredChange]] = {}
    words: dict[str, None] = {}
    material = calls.material
    for change in selection.changes:
        path = change.path_from(material.root)
        if asked.files is not None and (path is None or not asked.includes(path)):
            continue
        if change.key in selection.hidden:
            words[_HIDDEN] = None
        elif calls.is_redo and change.undone_by is None:
            if change.source not in ("folder", "shared", "uncovered"):
                words[_STANDS] = None
        elif not calls.is_redo and change.undone_by is not None:
            words[_UNDONE] = None
        elif path is None or change.source in ("folder", "uncovered"):
            add_change(material, change)
        else:
            chosen = shared if change.source == "shared" else calls.chosen
            chosen.setdefault(path, []).append(change)
    _leave_impossible(calls, shared)
    if not (calls.chosen or shared or material.impossible):
        calls.words = list(words) or [_nothing_of(info)]
    elif _HIDDEN in words:
        calls.notes = [_HIDDEN]
    return shared


def _leave_impossible(calls: Calls, shared: dict[bytes, list[StoredChange]]) -> None:
    material = calls.material
    for path in material.impossible:
        # Nothing is done there, whatever else is known of it.
        dated_there = [dated(each) for each in calls.chosen.pop(path, [])]
        if hidden := [*material.segments.pop(path, []), *dated_there]:
            material.hidden[path] = by_number(hidden)
        shared.pop(path, None)


def _nothing_of(info: SessionInfo) -> str:
    if info.fork is None:
        return _NO_FILES
    origin = info.fork.sessionID
    return f"{_NO_FILES}; what was done before the fork belongs to {origin}, and is undone there"


def _add_reverts(chosen: list[StoredChange], life: PathLife) -> Script[None]:
    """With all calls of a path goes what reverts of files wrote there, and comes back with them;
    unless the revert may still be taken back."""
    keys = {change.key for change in chosen}
    left = [each for each in life.own if each.undone_by is None and each.key not in keys]
    if left and all(each.source == "revert" for each in left):
        for session_id in {each.session_id for each in left}:
            pending = {plan.id for plan in (yield from pending_plans(session_id))}
            if any(each.plan_id in pending for each in left):
                return
        chosen += left
        chosen.sort(key=in_order)


def _take_out(calls: Calls, path: bytes, life: PathLife, shared: list[StoredChange]) -> None:
    chosen = calls.chosen.get(path, [])
    own = [dated(each) for each in [*chosen, *shared]]
    material = calls.material
    material.segments[path] = by_number(own)
    if life.acts and chosen:
        material.wider[path] = by_number([*own, *pairs(life.acts)])
    if chosen:
        material.reverse[path] = tuple(_inverse(each).segment for each in reversed(chosen))


def _put_back(calls: Calls, path: bytes, life: PathLife) -> None:
    chosen = calls.chosen[path]
    keys = {change.key for change in chosen}
    for act in life.acts:
        # What a revert of files wrote there comes back with the last of the calls.
        left = [each for each in act.changes if each.key not in keys]
        if all(each.source == "revert" for each in left) and len(left) < len(act.changes):
            chosen += left
            keys |= {each.key for each in left}
    chosen.sort(key=in_order)
    whole = [act for act in life.acts if act.is_whole]
    involved = [act for act in whole if any(each.key in keys for each in act.changes)]
    again = [_inverse(each) for each in reversed(chosen)]
    material = calls.material
    if keys <= _out_by(life.acts):
        material.wider[path] = by_number(pairs(life.acts, without=keys))
    if keys <= _out_by(involved):
        material.segments[path] = by_number(pairs(involved, without=keys))
        material.ways[path] = [again]
    else:
        material.segments[path] = again
    material.reverse[path] = tuple(dated(each).segment for each in chosen)


def _out_by(acts: Iterable[Act]) -> set[ChangeKey]:
    return {each.key for act in acts for each in act.changes}


def _force(calls: Calls, path: bytes, life: PathLife, family: Iterable[str]) -> Script[None]:
    """Where the path is restored in spite of a conflict, all that the session did there since goes
    along: it cannot be in a file that is as it was before."""
    first = min(change.timeline for change in calls.chosen[path])
    # What was undone or redone since was, or was not, in the file at that time.
    if (yield from was_moved_since(family, path, first)):
        first = life.own[0].timeline
    gone = [each for each in life.own if each.timeline >= first]
    calls.material.by_force[path] = [dated(each) for each in gone]
    hidden = yield from hidden_in(each.session_id for each in gone)
    calls.by_force[path] = [
        each
        for each in gone
        if each.source != "shared" and each.undone_by is None and each.key not in hidden
    ]


def _add_facts(
    calls: Calls,
    found: dict[bytes, PathLife],
    info: SessionInfo,
    family: Iterable[str],
    hidden: Set[ChangeKey],
) -> Script[None]:
    """What the last check has to know of what the session did elsewhere, and before."""
    material = calls.material
    blobs = {
        each.segment.after.blob
        for ways in ([*material.segments.values()], *material.ways.values())
        for dated in ways
        for each in dated
        if isinstance(each.segment.after, Present)
    }
    known = dict(found)
    if len(blobs) <= _FEW:
        others = (yield from paths_with(info.worktree, family, blobs)) - known.keys()
        known |= yield from lives(info.worktree, sorted(others), family)
    else:
        for change in (yield from family_changes(info.id, 0)):
            path = change.path_from(info.worktree)
            if path is not None and path not in found and _is_file(change):
                known.setdefault(path, PathLife([], None, [])).own.append(change)
    for path, life in known.items():
        material.lives[path] = whole_life(life)
        gone = hidden | {change.key for change in calls.chosen.get(path, ())}
        stays = [
            dated(each).segment
            for each in life.own
            if each.undone_by is None and each.key not in gone
        ]
        if stays and not calls.is_redo:
            material.earlier[path] = stays
    if not calls.is_redo:
        own = [part[1] for part in calls.parts]
        material.openings = yield from opening_snapshots(info.id, sorted({0, min(own, default=0)}))


def _is_file(change: StoredChange) -> bool:
    return change.source not in ("folder", "uncovered")


def _inverse(change: StoredChange) -> Dated:
    source = Source.OBSERVED if change.source == "observed" else Source.REVERT
    return Dated(change.timeline, Segment(change.after, change.before, source))
