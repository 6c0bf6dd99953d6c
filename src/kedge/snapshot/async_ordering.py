"""The asynchronous face of being the only kedge in a worktree; what that means is in `ordering`."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from kedge.domain.errors import RootBusy
from kedge.snapshot import ordering
from kedge.snapshot.disk import Disk
from kedge.snapshot.files.holding import Hold
from kedge.snapshot.files.opening import naps
from kedge.snapshot.files.steps import MayWrite, Step, always
from kedge.snapshot.ordering import Order, Ordered
from kedge.snapshot.threads import Threads
from kedge.snapshot.values import Present, Result, Snapshot


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
        steps: Sequence[Step],
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
        self, steps: Sequence[Step], *, tag: str, may_write: MayWrite = always
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
                async with asyncio.timeout(ordering.PATIENCE):
                    await leaving.enter_async_context(self._queue)
            except TimeoutError:
                raise RootBusy from None
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
