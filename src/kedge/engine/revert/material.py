"""The input of a revert, path by path: a session's changes and what its pending reverts wrote.

Reads only the database; what is on disk is inspected elsewhere.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kedge.domain.file_states import Absent, Outcome, Present, examined
from kedge.engine.revert.merge import PathHistory, Segment, Source
from kedge.engine.revert.path_plan import EntrySource
from kedge.engine.revert.plan import Entry
from kedge.snapshot.files.reader import Disk
from kedge.store.port import Store
from kedge.store.queries.boundaries import Boundary
from kedge.store.queries.change_queries import opening_snapshots
from kedge.store.queries.changes import (
    ChangeKey,
    StoredChange,
    family_changes,
    later_changes,
)
from kedge.store.queries.plans import PlanStep, StoredPlan, pending_plans, plan_steps
from kedge.store.queries.undone import Act, PathLife, family_of, lives, moved_paths, undone_in
from kedge.store.transaction import Script

_NOT_INSPECTED = "what it did there could not be inspected"


@dataclass(frozen=True, slots=True)
class Written:
    """A plan that was carried out, and what it wrote."""

    plan: StoredPlan
    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, slots=True)
class Dated:
    """A segment with its place in the timeline."""

    number: int
    segment: Segment
    unsure: bool = False
    """Whether it is uncertain, after a crash, that it ever happened."""

    @property
    def is_own(self) -> bool:
        """Whether it may be undone."""
        return self.segment.source is not Source.SHARED


@dataclass(slots=True)
class Material:
    """Everything to undo, and everything that cannot be undone."""

    root: str
    changes: list[StoredChange] = field(default_factory=list)
    """The session's own changes and those of its subtasks, in order."""
    pending: list[Written] = field(default_factory=list)
    """What pending reverts wrote, oldest first."""
    later: dict[bytes, int] = field(default_factory=dict)
    """By path, when others last changed it."""
    segments: dict[bytes, list[Dated]] = field(default_factory=dict)
    """By path from the root, oldest first."""
    impossible: dict[bytes, tuple[str, EntrySource]] = field(default_factory=dict)
    """Paths that must not be touched, with the reason."""
    hidden: dict[bytes, list[Dated]] = field(default_factory=dict)
    """The segments of the paths that must not be touched."""
    folders: list[bytes] = field(default_factory=list)
    """Folders that declared calls and pending reverts made."""
    earlier: dict[bytes, list[Segment]] = field(default_factory=dict)
    """What the session did to each path before the boundary."""
    openings: list[str] = field(default_factory=list)
    """The snapshots at the beginning of the session and at the boundary."""
    wider: dict[bytes, list[Dated]] = field(default_factory=dict)
    """The same segments with earlier undos and what these took out: they lead to the same, and
    nothing of them counts as a change by others. Tried first."""
    ways: dict[bytes, list[list[Dated]]] = field(default_factory=dict)
    """Other segments that lead to the same, tried last; see `PathHistory.otherwise`."""
    reverse: dict[bytes, tuple[Segment, ...]] = field(default_factory=dict)
    by_force: dict[bytes, list[Dated]] = field(default_factory=dict)
    lives: dict[bytes, list[Segment]] = field(default_factory=dict)
    """All that the session did at a path, where it is not what it did earlier and later."""

    def histories(self, disk: dict[bytes, Disk]) -> list[PathHistory]:
        """The history of each inspected path."""
        histories = []
        for path, found in disk.items():
            ways = [_happened(self.segments[path], found), *self.ways.get(path, ())]
            if path in self.wider:
                ways.insert(0, self.wider[path])
            asked = tuple(each.segment for each in self.segments[path] if each.is_own)
            history, *others = (
                replace(self._history(path, way, found), asked=asked) for way in ways
            )
            force = self.by_force.get(path)
            histories.append(
                replace(
                    history,
                    otherwise=tuple(others),
                    by_force=self._history(path, force, found) if force else None,
                )
            )
        return histories

    def _history(self, path: bytes, dated: Sequence[Dated], disk: Disk) -> PathHistory:
        return PathHistory(
            path=path,
            segments=tuple(each.segment for each in dated),
            disk=disk,
            others_later=self.later.get(path, -1) > min(each.number for each in dated),
            unsure=any(each.unsure for each in dated),
            reverse=self.reverse.get(path),
        )

    def plain(self) -> dict[bytes, list[Segment]]:
        """The segments of each path, including those that must not be touched."""
        both = self.segments | self.hidden
        return {path: [each.segment for each in dated] for path, dated in both.items()}

    def left(self, paths: Iterable[bytes], reason: str) -> list[Entry]:
        """Receipt entries for paths that are left as they are."""
        return [
            Entry(
                path=path,
                outcome=Outcome.SKIPPED,
                reason=reason,
                source=_source(each.segment.source for each in self.segments[path]),
            )
            for path in paths
        ]

    def untouchable(self) -> list[Entry]:
        """Receipt entries for the paths that must not be touched."""
        return [
            Entry(path=path, outcome=Outcome.SKIPPED, reason=reason, source=source)
            for path, (reason, source) in self.impossible.items()
        ]


