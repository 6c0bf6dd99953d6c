"""The engine: one database, seen from one directory."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge._async import to_the_end
from kedge._version import __version__
from kedge.domain.clock import Clock
from kedge.domain.errors import DirectoryNotFound, EngineClosed
from kedge.domain.ids import IdMaker
from kedge.domain.projects import Project, ProjectTime
from kedge.domain.sessions import SessionStatus
from kedge.engine.asks import Asks
from kedge.engine.background import BackgroundTasks
from kedge.engine.conversation import Conversations
from kedge.engine.event_log import EventLog
from kedge.engine.heartbeats import Heartbeat
from kedge.engine.kept_files import expire, held, release
from kedge.engine.pages import Pages
from kedge.engine.pieces import Pieces
from kedge.engine.processes import Processes
from kedge.engine.projects import Projects
from kedge.engine.recovery import Recovery
from kedge.engine.runs import Runs
from kedge.engine.sessions import Sessions
from kedge.engine.settings import Settings
from kedge.engine.upkeep import Upkeep
from kedge.engine.worktree_paths import AnyPath
from kedge.engine.worktrees import (
    Worktree,
    find_directory,
    find_worktree,
    folder_identity,
    real_path,
)
from kedge.snapshot.repository.git_cli import aside
from kedge.store.port import Store
from kedge.store.queries.projects import KnownWorktree, known_worktree, place_worktree, project_of
from kedge.store.queries.sessions import adopt_strays, strays_in
from kedge.store.queries.timeline import open_calls

if TYPE_CHECKING:
    from kedge.domain.blame import Blame
    from kedge.engine.blame.blame import Blames
    from kedge.engine.diffs.diffs import Diffs
    from kedge.engine.files.files import Files
    from kedge.engine.revert.service import Reverts
    from kedge.engine.revert.undo import Undoing
    from kedge.engine.snapshots import Protecting
    from kedge.engine.timeline.recovery import Ends
    from kedge.engine.timeline.timeline import Timeline
    from kedge.snapshot.aio import AsyncSnapshots


@dataclass(frozen=True, slots=True)
class Place:
    """A directory, and the project and worktree it lies in."""

    directory: str
    worktree: str
    project: Project

    @property
    def path(self) -> str:
        """The directory relative to the worktree's root; empty at the root."""
        relative = os.path.relpath(self.directory, self.worktree)
        return "" if relative == "." else relative


