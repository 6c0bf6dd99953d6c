"""The input of a revert, path by path: a session's changes and what its pending reverts wrote.

Reads only the database; what is on disk is inspected elsewhere.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from kedge.domain.file_states import Absent, Outcome, Present, examined
from kedge.engine.revert.merge import PathHistory, Segment, Source
from kedge.engine.revert.path_plan import EntrySource
from kedge.engine.revert.plan import Entry
from kedge.snapshot.files.reader import Disk
from kedge.store.port import Store
from kedge.store.queries.boundaries import Boundary
from kedge.store.queries.change_queries import opening_snapshots
from kedge.store.queries.changes import StoredChange, family_changes, later_changes
from kedge.store.queries.plans import PlanStep, StoredPlan, pending_plans, plan_steps
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

    def histories(self, disk: dict[bytes, Disk]) -> list[PathHistory]:
        """The history of each inspected path."""
        histories = []
        for path, found in disk.items():
            dated = _happened(self.segments[path], found)
            histories.append(
                PathHistory(
                    path=path,
                    segments=tuple(each.segment for each in dated),
                    disk=found,
                    others_later=self.later.get(path, -1) > dated[0].number,
                    unsure=any(each.unsure for each in dated),
                )
            )
        return histories

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
    changes = yield from family_changes(session_id, boundary.pos, from_part=boundary.part_id)
    pending = yield from written(session_id)
    # What a files-only revert wrote is among the changes.
    hiding = [each for each in pending if each.plan.kind != "files"]
    material = _gathered(root, changes, hiding)
    material.pending = pending
    undone = {change.key for change in changes}
    before = yield from family_changes(session_id, 0, boundary.pos)
    earlier = [change for change in before if change.key not in undone]
    material.earlier = _gathered(root, earlier, []).plain()
    material.openings = yield from opening_snapshots(session_id, (0, boundary.pos))
    yield from _find_later(material, session_id)
    return material


def _of_unrevert(session_id: str, root: str) -> Script[Material]:
    pending = yield from written(session_id)
    material = _gathered(root, [], pending)
    # The state that counts is the worktree before the first revert.
    taken = [each.plan.data.snapshot for each in pending[:1]]
    material.openings = [snapshot for snapshot in taken if snapshot is not None]
    yield from _find_later(material, session_id)
    return material


def _find_later(material: Material, session_id: str) -> Script[None]:
    firsts = [dated[0].number for dated in material.segments.values()]
    if firsts:
        family = {session_id, *(change.session_id for change in material.changes)}
        material.later = yield from later_changes(material.root, min(firsts), family)


def _gathered(root: str, changes: Sequence[StoredChange], pending: Sequence[Written]) -> Material:
    material = Material(root, list(changes), list(pending))
    for change in changes:
        _add_change(material, change)
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


def _add_change(material: Material, change: StoredChange) -> None:
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