async def material_of_revert(
    store: Store, session_id: str, root: str, boundary: Boundary
) -> Material:
    """The material of a revert to a boundary: the changes behind it, and what pending reverts
    wrote."""
    return await store.scan(partial(_of_revert, session_id, root, boundary))


async def material_of_unrevert(store: Store, session_id: str, root: str) -> Material:
    """The material of an unrevert: what pending reverts wrote."""
    return await store.scan(partial(_of_unrevert, session_id, root))


def written(session_id: str) -> Script[list[Written]]:
    """The pending plans of a session, with the steps that were carried out."""
    found = []
    for plan in (yield from pending_plans(session_id)):
        steps = yield from plan_steps(plan.id)
        found.append(Written(plan, tuple(step for step in steps if step.is_done)))
    return found


def _of_revert(session_id: str, root: str, boundary: Boundary) -> Script[Material]:
    behind = yield from family_changes(session_id, boundary.pos, from_part=boundary.part_id)
    changes = [change for change in behind if change.undone_by is None]
    pending = yield from written(session_id)
    # What a files-only revert wrote is among the changes.
    hiding = [each for each in pending if each.plan.kind != "files"]
    material = _gathered(root, changes, hiding)
    material.pending = pending
    undone = {change.key for change in changes}
    before = yield from family_changes(session_id, 0, boundary.pos)
    earlier = [change for change in before if change.key not in undone]
    stays = [change for change in earlier if change.undone_by is None]
    material.earlier = _gathered(root, stays, []).plain()
    material.openings = yield from opening_snapshots(session_id, (0, boundary.pos))
    yield from _find_later(material, session_id)
    out = [change for change in (*before, *behind) if change.undone_by is not None]
    yield from _find_ways(material, session_id, out)
    return material


def _of_unrevert(session_id: str, root: str) -> Script[Material]:
    pending = yield from written(session_id)
    material = _gathered(root, [], pending)
    # The state that counts is the worktree before the first revert.
    taken = [each.plan.data.snapshot for each in pending[:1]]
    material.openings = [snapshot for snapshot in taken if snapshot is not None]
    yield from _find_later(material, session_id)
    yield from _find_ways(material, session_id, (yield from undone_in(session_id)))
    return material


def _find_ways(material: Material, session_id: str, out: Iterable[StoredChange]) -> Script[None]:
    """Where calls were undone or redone, all of that can be taken out as well: it comes to
    nothing."""
    family = yield from family_of(session_id)
    paths = yield from moved_paths(material.root, family)
    paths |= {path for change in out if (path := change.path_from(material.root)) is not None}
    wanted = sorted(paths & material.segments.keys())
    if wanted:
        for path, life in (yield from lives(material.root, wanted, family)).items():
            alone = material.segments[path]
            if life.acts and any(each.is_own for each in alone):
                material.wider[path] = by_number([*alone, *pairs(life.acts)])
            material.lives[path] = whole_life(life)


