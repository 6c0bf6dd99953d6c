"""The requests that look at files: a few at a time, the others in order, none for a client that has
left."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kedge.server.answers import Receive
from kedge.server.errors import ClientGone
from kedge.store.waiting import to_the_end

T = TypeVar("T")

AT_ONCE = 4
"""Each may have a program that reads a whole tree."""


class FileQueue:
    """Where these requests wait."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(AT_ONCE)

    async def run(self, work: Callable[[], Awaitable[T]], receive: Receive) -> T:
        """What work answers when it is its turn.

        When the client leaves, the work is cancelled, and its place is free once it has ended.
        """
        working = asyncio.ensure_future(self._in_order(work))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ClientGone
        finally:
            working.cancel()
            leaving.cancel()
            await to_the_end(asyncio.gather(working, leaving, return_exceptions=True))
        return working.result()

    async def _in_order(self, work: Callable[[], Awaitable[T]]) -> T:
        async with self._places:
            return await work()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
