"""The asynchronous face of snapshots: the same verbs in threads, so that no event loop waits for a
disk."""

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
from kedge.domain.sessions import FileDiff
from kedge.snapshot import exclusive
from kedge.snapshot.exclusive import Hold, Order, Ordered
from kedge.snapshot.files.reader import Disk
from kedge.snapshot.files.root import naps
from kedge.snapshot.files.steps import FileStep, MayWrite, always
from kedge.snapshot.objects.layout import Usage
from kedge.snapshot.snapshots import SnapshotLike, Snapshots
from kedge.snapshot.values import (
    Change,
    Patch,
    Present,
    Result,
    Snapshot,
    SnapshotSettings,
    State,
    Status,
)

_THREADS = 4
# Of their own: when a file system hangs, the others must not wait for these.
_LOOKING_THREADS = 8
# The budget is kept by whoever looks at files; only a file system that hangs takes longer.
_GRACE = 1.0

Answer = TypeVar("Answer")


class Threads:
    """Two kinds of threads: for work that ends, and for work that a file system may hold up."""

    def __init__(self, budget: float, give_up: Callable[[], None]) -> None:
        """`give_up` is called when work that was begun takes longer than its budget."""
        self._budget = budget
        self._give_up = give_up
        self._closed = False
        self._working = ThreadPoolExecutor(_THREADS, thread_name_prefix="kedge-snapshots")
        self._looking = ThreadPoolExecutor(_LOOKING_THREADS, thread_name_prefix="kedge-looking")

    def check_open(self) -> None:
        """Raise if these threads take no more work."""
        if self._closed:
            raise SnapshotRefused("these snapshots are closed")

    async def close(self, last: Callable[[], None]) -> None:
        """Do one thing more, and end; nothing if it was called before."""
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.get_running_loop().run_in_executor(self._working, last)
        finally:
            self._working.shutdown(wait=False)
            self._looking.shutdown(wait=False)

    async def run(self, work: Callable[[], Answer]) -> Answer:
        """What the work answers, however long it takes."""
        self.check_open()
        return await asyncio.get_running_loop().run_in_executor(self._working, work)

    async def run_bounded(self, work: Callable[[], Answer]) -> Answer:
        """What the work answers; `SnapshotTimeout` if it does not within its budget."""
        self.check_open()
        job = self._looking.submit(work)
        future = asyncio.wrap_future(job)
        # Whoever stops waiting, be it for another reason, does not care how it ends.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({future}, timeout=self._budget + _GRACE)
        if not future.done():
            # One that never began says nothing of the worktree.
            if not job.cancel():
                self._give_up()
            raise SnapshotTimeout
        return future.result()

    async def obtain(
        self, work: Callable[[], Answer], give_back: Callable[[Answer], None]
    ) -> Answer:
        """What the work answers; if the caller is cancelled meanwhile, it is given back."""
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
    """As `Ordered`, to be awaited. What was begun when its caller is cancelled is carried out, and
    until then no other kedge gets the worktree."""

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
        """As `Ordered.holding`; to be called in a thread."""
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
    """How the tasks of an event loop become the only ones in a worktree, one after the other."""

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
            # In this process it goes by order of arrival, and nobody has to poll.
            try:
                async with asyncio.timeout(exclusive.PATIENCE):
                    await leaving.enter_async_context(self._queue)
            except TimeoutError:
                raise RootBusy(is_own=True) from None
            held = await self._wait(began)
            leaving.callback(self._leave, held)
            yield AsyncOrdered(self._order.under(held), self._threads)

    async def _wait(self, began: float) -> Hold:
        # Whoever has waited behind others that waited for the same process need not begin anew.
        patience = self._order.patience(max(began, self._left))
        pauses = naps()
        # There is no event to wait for: who has the lock is another process, or another loop.
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
        """As `Snapshots.status`; it never waits."""
        return self.snapshots.status()
