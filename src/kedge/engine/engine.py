"""The engine: one database, seen from one directory."""

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from kedge._version import __version__
from kedge.domain.clock import Clock
from kedge.domain.ids import IdMaker
from kedge.domain.projects import Project
from kedge.domain.status import SessionStatus
from kedge.engine.events import EventLog
from kedge.engine.runs import Runs
from kedge.engine.sessions import Sessions
from kedge.engine.settings import Settings
from kedge.engine.upkeep import Upkeep
from kedge.engine.worktrees import Worktree, find_directory, find_worktree
from kedge.store.port import Store
from kedge.store.verbs.projects import KnownWorktree, known_worktree, place_worktree, project_of
from kedge.store.verbs.sessions import adopt_strays, strays_in
from kedge.store.waiting import to_the_end


@dataclass(frozen=True, slots=True)
class Place:
    """A directory, and the project and worktree it lies in."""

    directory: str
    worktree: str
    project: Project

    @property
    def path(self) -> str:
        """The directory as seen from the worktree's root; empty at the root."""
        relative = os.path.relpath(self.directory, self.worktree)
        return "" if relative == "." else relative


class Engine:
    """Everything kedge can do; made by `kedge.open`."""

    version = __version__

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        ids: IdMaker,
        random: Callable[[int], bytes],
        settings: Settings,
    ) -> None:
        self.store = store
        self.clock = clock
        self.ids = ids
        self.random = random
        self.settings = settings
        self.events = EventLog(store, ids, settings.queue_length)
        self.sessions = Sessions(self)
        self.runs = Runs(store, self.events, ids, clock, settings)
        self.upkeep = Upkeep(store, self.runs, clock, settings)
        self.recovered: list[str] = []
        """Sessions whose run was cut off by the end of its process, found when this engine
        started."""
        self._place: Place | None = None
        self._closing: asyncio.Future[None] | None = None

    async def start(self, directory: str | os.PathLike[str]) -> None:
        """Find out where the engine is, and tidy up after processes that were killed."""
        self._place = await self.locate(directory)
        self.recovered = await self.runs.recover()
        self.upkeep.start()

    async def close(self) -> None:
        """Stop what runs, then let go of the database; whoever is impatient still waits for it."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(asyncio.current_task()))
        await to_the_end(self._closing)

    async def _close(self, closer: asyncio.Task[Any] | None) -> None:
        async with AsyncExitStack() as parts:
            # The last is closed first, and each whatever happens to the others.
            parts.push_async_callback(self.store.close)
            parts.push_async_callback(self.events.close)
            parts.push_async_callback(self.runs.close, closer)
            parts.push_async_callback(self.upkeep.close)

    @property
    def place(self) -> Place:
        """Where the engine was opened."""
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
        """Where the engine is, with the project that its folder belongs to now."""
        place = self.place
        project = await self.store.read(partial(project_of, place.worktree))
        if project is not None and project != place.project:
            # Another process found out that the folder is part of another project.
            place = self._place = replace(place, project=project)
        return place

    async def locate(self, directory: str | os.PathLike[str]) -> Place:
        """The project and worktree of a directory; a folder that is new to kedge is remembered."""
        real = find_directory(directory)
        worktree = await asyncio.to_thread(find_worktree, real)
        fingerprint = await asyncio.to_thread(worktree.fingerprint)
        known = await self.store.read(partial(known_worktree, worktree.root))
        if known is None or known.fingerprint != fingerprint:
            await self._look_at(worktree, fingerprint, known)
        project = await self.store.read(partial(project_of, worktree.root))
        assert project is not None
        if await self.store.read(partial(strays_in, real, worktree.root)):
            adopt = partial(adopt_strays, real, worktree.root, project.id)
            await self.store.write_bulk(adopt)
        return Place(real, worktree.root, project)

    async def _look_at(
        self, worktree: Worktree, fingerprint: str, known: KnownWorktree | None
    ) -> None:
        identity = await asyncio.to_thread(worktree.identity)
        related = known is None or await asyncio.to_thread(worktree.holds, known.identity)
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

    async def statuses(self) -> dict[str, SessionStatus]:
        """Every session that is not idle, in whatever process it runs."""
        return {id: lease.status for id, lease in (await self.runs.statuses()).items()}
