"""The changes of sessions, as numbers and as text; read from the object store, cached, never
stored."""

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar

import msgspec

from kedge.domain.errors import SnapshotError
from kedge.domain.file_states import Present, State
from kedge.domain.sessions import FileDiff
from kedge.domain.worktrees import TreeEntry
from kedge.engine.diffs.compose import net_changes, segments_by_path
from kedge.engine.diffs.history import Archives, Past
from kedge.engine.revert.merge import Contents
from kedge.engine.worktree_paths import find_path
from kedge.snapshot.diffs.lines import count
from kedge.snapshot.diffs.patches import file_diff
from kedge.snapshot.values import Change
from kedge.store.port import Store
from kedge.store.queries.change_queries import changes_of
from kedge.store.queries.changes import StoredChange
from kedge.store.queries.projects import project_of

if TYPE_CHECKING:
    from kedge.engine.session import Session

K = TypeVar("K")
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """A cache of limited size that drops the least recently used values; thread-safe."""

    def __init__(self, room: int) -> None:
        self._left = room
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """The value, if it is still cached."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, size: int = 1) -> None:
        """Cache a value, and drop others until it fits."""
        with self._lock:
            _, freed = self._values.pop(key, (None, 0))
            self._left += freed
            self._values[key] = value, size
            self._left -= size
            while self._left < 0:
                _, (_, freed) = self._values.popitem(last=False)
                self._left += freed


_log = logging.getLogger(__name__)

ROOM = 2**20
"""Bytes of patch text in one answer."""

_TEXTS = 32 * 2**20
"""Bytes of patches in the cache."""
_OVERHEAD = 512
"""The approximate overhead of a cache entry beside its text."""
_COUNTS = 100_000

Counts: TypeAlias = dict[bytes, tuple[int, int] | None]
"""Additions and deletions by path; None where the session's changes have no net effect."""

T = TypeVar("T")
_Read: TypeAlias = Callable[[str], bytes]
_Pair: TypeAlias = tuple[str | None, str | None]