def _find_later(material: Material, session_id: str) -> Script[None]:
    firsts = [dated[0].number for dated in material.segments.values()]
    if firsts:
        family = {session_id, *(change.session_id for change in material.changes)}
        material.later = yield from later_changes(material.root, min(firsts), family)


def _gathered(root: str, changes: Sequence[StoredChange], pending: Sequence[Written]) -> Material:
    material = Material(root, list(changes), list(pending))
    for change in changes:
        add_change(material, change)
    for each in pending:
        material.folders += each.plan.data.made
        files = each.plan.data.receipt.files
        seen = {entry.path_bytes for entry in files if entry.source == "observed"}
        for step in each.steps:
            source = Source.OBSERVED if step.path in seen else Source.REVERT
            segment = Segment(examined(step.expect), examined(step.want), source)
            history = material.segments.setdefault(step.path, [])
            history.append(Dated(each.plan.timeline, segment, step.outcome == "unsure"))
    for path in material.impossible:
        if dated := material.segments.pop(path, None):
            material.hidden[path] = dated
    for history in (*material.segments.values(), *material.hidden.values()):
        history.sort(key=lambda each: each.number)
    return material


def _happened(history: Sequence[Dated], disk: Disk) -> Sequence[Dated]:
    """A history without the unsure segments that never happened: the segment after them found the
    path as it was before them."""
    kept: list[Dated] = []
    following: Disk = disk
    for each in reversed(history):
        before = each.segment.before
        if not each.unsure or following != before:
            kept.append(each)
        following = before
    return kept[::-1] or history


def add_change(material: Material, change: StoredChange) -> None:
    """Add a change of the session, wherever it belongs."""
    path = change.path_from(material.root)
    source: EntrySource = "declared" if change.source == "declared" else "observed"
    if path is None:
        outside = os.path.join(os.fsencode(change.worktree), change.path)
        material.impossible[outside] = "it is not in the worktree of the session", source
    elif change.source == "folder":
        material.folders.append(path)
    elif change.source == "uncovered":
        reason = f"{_NOT_INSPECTED}: {change.reason}" if change.reason else _NOT_INSPECTED
        material.impossible[path] = reason, source
        if isinstance(change.before, Present):
            # It is gone from there in any case: whatever holds it elsewhere may be the only copy.
            segment = Segment(change.before, Absent(), Source.OBSERVED)
            material.segments.setdefault(path, []).append(Dated(change.timeline, segment))
    else:
        before, after = change.before, change.after
        segment = Segment(before, after, Source(change.source))
        material.segments.setdefault(path, []).append(Dated(change.timeline, segment))


def _source(sources: Iterable[Source]) -> EntrySource:
    seen = (Source.OBSERVED, Source.SHARED)
    return "observed" if any(each in seen for each in sources) else "declared"


def pairs(acts: Iterable[Act], without: Iterable[ChangeKey] = ()) -> list[Dated]:
    """Undos, redos and what is out now: taking out all of it changes nothing in the end."""
    back = frozenset(without)
    found = []
    for act in acts:
        found.append(written_by(act))
        found += [dated(each) for each in act.changes if each.key not in back]
    return found


def whole_life(life: PathLife) -> list[Segment]:
    """All that a session did at a path and all that its plans wrote there."""
    # What a revert of files wrote is both.
    calls = (dated(each) for each in life.own if each.source != "revert")
    return [each.segment for each in by_number([*calls, *map(written_by, life.written)])]


def written_by(act: Act) -> Dated:
    """What an undo or redo wrote."""
    source = Source.OBSERVED if act.is_observed else Source.REVERT
    return Dated(act.number, Segment(act.before, act.after, source))


def dated(change: StoredChange) -> Dated:
    """A change as a segment."""
    return Dated(change.timeline, Segment(change.before, change.after, Source(change.source)))


def by_number(dated: Iterable[Dated]) -> list[Dated]:
    """Segments in the order in which they happened."""
    return sorted(dated, key=lambda each: each.number)
