"""Announces when another branch is checked out, by kedge or by any other program.

git replaces the file HEAD. The kernel reports that where it can; elsewhere HEAD has to be read from
time to time. Either only causes a read: what HEAD says then is announced. Nothing is stored, as the
repository is the source.
"""

import asyncio
import ctypes
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial

from kedge.domain.events import VcsBranchUpdated
from kedge.engine.event_log import EventLog
from kedge.engine.files.git_status import branch_of
from kedge.engine.worktrees import find_worktree
from kedge.snapshot.repository.discover import Repository
from kedge.snapshot.repository.git_cli import aside
from kedge.snapshot.repository.head import read_head
from kedge.snapshot.worktree import watch as inotify
from kedge.snapshot.worktree.filesystems import Mounts

_log = logging.getLogger(__name__)
_MOST_DIRECTORIES = 256
_NAMES = (b"HEAD", b"tables.list")
"""The files that say what is checked out: git's usual one, and that of reftables."""
_ITSELF = inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.ONLYDIR
_MASK = inotify.CREATE | inotify.DELETE | inotify.CLOSE_WRITE | inotify.MOVED_TO | _ITSELF
_GONE = inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.UNMOUNT | inotify.IGNORED
_READ_SIZE = 1 << 16


@dataclass(slots=True)
class _Directory:
    """The state of a watched directory."""

    is_known: bool = False
    """Whether HEAD was read."""
    branch: str | None = None
    is_told: bool = False
    """Whether the kernel reports changes."""


class BranchWatch:
    """Announces `vcs.branch.updated` for the directories it watches."""

    def __init__(
        self, events: EventLog, project_of: Callable[[str], Awaitable[str | None]]
    ) -> None:
        """`project_of` gives the id of a directory's project."""
        self._events = events
        self._project_of = project_of
        self._directories: dict[str, _Directory] = {}
        """The directories, the least recently requested first."""
        self._due: dict[str, None] = {}
        self._looking: asyncio.Task[None] | None = None
        self._folders = _Folders(self.look)

    def __len__(self) -> int:
        """How many directories are watched."""
        return len(self._directories)

    def care_for(self, directory: str) -> None:
        """Watch a directory from now on; if there are too many, the oldest are dropped."""
        found = self._directories.pop(directory, None)
        self._directories[directory] = found or _Directory()
        if found is not None:
            return
        if len(self._directories) > _MOST_DIRECTORIES:
            forgotten = next(iter(self._directories))
            del self._directories[forgotten]
            self._folders.forget(forgotten)
        self.look([directory])

    def was_told(self, directory: str, branch: str | None) -> None:
        """Record that a client knows this branch, so that only another one is announced."""
        self.care_for(directory)
        known = self._directories[directory]
        if not known.is_known:
            known.is_known, known.branch = True, branch
        self.look([directory])

    def look(self, directories: Iterable[str]) -> None:
        """Check watched directories that may have changed."""
        self._due.update(dict.fromkeys(directories))
        if self._due and self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())

    def look_at_untold(self) -> None:
        """Check the directories for which the kernel reports nothing."""
        self.look([name for name, each in self._directories.items() if not each.is_told])

    async def close(self) -> None:
        """Stop watching."""
        self._folders.close()
        self._directories.clear()
        if (looking := self._looking) is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look(self) -> None:
        while self._due:
            name = next(iter(self._due))
            del self._due[name]
            if name not in self._directories:
                continue
            try:
                await self._look_at(name, self._directories[name])
            except Exception:  # noqa: BLE001 - no error may affect the other directories
                _log.exception("cannot determine the branch of %s", name)
        self._looking = None

    async def _look_at(self, name: str, known: _Directory) -> None:
        repository, telling = await aside(partial(_find, name))
        # Watched before HEAD is read, so that the kernel reports every later change.
        known.is_told = self._folders.watch(name, telling) if telling else repository is None
        branch = None
        if repository is not None:
            branch = branch_of((await aside(partial(read_head, repository))).ref)
        is_news = known.is_known and branch != known.branch
        known.is_known, known.branch = True, branch
        if is_news:
            project = await self._project_of(name)
            self._events.announce(
                VcsBranchUpdated(branch=branch), project_id=project, directory=name
            )


def _find(directory: str) -> tuple[Repository | None, list[bytes]]:
    """The repository of a directory, and the folders of it to be watched by the kernel."""
    repository = find_worktree(directory).repository
    if repository is None:
        return None, []
    folder = repository.git_folder
    tables = folder + b"/reftable"
    telling = [folder, tables] if os.path.isdir(tables) else [folder]
    mounts = Mounts()
    return repository, telling if all(mounts.tells_of_names(each) for each in telling) else []


class _Folders:
    """The folders that hold HEAD, and the directories they stand for."""

    def __init__(self, on_change: Callable[[Iterable[str]], None]) -> None:
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._watches: dict[int, set[str]] = {}
        self._descriptor = -1
        if sys.platform.startswith("linux"):
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor >= 0:
            self._loop.add_reader(self._descriptor, self._on_events)

    def watch(self, directory: str, folders: Iterable[bytes]) -> bool:
        """Watch these folders; return False if the kernel cannot watch all of them."""
        if self._descriptor < 0:
            return False
        for folder in folders:
            # For a folder that is watched already the kernel returns the same number.
            watch = self._libc.inotify_add_watch(self._descriptor, folder, ctypes.c_uint32(_MASK))
            if watch < 0:
                return False
            self._watches.setdefault(watch, set()).add(directory)
        return True

    def forget(self, directory: str) -> None:
        """Stop watching for a directory."""
        for watch, directories in list(self._watches.items()):
            directories.discard(directory)
            if not directories:
                del self._watches[watch]
                self._libc.inotify_rm_watch(self._descriptor, watch)

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _on_events(self) -> None:
        changed: dict[str, None] = {}
        for watch, mask, name in inotify.parsed(os.read(self._descriptor, _READ_SIZE)):
            if mask & inotify.OVERFLOW:
                changed.update(
                    dict.fromkeys(each for all in self._watches.values() for each in all)
                )
            elif mask & _GONE or name in _NAMES:
                changed.update(dict.fromkeys(self._watches.get(watch, ())))
            if mask & inotify.IGNORED:
                self._watches.pop(watch, None)
        self._on_change(changed)
