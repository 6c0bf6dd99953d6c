"""A server as a process: it serves until a signal says to stop, and then does not stay long."""

import asyncio
import ctypes
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

from kedge.server.serving import Running, serving

_STOP_PATIENCE = 4.0
"""Seconds until a server that was told to stop leaves, whatever still runs: everything that was
acknowledged is stored, and what was cut off is recovered at the next start. On a busy machine it
takes some time until it is gone, and it has five seconds."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""As glibc calls them; other C libraries have none of it."""
_LARGE = 4 * 1024 * 1024


async def run(
    announce: Callable[[Running], None],
    explain: Callable[[Running], Coroutine[Any, Any, None]],
    **options: Any,  # noqa: ANN401 - as `serving`
) -> None:
    """Serve until a signal says to stop; `announce` is told of the server when it answers, and
    `explain` right afterwards, beside what clients want."""
    _keep_memory()
    stop = Stop()
    stop.listen()
    async with serving(**options) as running:
        stop.is_starting = False
        announce(running)
        explaining = asyncio.create_task(explain(running))
        await stop.wanted.wait()
        explaining.cancel()


def _keep_memory() -> None:
    """Let glibc keep the memory of large answers: by default it gives it back after each one, and
    getting it again takes longer than all that is done with it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_TRIM_THRESHOLD, 2 * _LARGE)


class Stop:
    """The wish that the process ends: said once it is heeded, said twice it is obeyed at once."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self.is_starting = True
        """Whether nothing was promised yet, so that there is nothing to end: a start may wait for a
        locked database in threads that cannot be told to stop."""
        self._loop = asyncio.get_running_loop()
        self._was_said = False

    def listen(self) -> None:
        """Take Ctrl-C and SIGTERM as the wish.

        Not by means of the loop, which may be busy, or over while threads still work.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.is_starting:
            # Not by way of a buffer: another thread may be writing into it.
            os.write(2, b"kedge: interrupted before it had started\n")
        if self._was_said or self.is_starting:
            _leave(128 + number)
        self._was_said = True
        timer = threading.Timer(_STOP_PATIENCE, _leave, (0,))
        timer.daemon = True
        timer.start()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.wanted.set)


def _leave(code: int) -> None:
    logging.shutdown()
    os._exit(code)
