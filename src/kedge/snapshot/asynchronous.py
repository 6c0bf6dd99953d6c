"""The asynchronous face of snapshots: the same verbs, in threads, so that no event loop waits."""

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Self

from kedge.domain.sessions import FileDiff
from kedge.snapshot.async_ordering import AsyncOrder, AsyncOrdered
from kedge.snapshot.disk import Disk
from kedge.snapshot.objects.usage import Usage
from kedge.snapshot.settings import SnapshotSettings
from kedge.snapshot.snapshots import SnapshotLike, Snapshots
from kedge.snapshot.threads import Threads
from kedge.snapshot.values import Change, Patch, Present, Result, Snapshot, State, Status


class AsyncSnapshots:
    """The snapshots of one worktree, for programs that run an event loop.

    A caller that is cancelled stops waiting; what was begun is still carried out whole.
    """

    def __init__(self, snapshots: Snapshots) -> None:
        self.snapshots = snapshots
        self._threads = Threads(snapshots.settings.budget, snapshots.give_up)
        self._order = AsyncOrder(snapshots.order, self._threads)

    @classmethod
    async def open(
        cls,
        root: str | os.PathLike[str],
        *,
        data: str | os.PathLike[str],
        project: str,
        settings: SnapshotSettings | None = None,
        way: str | None = None,
    ) -> Self:
        """As `Snapshots.open`."""
        opening = partial(
            Snapshots.open, root, data=data, project=project, settings=settings, way=way
        )
        return cls(await asyncio.to_thread(opening))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave all in order for the next process."""
        await self._threads.close(self.snapshots.close)

    async def track(self, *, session: str | None = None) -> Snapshot:
        """As `Snapshots.track`; within the budget even if the file system hangs."""
        return await self._threads.run_bounded(partial(self.snapshots.track, session=session))

    def ordered(self) -> AbstractAsyncContextManager[AsyncOrdered]:
        """As `Snapshots.ordered`; who is cancelled leaves the worktree when its work is done."""
        self._threads.check_open()
        return self._order.entered()

    async def look(
        self, paths: Iterable[bytes], *, session: str | None = None
    ) -> dict[bytes, Disk]:
        """As `Snapshots.look`."""
        return await self._threads.run(partial(self.snapshots.look, list(paths), session=session))

    async def capture(
        self, paths: Iterable[bytes], *, session: str | None = None
    ) -> dict[bytes, State]:
        """As `Snapshots.capture`."""
        return await self._threads.run(
            partial(self.snapshots.capture, list(paths), session=session)
        )

    async def identify(self, paths: Iterable[bytes]) -> dict[bytes, State]:
        """As `Snapshots.identify`."""
        return await self._threads.run(partial(self.snapshots.identify, list(paths)))

    async def moved_in(self, states: Mapping[bytes, Present], since: int) -> set[bytes]:
        """As `Snapshots.moved_in`."""
        return await self._threads.run(partial(self.snapshots.moved_in, dict(states), since))

    async def put_blobs(
        self, contents: Iterable[bytes], *, session: str | None = None
    ) -> list[str]:
        """As `Snapshots.put_blobs`."""
        return await self._threads.run(
            partial(self.snapshots.put_blobs, list(contents), session=session)
        )

    async def patch(self, since: SnapshotLike) -> Patch:
        """As `Snapshots.patch`."""
        await self.track()
        return await self._threads.run(partial(self.snapshots.patch, since))

    async def changes(self, old: SnapshotLike, new: SnapshotLike) -> tuple[Change, ...]:
        """As `Snapshots.changes`."""
        return await self._threads.run(partial(self.snapshots.changes, old, new))

    async def uncovered_changes(self, old: SnapshotLike, new: SnapshotLike) -> tuple[Change, ...]:
        """As `Snapshots.uncovered_changes`."""
        return await self._threads.run(partial(self.snapshots.uncovered_changes, old, new))

    async def diff(self, since: SnapshotLike) -> str:
        """As `Snapshots.diff`."""
        await self.track()
        return await self._threads.run(partial(self.snapshots.diff, since))

    async def diff_full(
        self, old: SnapshotLike, new: SnapshotLike, *, room: int | None = None
    ) -> list[FileDiff]:
        """As `Snapshots.diff_full`."""
        return await self._threads.run(partial(self.snapshots.diff_full, old, new, room=room))

    async def diffs_of(
        self, changes: Iterable[Change], *, room: int | None = None
    ) -> list[FileDiff]:
        """As `Snapshots.diffs_of`."""
        return await self._threads.run(partial(self.snapshots.diffs_of, list(changes), room=room))

    async def git_diff_of(self, changes: Iterable[Change], *, room: int | None = None) -> str:
        """As `Snapshots.git_diff_of`."""
        return await self._threads.run(
            partial(self.snapshots.git_diff_of, list(changes), room=room)
        )

    async def state(self, snapshot: SnapshotLike, path: bytes) -> State:
        """As `Snapshots.state`."""
        return await self._threads.run(partial(self.snapshots.state, snapshot, path))

    async def states(self, snapshot: SnapshotLike, paths: Iterable[bytes]) -> dict[bytes, State]:
        """As `Snapshots.states`."""
        return await self._threads.run(partial(self.snapshots.states, snapshot, list(paths)))

    async def read(self, blob: str) -> bytes:
        """As `Snapshots.read`."""
        return await self._threads.run(partial(self.snapshots.read, blob))

    async def restore(self, snapshot: SnapshotLike) -> list[Result]:
        """As `Snapshots.restore`."""
        return await self._threads.run(partial(self.snapshots.restore, snapshot))

    async def revert(self, patches: Sequence[Patch]) -> list[Result]:
        """As `Snapshots.revert`."""
        return await self._threads.run(partial(self.snapshots.revert, list(patches)))

    async def inherit(self, origin: str, fork: str) -> None:
        """As `Snapshots.inherit`."""
        await self._threads.run(partial(self.snapshots.inherit, origin, fork))

    async def release(self, session: str) -> None:
        """As `Snapshots.release`."""
        await self._threads.run(partial(self.snapshots.release, session))

    async def verify(self) -> list[bytes]:
        """As `Snapshots.verify`."""
        return await self._threads.run(self.snapshots.verify)

    async def usage(self) -> Usage:
        """As `Snapshots.usage`."""
        return await self._threads.run(self.snapshots.usage)

    def is_slow(self) -> bool:
        """As `Snapshots.is_slow`."""
        return self.snapshots.is_slow()

    def status(self) -> Status:
        """As `Snapshots.status`; it never waits."""
        return self.snapshots.status()
