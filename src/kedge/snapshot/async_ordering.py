"""The asynchronous face of being the only kedge in a worktree; what that means is in `ordering`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from kedge.domain.errors import RootBusy
from kedge.snapshot import ordering
from kedge.snapshot.disk import Disk
from kedge.snapshot.files.holding import Hold
from kedge.snapshot.files.opening import naps
from kedge.snapshot.files.steps import Step
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
    ) -> list[Result]:
        """As `Ordered.apply`; `on_result` is called in another thread."""
        return await self._threads.run(
            partial(
                self._ordered.apply,
                steps,
                tag=tag,
                folders=folders,
                resumed=resumed,
                on_result=on_result,
            )
        )

    async def clean_up(self, steps: Sequence[Step], *, tag: str) -> list[Result]:
        """As `Ordered.clean_up`."""
        return await self._threads.run(partial(self._ordered.clean_up, steps, tag=tag))


class AsyncOrder:
    """How the tasks of an event loop become the only ones in a worktree, one after the other."""

    def __init__(self, order: Order, threads: Threads) -> None:
        self._order = order
        self._threads = threads
        self._queue = asyncio.Lock()

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[AsyncOrdered]:
        """Wait for the worktree; `RootBusy` if that takes too long."""
        async with AsyncExitStack() as leaving:
            try:
                async with asyncio.timeout(ordering.PATIENCE):
                    # In this process it goes by order of arrival, and nobody has to poll.
                    await leaving.enter_async_context(self._queue)
                    held = await self._wait()
                    leaving.callback(held.release)
            except TimeoutError:
                raise RootBusy from None
            yield AsyncOrdered(self._order.under(held), self._threads)

    async def _wait(self) -> Hold:
        pauses = naps()
        # There is no event to wait for: who has the lock is another process, or another loop.
        while (held := await self._attempt()) is None:  # noqa: ASYNC110
            await asyncio.sleep(next(pauses))
        return held

    async def _attempt(self) -> Hold | None:
        return await self._threads.obtain(self._order.attempt, _release)


def _release(held: Hold | None) -> None:
    if held is not None:
        held.release()