class Diffs:
    """The changes that sessions made; one object per engine."""

    def __init__(self, store: Store, data: Path) -> None:
        self.archives = Archives(data)
        self._store = store
        # Keyed by content, so neither cache can be out of date.
        self._texts: Bounded[tuple[bytes, _Pair], tuple[FileDiff, int]] = Bounded(_TEXTS)
        """With the room that was left for the patch."""
        self._counts: Bounded[_Pair, tuple[int, int]] = Bounded(_COUNTS)

    async def close(self) -> None:
        """Close the object stores."""
        await asyncio.to_thread(self.archives.close)

    async def texts(self, session: "Session", changes: Sequence[StoredChange]) -> list[FileDiff]:
        """The diffs of changes, with at most `ROOM` bytes of patches; the patch of each other file
        is None."""
        return await self._read(session, changes, self._with_patches)

    async def texts_of_turns(
        self, session: "Session", turns: Sequence[Sequence[StoredChange]], room: int
    ) -> list[list[FileDiff]]:
        """The diffs of each turn's changes, with at most so many bytes of patches in all."""
        worktrees = {change.worktree for turn in turns for change in turn}
        projects = await self._projects(session, worktrees)

        def read() -> list[list[FileDiff]]:
            left = room
            found = []
            with self.archives.reading(projects) as blobs:
                contents = Contents(blobs)
                for turn in turns:
                    changes = net_changes(turn, session.worktree, contents)
                    diffs = self._with_patches(changes, contents.get, left)
                    left -= sum(map(_size, diffs))
                    found.append(diffs)
            return found

        return await asyncio.to_thread(read)

    async def outlines(self, session: "Session", changes: Sequence[StoredChange]) -> list[FileDiff]:
        """The diffs of changes, without patches."""
        return await self._read(session, changes, self._without_patches)

    async def turn_diffs(self, session: "Session", message_id: str) -> list[FileDiff]:
        """The diffs of a user message's turn, without patches."""
        changes = await self._store.scan(partial(changes_of, session.id, message_id))
        return await self._read(session, changes, self._without_patches) if changes else []

    async def counts(self, session: "Session", changes: Sequence[StoredChange]) -> Counts:
        """Additions and deletions at each path that the changes touched."""
        counts: Counts = dict.fromkeys(segments_by_path(changes, session.worktree))
        nets = await self._read(session, changes, self._counted)
        for path, (additions, deletions) in nets:
            before = counts[path] or (0, 0)
            counts[path] = before[0] + additions, before[1] + deletions
        return counts

    async def tree(self, session: "Session", snapshot: str, path: str | bytes) -> list[TreeEntry]:
        """The entries of a folder of the session's worktree."""
        directory, root = session.info.directory, session.worktree
        folder = find_path(path, directory=directory, root=root)
        seen_from = find_path(directory, directory=directory, root=root)

        return await self._look_back(
            session, snapshot, lambda past: past.tree(folder, seen_from=seen_from)
        )

    async def file(self, session: "Session", snapshot: str, path: str | bytes) -> bytes:
        """The content of a file of the session's worktree."""
        inside = find_path(path, directory=session.info.directory, root=session.worktree)
        return await self._look_back(session, snapshot, lambda past: past.file(inside))

    async def _look_back(self, session: "Session", snapshot: str, look: Callable[[Past], T]) -> T:
        def read() -> T:
            with self.archives.opened(session.info.projectID) as store:
                return look(Past(store, snapshot))

        return await asyncio.to_thread(read)

    async def _read(
        self,
        session: "Session",
        changes: Sequence[StoredChange],
        look: Callable[[list[Change], _Read], list[T]],
    ) -> list[T]:
        """Read the net changes, all in one thread."""
        projects = await self._projects(session, {change.worktree for change in changes})

        def read() -> list[T]:
            with self.archives.reading(projects) as blobs:
                contents = Contents(blobs)
                return look(net_changes(changes, session.worktree, contents), contents.get)

        return await asyncio.to_thread(read)

    async def _projects(self, session: "Session", worktrees: set[str]) -> list[str]:
        """The projects whose stores have the objects; subtasks may have worked in other
        worktrees."""
        projects = [session.info.projectID]
        for worktree in sorted(worktrees - {session.worktree}):
            project = await self._store.read(partial(project_of, worktree))
            if project is not None and project.id not in projects:
                projects.append(project.id)
        return projects

    def _with_patches(self, changes: list[Change], read: _Read, room: int = ROOM) -> list[FileDiff]:
        diffs = []
        for change in changes:
            diff = self._with_patch(change, read, room)
            room -= _size(diff)
            diffs.append(diff)
        return diffs

    def _with_patch(self, change: Change, read: _Read, room: int) -> FileDiff:
        key = change.path, _pair(change)
        diff, tried = self._texts.get(key) or (None, 0)
        # A patch that did not fit before may fit into more room.
        if diff is None or (diff.patch is None and tried < room):
            old, new = (None if blob is None else read(blob) for blob in key[1])
            diff = file_diff(change.path, old, new, room=room)
            self._texts.put(key, (diff, room), _OVERHEAD + _size(diff))
            self._counts.put(key[1], (diff.additions, diff.deletions))
        return diff if _size(diff) <= room else msgspec.structs.replace(diff, patch=None)

    def _without_patches(self, changes: list[Change], read: _Read) -> list[FileDiff]:
        return [self._without_patch(change, read) for change in changes]

    def _without_patch(self, change: Change, read: _Read) -> FileDiff:
        try:
            additions, deletions = self._count(_pair(change), read)
        except SnapshotError as error:
            # The event must go out without this; a caller that asks for the text gets the error.
            _log.warning("cannot count the changes of %r: %s", change.path, error)
            additions = deletions = 0
        return FileDiff(
            file=change.path.decode(errors="replace"),
            additions=additions,
            deletions=deletions,
            status=_status(change),
        )

    def _counted(self, changes: list[Change], read: _Read) -> list[tuple[bytes, tuple[int, int]]]:
        return [(change.path, self._count(_pair(change), read)) for change in changes]

    def _count(self, pair: _Pair, read: _Read) -> tuple[int, int]:
        if pair[0] == pair[1]:
            return 0, 0
        found = self._counts.get(pair)
        if found is None:
            old, new = (None if blob is None else read(blob) for blob in pair)
            found = count(old, new)
            self._counts.put(pair, found)
        return found


def _pair(change: Change) -> _Pair:
    return _blob(change.before), _blob(change.after)


def _blob(state: State) -> str | None:
    return state.blob if isinstance(state, Present) else None


def _status(change: Change) -> Literal["added", "deleted", "modified"]:
    if not isinstance(change.before, Present):
        return "added"
    return "modified" if isinstance(change.after, Present) else "deleted"


def _size(diff: FileDiff) -> int:
    return len((diff.patch or "").encode())
