"""Asynchronous wrappers of snapshots: the same methods, run in threads, so that no disk blocks the
event loop."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from kedge.domain.errors import RootBusy, SnapshotRefused, SnapshotTimeout
from kedge.domain.file_states import FileStep, Present, State
from kedge.domain.sessions import FileDiff
from kedge.snapshot import exclusive
from kedge.snapshot.exclusive import Hold, Order, Ordered
from kedge.snapshot.files.reader import Disk
from kedge.snapshot.files.root import naps
from kedge.snapshot.files.steps import MayWrite, always
from kedge.snapshot.objects.layout import Usage
from kedge.snapshot.snapshots import SnapshotLike, Snapshots
from kedge.snapshot.values import Change, Patch, Result, Snapshot, SnapshotSettings, Status

_THREADS = 4
# Separate threads: if a file system hangs, other work must not wait for these.
_LOOKING_THREADS = 8
# Work on files keeps to the budget by itself; only a file system that hangs takes longer.
_GRACE = 1.0

Answer = TypeVar("Answer")


class Threads:
    """Two thread pools: one for work that always ends, one for work that a file system may
    block."""

    def __init__(self, budget: float, give_up: Callable[[], None]) -> None:
        """`give_up` is called when work that has started takes longer than its budget."""
        self._budget = budget
        self._give_up = give_up
        self._closed = False
        self._working = ThreadPoolExecutor(_THREADS, thread_name_prefix="kedge-snapshots")
        self._looking = ThreadPoolExecutor(_LOOKING_THREADS, thread_name_prefix="kedge-looking")

    def check_open(self) -> None:
        """Raise if these threads are closed."""
        if self._closed:
            raise SnapshotRefused("these snapshots are closed")

    async def close(self, last: Callable[[], None]) -> None:
        """Run a last piece of work and close; does nothing on a second call."""
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.get_running_loop().run_in_executor(self._working, last)
        finally:
            self._working.shutdown(wait=False)
            self._looking.shutdown(wait=False)

    async def run(self, work: Callable[[], Answer]) -> Answer:
        """The result of the work, however long it takes."""
        self.check_open()
        return await asyncio.get_running_loop().run_in_executor(self._working, work)

    async def run_bounded(self, work: Callable[[], Answer]) -> Answer:
        """The result of the work; `SnapshotTimeout` if it exceeds its budget."""
        self.check_open()
        job = self._looking.submit(work)
        future = asyncio.wrap_future(job)
        # A caller that has stopped waiting, for any reason, ignores how it ends.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({future}, timeout=self._budget + _GRACE)
        if not future.done():
            # Work that never started says nothing about the worktree.
            if not job.cancel():
                self._give_up()
            raise SnapshotTimeout
        return future.result()

    async def obtain(
        self, work: Callable[[], Answer], give_back: Callable[[Answer], None]
    ) -> Answer:
        """The result of the work; if the caller is cancelled meanwhile, it is passed to
        `give_back`."""
        self.check_open()
        job = self._looking.submit(work)
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            job.add_done_callback(lambda done: _return(done, give_back))
            raise


def _return(job: "Future[Answer]", give_back: Callable[[Answer], None]) -> None:
    if not job.cancelled() and job.exception() is None:
        give_back(job.result())


class AsyncOrdered:
    """`Ordered` with awaitable methods. Work that has started is completed even if its caller is
    cancelled, and until then no other kedge gets the worktree."""

    def __init__(self, ordered: Ordered, threads: Threads) -> None:
        self._ordered = ordered
        self._threads = threads

    async def track(self, *, session: str | None = None) -> Snapshot:
        """As `Ordered.track`; within the budget even if the file system hangs."""
        return await self._threads.run_bounded(partial(self._ordered.track, session=session))

    async def look(
        self, paths: Iterable[bytes], *, session: str | None = None
    ) -> dict[bytes, Disk]:
        """As `Ordered.look`."""
        return await self._threads.run(partial(self._ordered.look, list(paths), session=session))

    def holding(self, blobs: Collection[str]) -> list[tuple[bytes, Present]]:
        """As `Ordered.holding`; call it in a thread."""
        return self._ordered.holding(blobs)

    async def apply(
        self,
        steps: Sequence[FileStep],
        *,
        tag: str,
        folders: Sequence[bytes] = (),
        resumed: bool = False,
        on_result: Callable[[Result], None] | None = None,
        may_write: MayWrite = always,
    ) -> list[Result]:
        """As `Ordered.apply`; `on_result` and `may_write` are called in another thread."""
        return await self._threads.run(
            partial(
                self._ordered.apply,
                steps,
                tag=tag,
                folders=folders,
                resumed=resumed,
                on_result=on_result,
                may_write=may_write,
            )
        )

    async def clean_up(
        self, steps: Sequence[FileStep], *, tag: str, may_write: MayWrite = always
    ) -> list[Result]:
        """As `Ordered.clean_up`; `may_write` is called in another thread."""
        work = partial(self._ordered.clean_up, steps, tag=tag, may_write=may_write)
        return await self._threads.run(work)


class AsyncOrder:
    """Gives tasks of an event loop exclusive access to a worktree, one after the other."""

    def __init__(self, order: Order, threads: Threads) -> None:
        self._order = order
        self._threads = threads
        self._queue = asyncio.Lock()
        self._left = 0.0
        """When a task of this process last had the worktree."""

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[AsyncOrdered]:
        """Wait for the worktree; `RootBusy` if that takes too long."""
        began = time.monotonic()
        async with AsyncExitStack() as leaving:
            # Within this process, tasks are served in order of arrival, without polling.
            try:
                async with asyncio.timeout(exclusive.PATIENCE):
                    await leaving.enter_async_context(self._queue)
            except TimeoutError:
                raise RootBusy(is_own=True) from None
            held = await self._wait(began)
            leaving.callback(self._leave, held)
            yield AsyncOrdered(self._order.under(held), self._threads)

    async def _wait(self, began: float) -> Hold:
        # A task that queued behind others waiting for the same process does not start its wait
        # anew.
        patience = self._order.patience(max(began, self._left))
        pauses = naps()
        # Polling: the lock is held by another process or another loop, which sends no event.
        while (held := await self._attempt()) is None:
            await self._threads.run(patience.check)
            await asyncio.sleep(next(pauses))
        return held

    def _leave(self, held: Hold) -> None:
        held.release()
        self._left = time.monotonic()

    async def _attempt(self) -> Hold | None:
        return await self._threads.obtain(self._order.attempt, _release)


def _release(held: Hold | None) -> None:
    if held is not None:
        held.release()


class AsyncSnapshots:
    """The snapshots of one worktree, for programs with an event loop.

    A cancelled caller stops waiting, but work that has started is completed.
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
        """Close, leaving everything in order for the next process."""
        await self._threads.close(self.snapshots.close)

    async def track(self, *, session: str | None = None) -> Snapshot:
        """As `Snapshots.track`; within the budget even if the file system hangs."""
        return await self._threads.run_bounded(partial(self.snapshots.track, session=session))

    def ordered(self) -> AbstractAsyncContextManager[AsyncOrdered]:
        """As `Snapshots.ordered`; a cancelled task gives up the worktree when its work is done."""
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

    async def moved_in(
        self, states: Mapping[bytes, Present], since: int, looked: int | None
    ) -> set[bytes]:
        """As `Snapshots.moved_in`."""
        ask = partial(self.snapshots.moved_in, dict(states), since, looked)
        return await self._threads.run(ask)

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
        """As `Snapshots.status`; never blocks."""
        return self.snapshots.status()
