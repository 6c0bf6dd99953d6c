"""Waiting for work that must not be left half done."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_the_end(work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
    """Wait until the work is done, whatever happens; a cancellation is heard only afterwards.

    So whoever was cancelled does not go on while something it began is still under way.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from (None if task.cancelled() else task.exception())
    return task.result()


class Stopped(Exception):
    """Work in a thread was told to stop."""


async def in_stoppable_thread(work: Callable[[Callable[[], None]], T]) -> T:
    """Do work in a thread. It is given a function to call often, which raises `Stopped` once the
    caller is cancelled; the cancellation is heard when the thread has cleaned up and ended."""
    is_cancelled = threading.Event()

    def check() -> None:
        if is_cancelled.is_set():
            raise Stopped

    working = asyncio.ensure_future(asyncio.to_thread(work, check))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        is_cancelled.set()
        await asyncio.wait({working})
        working.exception()  # it is known
        raise