class Engine:
    """The entry point to kedge; made by `kedge.open`."""

    version = __version__

    def __init__(
        self,
        store: Store,
        *,
        data: Path,
        clock: Clock,
        ids: IdMaker,
        random: Callable[[int], bytes],
        settings: Settings,
    ) -> None:
        self.store = store
        self.data = data
        """The folder of the snapshots."""
        self.clock = clock
        self.ids = ids
        self.random = random
        self.settings = settings
        self.events = EventLog(store, ids, settings.queue_length)
        self.pieces = Pieces(store)
        self.pages = Pages()
        self.sessions = Sessions(self)
        self.projects = Projects(store, clock)
        self.asks = Asks(self)
        self.conversations = Conversations(self)
        self.background = BackgroundTasks(self)
        self.processes = Processes(store)
        self.runs = Runs(store, self.events, ids, clock, settings, self._ends_of_calls)
        self.heartbeat = Heartbeat(data, self.runs.engine_id)
        self.recovery = Recovery(self)
        self.upkeep = Upkeep(
            store,
            clock,
            settings,
            recover=self.recovery.look,
            release=partial(release, data),
            held=partial(held, data),
            expire=partial(expire, data),
        )
        self._blames: Blames | None = None
        self._diffs: Diffs | None = None
        self._files: Files | None = None
        self._protecting: Protecting | None = None
        self._reverts: Reverts | None = None
        self._timeline: Timeline | None = None
        self._place: Place | None = None
        self._closing: asyncio.Future[None] | None = None
        self._sealed = False

    async def start(self, directory: str | os.PathLike[str]) -> None:
        """Locate the engine's project, and start the background tasks."""
        self._place = await self.locate(directory)
        self.upkeep.start()

    async def look_around(self, directory: str | os.PathLike[str]) -> None:
        """Locate the engine's project like `start`, for a caller that only reads: a new folder is
        not stored, and nothing runs in the background."""
        real = find_directory(directory)
        self._place = await self._last_known(real) or await self._as_unseen(real)

    async def close(self) -> None:
        """Stop all runs, then close the database; a caller that is cancelled still waits for it."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(asyncio.current_task()))
        await to_the_end(self._closing)

    async def _close(self, closer: asyncio.Task[Any] | None) -> None:
        async with AsyncExitStack() as parts:
            # In reverse order, and each one even if another one fails.
            parts.push_async_callback(self.store.close)
            parts.push_async_callback(self.events.close)
            parts.push_async_callback(self.pieces.close)
            parts.push_async_callback(self.asks._close)
            parts.push_async_callback(self._close_diffs)
            parts.push_async_callback(self._stop_protecting)
            parts.callback(self.processes.close)
            parts.push_async_callback(asyncio.to_thread, self.heartbeat.close)
            parts.push_async_callback(self.runs.close, closer)
            parts.push_async_callback(self.recovery.close)
            parts.push_async_callback(self.upkeep.close)

    async def _close_diffs(self) -> None:
        # A turn that is ended meanwhile still counts its changes.
        if self._diffs is not None:
            await self._diffs.close()

    async def _stop_protecting(self) -> None:
        # Until here, turns that were cut off needed their closing snapshots.
        self._sealed = True
        if self._protecting is not None:
            await self._protecting.close()

    @property
    def place(self) -> Place:
        """The directory the engine was opened on, with its project and worktree."""
        assert self._place is not None
        return self._place

    @property
    def directory(self) -> Path:
        """The directory the engine was opened on."""
        return Path(self.place.directory)

    @property
    def project(self) -> Project:
        """The project the directory belongs to."""
        return self.place.project

    async def here(self) -> Place:
        """The engine's place, with the project that its folder belongs to now."""
        place = self.place
        project = await self.store.read(partial(project_of, place.worktree))
        if project is not None and project != place.project:
            # Another process found that the folder belongs to another project.
            place = self._place = replace(place, project=project)
        return place

    async def locate(self, directory: str | os.PathLike[str]) -> Place:
        """The project and worktree of a directory; a folder that is new to kedge is stored."""
        real = find_directory(directory)
        worktree = await asyncio.to_thread(find_worktree, real)
        fingerprint = await aside(worktree.fingerprint)
        known = await self.store.read(partial(known_worktree, worktree.root))
        if known is None or known.fingerprint != fingerprint:
            await self._look_at(worktree, fingerprint, known)
        project = await self.store.read(partial(project_of, worktree.root))
        assert project is not None
        if await self.store.read(partial(strays_in, real, worktree.root)):
            adopt = partial(adopt_strays, real, worktree.root, project.id)
            await self.store.write_bulk(adopt)
        return Place(real, worktree.root, project)

    async def look_up(self, directory: str | os.PathLike[str]) -> Place:
        """The project and worktree of a directory as they were last stored, even if it is gone: for
        callers that only display something. A new folder is located."""
        real = real_path(directory)
        if (place := await self._last_known(real)) is not None:
            return place
        try:
            return await self.locate(real)
        except DirectoryNotFound:
            return await self._as_unseen(real)

    async def _last_known(self, real: str) -> Place | None:
        worktree = await asyncio.to_thread(find_worktree, real)
        project = await self.store.read(partial(project_of, worktree.root))
        return None if project is None else Place(real, worktree.root, project)

    async def _as_unseen(self, real: str) -> Place:
        worktree = await asyncio.to_thread(find_worktree, real)
        return Place(real, worktree.root, self._unseen(worktree))

    def _unseen(self, worktree: Worktree) -> Project:
        now = self.clock.now()
        return Project(
            id=folder_identity(worktree.root),
            worktree=worktree.root,
            vcs=worktree.vcs,
            time=ProjectTime(created=now, updated=now),
            sandboxes=[],
        )

    async def _look_at(
        self, worktree: Worktree, fingerprint: str, known: KnownWorktree | None
    ) -> None:
        identity = await aside(worktree.identity)
        related = known is None or await aside(partial(worktree.holds, known.identity))
        script = partial(
            place_worktree,
            worktree.root,
            identity,
            worktree.vcs,
            self.clock.now(),
            fingerprint=fingerprint,
            related=related,
        )
        await self.store.write_bulk(script)

    async def snapshots(self, directory: str | os.PathLike[str] | None = None) -> "AsyncSnapshots":
        """The snapshots of a directory's worktree; by default of the engine's own."""
        place = await (self.here() if directory is None else self.locate(directory))
        return await self.snapshots_of(place.worktree, place.project.id)

    async def snapshots_of(self, worktree: str, project: str) -> "AsyncSnapshots":
        """The snapshots of a worktree whose project is known."""
        if self._sealed:
            raise EngineClosed
        if self._protecting is None:
            # Imported late: only programs that take snapshots pay for the import.
            from kedge.engine.snapshots import Protecting

            self._protecting = Protecting(self.data, self.settings)
        return await self._protecting.at(worktree, project)

    @asynccontextmanager
    async def _ends_of_calls(self, session_id: str) -> AsyncIterator["Ends | None"]:
        found = await self.store.read(partial(open_calls, session_id))
        # Calls of a revert, which belong to no message, end when the revert is completed.
        calls = [call for call in found if call.message_id]
        if not calls:
            yield None
            return
        from kedge.engine.timeline.recovery import closing

        async with closing(self, session_id, calls) as ends:
            yield ends

    @property
    def reverts(self) -> "Reverts":
        """Reverts and unreverts."""
        if self._reverts is None:
            # Imported late: only programs that revert pay for the import.
            from kedge.engine.revert.service import Reverts

            self._reverts = Reverts(self)
        return self._reverts

    @cached_property
    def undoing(self) -> "Undoing":
        """Undo and redo of chosen calls."""
        from kedge.engine.revert.undo import Undoing

        return Undoing(self)

    @property
    def timeline(self) -> "Timeline":
        """The order of changes to files."""
        if self._timeline is None:
            from kedge.engine.timeline.timeline import Timeline

            self._timeline = Timeline(self)
        return self._timeline

    @property
    def diffs(self) -> "Diffs":
        """The changes of sessions, read from the objects of their snapshots."""
        if self._diffs is None:
            # Imported late: only programs that read changes pay for the import.
            from kedge.engine.diffs.diffs import Diffs

            self._diffs = Diffs(self.store, self.data)
        return self._diffs

    async def blame(
        self, path: AnyPath, *, directory: str | os.PathLike[str] | None = None
    ) -> "Blame":
        """Who wrote each line of a file as it is on disk: which call of which session, several at
        once, another program, or somebody before kedge.

        The path is relative to a directory, by default the engine's. Whoever restored a line by a
        revert did not write it: it is still that of its author.
        """
        if self._blames is None:
            # Imported late: only programs that ask pay for the import.
            from kedge.engine.blame.blame import Blames

            self._blames = Blames(self)
        place = await (self.here() if directory is None else self.look_up(directory))
        return await self._blames.blame(path, place)

    @property
    def files(self) -> "Files":
        """The files of a directory as they are now."""
        if self._files is None:
            # Only programs that look at them wait for what it imports.
            from kedge.engine.files.files import Files

            self._files = Files(lambda: self.place.directory)
        return self._files

    async def statuses(self) -> dict[str, SessionStatus]:
        """Every session that is not idle, in any process."""
        return {id: lease.status for id, lease in (await self.runs.statuses()).items()}
