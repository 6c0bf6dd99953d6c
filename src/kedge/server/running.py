"""A server as a process: it serves until a signal says to stop, and then does not stay long."""

import asyncio
import ctypes
import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from kedge.server.serving import serving

_STOP_PATIENCE = 4.0
"""Seconds until a server that was told to stop leaves, whatever still runs: everything that was
acknowledged is stored, and what was cut off is recovered at the next start. On a busy machine it
takes some time until it is gone, and it has five seconds."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""As glibc calls them; other C libraries have none of it."""
_LARGE = 4 * 1024 * 1024


async def run(announce: Callable[[str], None], **options: Any) -> None:  # noqa: ANN401 - as `serving`
    """Serve until a signal says to stop; `announce` is told the address when it answers."""
    _keep_memory()
    stop = Stop()
    stop.listen()
    try:
        async with serving(**options) as running:
            stop.is_interruptible = False
            announce(running.url)
            await stop.wanted.wait()
    except asyncio.CancelledError:
        # It was told to stop before it had started.
        if not stop.wanted.is_set():
            raise


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
        self.is_interruptible = True
        """Whether the server still starts, which can be broken off."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._was_said = False

    def listen(self) -> None:
        """Take Ctrl-C and SIGTERM as the wish.

        Not by means of the loop, which may be busy, or over while threads still work.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._was_said:
            _leave(128 + number)
        self._was_said = True
        timer = threading.Timer(_STOP_PATIENCE, _leave, (0,))
        timer.daemon = True
        timer.start()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._heed)

    def _heed(self) -> None:
        self.wanted.set()
        if self.is_interruptible and self._task is not None:
            self._task.cancel()


def _leave(code: int) -> None:
    logging.shutdown()
    os._exit(code)
