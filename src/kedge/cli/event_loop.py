"""Runs the asynchronous work of a command, which Ctrl-C ends: cleanly if that is quick.

Threads cannot be cancelled, and one that waits for a locked database waits for a minute. Nobody is
kept waiting for it: all that was acknowledged is stored, and what was begun is completed or taken
back by the process that finds it, as after a kill.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeVar

from kedge.cli.exit_codes import INTERRUPTED

T = TypeVar("T")

PATIENCE = 3.0
"""Seconds that a clean end may take."""
_TELL_AFTER = 0.5
_STOPPING = b"\nkedge: stopping; Ctrl-C again leaves at once\n"
_LEFT = b"kedge: left before it had ended, as after a kill; nothing that was stored is lost\n"


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end; the first Ctrl-C cancels it, a second one leaves at once."""
    before = signal.getsignal(signal.SIGINT)
    try:
        return asyncio.run(_interruptible(work))
    finally:
        signal.signal(signal.SIGINT, before)


async def _interruptible(work: Coroutine[Any, Any, T]) -> T:
    cancel = signal.getsignal(signal.SIGINT)
    if callable(cancel):
        # That of `asyncio.run`, which cancels this task.
        signal.signal(signal.SIGINT, _Interruption(cancel))
    return await work


class _Interruption:
    """What Ctrl-C does."""

    def __init__(self, cancel: Callable[[int, FrameType | None], Any]) -> None:
        self._cancel = cancel
        self._is_stopping = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._is_stopping:
            _leave()
        self._is_stopping = True
        for seconds, action in ((_TELL_AFTER, _tell), (PATIENCE, _leave)):
            timer = threading.Timer(seconds, action)
            timer.daemon = True
            timer.start()
        self._cancel(number, frame)


# Both write without a buffer: another thread may be writing into it.
def _tell() -> None:
    os.write(2, _STOPPING)


def _leave() -> None:
    os.write(2, _LEFT)
    os._exit(INTERRUPTED)
