"""The engine: one database, seen from one directory."""

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

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
from kedge.engine.worktrees import find_directory, find_worktree
from kedge.store.port import Store
from kedge.store.verbs.projects import place_worktree, project_of


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

    async def start(self, directory: str | os.PathLike[str]) -> None:
        """Find out where the engine is, and tidy up after processes that were killed."""
        self._place = await self.locate(directory)
        self.recovered = await self.runs.recover()
        self.upkeep.start()

    async def close(self) -> None:
        """Stop what runs, then let go of the database."""
        async with AsyncExitStack() as parts:
            # The last is closed first, and each whatever happens to the others.
            for part in (self.store, self.events, self.runs, self.upkeep):
                parts.push_async_callback(part.close)

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
        script = partial(
            place_worktree, worktree.root, worktree.identity, worktree.vcs, self.clock.now()
        )
        return Place(real, worktree.root, await self.store.write_bulk(script))

    async def statuses(self) -> dict[str, SessionStatus]:
        """Every session that is not idle, in whatever process it runs."""
        return {id: lease.status for id, lease in (await self.runs.statuses()).items()}
