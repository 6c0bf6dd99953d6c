"""The threads in which an event loop's snapshots are taken, so that it never waits for a disk."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from kedge.domain.errors import SnapshotRefused, SnapshotTimeout

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
