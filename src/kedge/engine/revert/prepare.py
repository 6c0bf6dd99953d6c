"""Prepares a revert: checks the request, locks and inspects the files, and makes the plan; writes
nothing."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar, get_args

from kedge.domain.errors import FileBusy, InvalidInput, RootBusy, SnapshotError
from kedge.domain.file_states import Outcome, Present
from kedge.domain.receipts import Receipt, RevertScope, RevertStrategy
from kedge.engine.revert.material import Material
from kedge.engine.revert.plan import Entry, Plan, plan
from kedge.engine.revert.receipts import notes_of, receipt_of
from kedge.engine.revert.safety import Content, Facts, content_of
from kedge.engine.timeline.timeline import UNPROTECTED
from kedge.engine.validation import check_flag, check_list
from kedge.engine.worktree_paths import find_path, missing_folders
from kedge.snapshot.aio import AsyncOrdered, AsyncSnapshots
from kedge.snapshot.files.locks import FileLocks
from kedge.snapshot.files.reader import Disk, Obstacle
from kedge.snapshot.snapshots import Snapshots
from kedge.snapshot.values import Snapshot
from kedge.store.queries.plans import is_among

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.session import Session
    from kedge.store.queries.boundaries import Boundary


PATIENCE = 2.0
"""Seconds that a revert waits for calls that are writing the same files."""


async def lock_files(
    stack: AsyncExitStack, locks: FileLocks, root: str, paths: Iterable[bytes]
) -> set[bytes]:
    """Lock these files against other writers until the stack ends; return those that stay locked by
    others."""
    top = os.fsencode(root).rstrip(b"/") + b"/"
    wanted = sorted(paths)
    if await _lock(stack, locks, [top + path for path in wanted], PATIENCE):
        return set()
    return {path.removeprefix(top) for path in await _busy(stack, locks, top, wanted)}


async def _busy(
    stack: AsyncExitStack, locks: FileLocks, top: bytes, paths: Sequence[bytes]
) -> list[bytes]:
    """Halve a set that cannot be locked as a whole, until it is known which files are busy.

    Does not wait for any lock, so that two processes cannot wait for each other.
    """
    busy: list[bytes] = []
    pieces = [[top + path for path in paths]]
    while pieces:
        piece = pieces.pop()
        if await _lock(stack, locks, piece, 0):
            continue
        if len(piece) == 1:
            busy += piece
        else:
            middle = len(piece) // 2
            pieces += [piece[:middle], piece[middle:]]
    return busy


async def _lock(
    stack: AsyncExitStack, locks: FileLocks, paths: Sequence[bytes], patience: float
) -> bool:
    try:
        await stack.enter_async_context(locks.locked(paths, patience))
    except FileBusy:
        return False
    return True


W = TypeVar("W", bound=str)

_STRATEGIES: tuple[RevertStrategy, ...] = get_args(RevertStrategy)
_SCOPES: tuple[RevertScope, ...] = get_args(RevertScope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options of a revert."""

    strategy: RevertStrategy = "merge"
    scope: RevertScope = "all"
    dry_run: bool = False
    files: tuple[bytes, ...] | None = None
    """Only these, and what is below them; paths from the root of the worktree."""

    def includes(self, path: bytes) -> bool:
        """Whether a path was asked for."""
        return self.files is None or is_among(path, self.files)


def asked(
    *,
    strategy: object,
    scope: object,
    dry_run: object,
    files: object,
    directory: str,
    root: str,
) -> Asked:
    """The options as a caller gave them; paths are relative to the session's directory."""
    chosen: Iterable[object] | None = None if files is None else check_list(files, "files")
    paths = (
        None
        if chosen is None
        else tuple(find_path(each, directory=directory, root=root) for each in chosen)
    )
    return Asked(
        strategy=_choice(strategy, _STRATEGIES, "strategy"),
        scope=_choice(scope, _SCOPES, "scope"),
        dry_run=bool(check_flag(dry_run, "dry_run")),
        files=paths,
    )


def _choice(given: object, words: tuple[W, ...], name: str) -> W:
    for word in words:
        if given == word:
            return word
    raise InvalidInput(f"{name} must be one of {', '.join(words)}", field=name)


