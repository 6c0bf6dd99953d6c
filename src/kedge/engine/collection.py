"""The space that snapshots take: what a collection would free, why the rest stays, and collecting.

    for project in await survey_space(data_dir=...):
        print(project.worktree, project.freed)
    for done in await collect_space(data_dir=...):
        print(done.project, done.freed)

Both are safe beside running kedges: they use the locks that every kedge uses.
"""

import asyncio
import os
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from kedge.domain.clock import Clock, SystemClock
from kedge.domain.errors import SnapshotError
from kedge.domain.ids import IdMaker
from kedge.engine.doctor.findings import Progress, silent
from kedge.engine.kept_files import held, release
from kedge.engine.open import open_store
from kedge.engine.settings import Settings, data_folder, database_address
from kedge.snapshot.objects.refs import SESSION, TAKEN
from kedge.snapshot.objects.store import ObjectStore
from kedge.snapshot.objects.survey import RefSpace, Survey, survey
from kedge.snapshot.objects.view import StoreView, stores_in
from kedge.snapshot.values import SnapshotSettings
from kedge.store.port import Store
from kedge.store.queries.checkup import KnownSession, known_session
from kedge.store.queries.plans import open_plans
from kedge.store.queries.projects import find_project
from kedge.store.queries.retention import is_purged

_ROOT = f"{SESSION}root-"
_COLLECTION = 1800.0
"""Seconds to wait for a collection that runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one session, or something else, holds."""

    what: str
    """The id of the session, or what else it is, in words."""
    title: str = ""
    why: str
    """Why it stays."""
    snapshots: int
    alone: int
    """Bytes that nothing else holds."""


@dataclass(slots=True, kw_only=True)
class ProjectSpace:
    """The space that the snapshots of one project take, in bytes."""

    project: str
    worktree: str
    """Where the project is; empty if it is not known any more."""
    packs: int
    journals: int
    """What is being written, or was by processes that are gone; it becomes packs."""
    writers: int
    """Processes that write now."""
    freed: int
    """What a collection would free now."""
    young: int
    """Needed by nothing, but so young that a process may be about to use it."""
    scattered: int
    """Needed by nothing, among so much else that rewriting the pack is not worth it yet."""
    shared: int
    """Held by several."""
    missing: int
    """Objects that cannot be read, so that nothing is collected."""
    held: list[Held] = field(default_factory=list)
    """The largest first."""
    released: list[str] = field(default_factory=list)
    """Sessions that were purged, of which a collection releases what is kept for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectCollected:
    """What became of one project's snapshots."""

    project: str
    worktree: str = ""
    """Where the project is; empty if it is not known any more."""
    freed: int = 0
    """Bytes."""
    skipped: str = ""
    """Why not everything was done; empty if it was."""
    failure: str = ""
    """Why nothing was done; empty if something was."""


async def survey_space(
    *,
    data_dir: str | os.PathLike[str] | None = None,
    database: str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
    progress: Progress = silent,
) -> list[ProjectSpace]:
    """What takes the space, and what a collection would free. Nothing is changed."""
    data, now = data_folder(data_dir), clock or SystemClock()
    chosen = settings or Settings()
    if not await asyncio.to_thread(stores_in, data):
        return []
    store = await open_store(database_address(database), data, IdMaker(now))
    try:
        found = []
        purged = await _purged(store, data)
        for root in stores_in(data):
            space = await asyncio.to_thread(_survey, root, now, chosen, progress)
            found.append(
                ProjectSpace(
                    project=root.name,
                    worktree=await _worktree(store, root),
                    packs=space.packs,
                    journals=space.journals,
                    writers=space.live_writers,
                    freed=space.freed,
                    young=space.young,
                    scattered=space.scattered,
                    shared=space.shared,
                    missing=space.missing,
                    held=[await _held(store, each) for each in space.holders],
                    released=[id for name, id in purged if name == root.name],
                )
            )
        return found
    finally:
        await store.close()


async def collect_space(
    *,
    data_dir: str | os.PathLike[str] | None = None,
    database: str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
    progress: Progress = silent,
) -> list[ProjectCollected]:
    """Release what is kept for purged sessions, then collect each project."""
    data, now = data_folder(data_dir), clock or SystemClock()
    chosen = settings or Settings()
    roots = await asyncio.to_thread(stores_in, data)
    if not roots:
        return []
    store = await open_store(database_address(database), data, IdMaker(now))
    try:
        for project, id in await _purged(store, data):
            await release(data, project, id)
        worktrees = [await _worktree(store, root) for root in roots]
    finally:
        await store.close()
    done = []
    for n, (root, worktree) in enumerate(zip(roots, worktrees, strict=True)):
        progress("collecting", n, len(roots))
        collected = await asyncio.to_thread(_collect, root, now, chosen)
        done.append(replace(collected, worktree=worktree))
    return done


async def _worktree(store: Store, root: Path) -> str:
    project = await store.read(partial(find_project, root.name))
    return "" if project is None else project.worktree


async def _purged(store: Store, data: Path) -> list[tuple[str, str]]:
    return [each for each in await held(data) if await store.read(partial(is_purged, each[1]))]


def _survey(root: Path, clock: Clock, settings: Settings, progress: Progress) -> Survey:
    view = StoreView(root)
    try:
        with view.without_collections(_COLLECTION):
            return survey(
                view,
                now=clock.now() / 1000,
                keep_taken_for=SnapshotSettings().retention,
                budget=settings.snapshot_disk,
                tell=partial(progress, f"snapshots of {root.name[:12]}"),
            )
    finally:
        view.close()


def _collect(root: Path, clock: Clock, settings: Settings) -> ProjectCollected:
    try:
        with ObjectStore(root, budget=settings.snapshot_disk, clock=clock) as store:
            collected = store.collect(keep_taken_for=SnapshotSettings().retention)
    except SnapshotError as error:
        # One project must not keep the others from being collected.
        return ProjectCollected(project=root.name, failure=str(error))
    return ProjectCollected(project=root.name, freed=collected.freed, skipped=collected.skipped)


async def _held(store: Store, holder: RefSpace) -> Held:
    what, title, why = await _reason(store, holder)
    return Held(what=what, title=title, why=why, snapshots=holder.snapshots, alone=holder.alone)


async def _reason(store: Store, holder: RefSpace) -> tuple[str, str, str]:
    name = holder.ref
    if name.startswith(TAKEN):
        return "snapshots of no session", "", "they can be restored for seven days"
    if name.startswith(_ROOT):
        return "a worktree", "", "the next process that opens it compares files with it"
    id = unquote(name.removeprefix(SESSION))
    if holder.is_release:
        return id, "", "it was released less than a day ago"
    session = await store.read(partial(known_session, id))
    if session is None:
        return id, "", "the database does not know the session: it may be another one's"
    return id, session.title, await _why(store, id, session)


async def _why(store: Store, id: str, session: KnownSession) -> str:
    plans = await store.read(partial(open_plans, id))
    if any(plan.state == "planned" for plan in plans):
        return "a revert of it is not completed"
    if plans:
        return "it has a revert that can be taken back"
    if session.is_deleted:
        return "it was deleted, and can be restored until it is purged"
    return "the session can be reverted"