_log = logging.getLogger(__name__)
_BUSY = Obstacle(Outcome.CONFLICT, "another session is writing it")
_LEFT = "files were left as they are"
_NOT_ASKED = "it was not asked for"
_NOTHING = Plan(steps=(), contents={}, folders=(), entries=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What to do, while the files are locked."""

    plan: Plan
    """Its entries are those of all paths, also of those that no step touches."""
    folders: tuple[bytes, ...] = ()
    """Folders that will be created for files."""
    notes: tuple[str, ...] = ()
    asked: int = 0
    """The newest number of the timeline before anything was inspected."""
    snapshot: Snapshot | None = None
    snapshots: AsyncSnapshots | None = None
    order: AsyncOrdered | None = None
    """Set if files were inspected."""

    def receipt(self, strategy: RevertStrategy, *, applied: bool) -> Receipt:
        """The receipt of what is going to happen."""
        return receipt_of(self.plan.entries, self.notes, strategy, applied=applied)

    @property
    def has_conflict(self) -> bool:
        """Whether a path is left alone because others changed it."""
        return any(entry.outcome is Outcome.CONFLICT for entry in self.plan.entries)


class Preparing:
    """Plans one revert or unrevert of a session."""

    def __init__(
        self, engine: "Engine", session: "Session", material: Material, asked: Asked
    ) -> None:
        self._engine = engine
        self._session = session
        self._material = material
        self._asked = asked
        chosen = sorted(path for path in material.segments if asked.includes(path))
        self._paths = [] if asked.scope == "messages" else chosen

    @asynccontextmanager
    async def prepared(self, boundary: "Boundary | None") -> AsyncIterator[Prepared]:
        """The plan; the files stay locked against other writers while the block runs."""
        async with AsyncExitStack() as stack:
            if self._paths:
                found = await self._look_and_plan(stack)
            else:
                found = Prepared(plan=_NOTHING, snapshot=await self._snapshot_alone())
            entries = sorted((*found.plan.entries, *self._left()), key=lambda entry: entry.path)
            notes = await notes_of(
                self._engine, self._session, boundary, found.snapshot, self._unmatched()
            )
            whole = replace(found.plan, entries=tuple(entries))
            yield replace(found, plan=whole, notes=tuple(notes))

    def _unmatched(self) -> list[bytes]:
        """The paths that were asked for and that the session did not change."""
        known = [*self._material.segments, *self._material.impossible]
        asked = self._asked.files or ()
        return [path for path in asked if not any(is_among(each, [path]) for each in known)]

    def _left(self) -> list[Entry]:
        material = self._material
        paths = sorted(material.segments.keys() - set(self._paths))
        reason = _LEFT if self._asked.scope == "messages" else _NOT_ASKED
        return [*material.left(paths, reason), *material.untouchable()]

    async def _look_and_plan(self, stack: AsyncExitStack) -> Prepared:
        session, timeline = self._session, self._engine.timeline
        busy = await lock_files(stack, timeline.locks, session.worktree, self._paths)
        try:
            snapshots = await session.snapshots()
            order = await stack.enter_async_context(snapshots.ordered())
        except RootBusy:
            raise
        except UNPROTECTED as error:
            # The folder is gone, or kedge may not touch it any more; messages can still be
            # reverted.
            entries = tuple(self._material.left(self._paths, str(error)))
            return Prepared(plan=replace(_NOTHING, entries=entries))
        asked = await timeline.head()
        snapshot = await self._snapshot(order)
        free = [path for path in self._paths if path not in busy]
        disk = await order.look(free, session=session.id)
        facts = Evidence(self._material, snapshots.snapshots, order, snapshot)
        made = await self._plan(facts, disk | dict.fromkeys(sorted(busy), _BUSY))
        top = os.fsencode(session.worktree)
        written = [step.path for step in made.steps if isinstance(step.want, Present)]
        folders = await asyncio.to_thread(
            missing_folders, written, lambda folder: os.path.lexists(os.path.join(top, folder))
        )
        return Prepared(
            plan=made,
            folders=folders,
            asked=asked,
            snapshot=snapshot,
            snapshots=snapshots,
            order=order,
        )

    async def _snapshot_alone(self) -> Snapshot | None:
        """Where no file is touched: only a snapshot, for the notes of the receipt."""
        if not self._engine.settings.snapshots:
            return None
        try:
            snapshots = await self._session.snapshots()
            return await snapshots.track(session=self._session.id)
        except UNPROTECTED:
            return None

    async def _snapshot(self, order: AsyncOrdered) -> Snapshot | None:
        try:
            return await order.track(session=self._session.id)
        except SnapshotError:
            # Not needed: every path that is touched is inspected by itself.
            return None

    async def _plan(self, evidence: "Evidence", disk: dict[bytes, Disk]) -> Plan:
        def work() -> Plan:
            return plan(
                self._material.histories(disk),
                evidence.read,
                strategy=self._asked.strategy,
                made_folders=self._made_folders(),
                facts=evidence.facts(disk),
                has=evidence.has,
            )

        return await asyncio.to_thread(work)

    def _made_folders(self) -> Sequence[bytes]:
        return [path for path in self._material.folders if self._asked.includes(path)]


class Evidence:
    """What the planner and its last check read on demand; used in a thread."""

    def __init__(
        self,
        material: Material,
        snapshots: Snapshots,
        order: AsyncOrdered,
        now: Snapshot | None,
    ) -> None:
        self._material = material
        self._snapshots = snapshots
        self._order = order
        self._now = now
        self.read = snapshots.read
        self.has = snapshots.can_read

    def facts(self, paths: Collection[bytes]) -> Facts:
        """What is known of the session beside the changes to undo."""
        displaced: set[Content] = set()
        opening: dict[bytes, Content] = {}
        now = None if self._now is None else self._now.id
        for tree in self._material.openings:
            try:
                replaced = self._snapshots.replaced(tree, now)
                # Contents that stayed at their paths are found through the paths of the plan alone.
                rest = [path for path in paths if path not in replaced]
                opening |= _contents(self._snapshots.held(tree, rest))
            except SnapshotError as error:
                # Undo must work with a damaged store too: this costs one precaution.
                _log.warning("the snapshot %s cannot be read: %s", tree, error)
                continue
            displaced.update(_contents(replaced).values())
        return Facts(
            undone=self._material.plain(),
            earlier=self._material.earlier,
            opening=opening,
            displaced=displaced,
            lives=self._material.lives,
            elsewhere=self._elsewhere,
        )

    def _elsewhere(self, contents: Collection[Content]) -> dict[Content, list[bytes]]:
        found: dict[Content, list[bytes]] = {}
        for path, state in self._order.holding({blob for blob, _ in contents}):
            found.setdefault(content_of(state), []).append(path)
        return found


def _contents(states: Mapping[bytes, Present]) -> dict[bytes, Content]:
    return {path: content_of(state) for path, state in states.items()}
