"""Decides when to look for commits of other processes: soon after a write to SQLite's log.

The kernel reports writes to the log where it can. That is only a hint: a commit is written before
it can be read, by as long as a sync of the disk takes, and not every file system reports writes. So
the polling never ends; it gets rarer the longer nothing happens.
"""

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path

from kedge.store.sqlite.file import tells_of_writes

_SOON = 0.001
"""Seconds from a write to the first look: most commits can be read by then."""
_BUSY_PAUSE = 0.025
"""Seconds between two looks while something happens."""
_QUIET = 1.0
"""Seconds without commits after which the log counts as quiet."""
_PATIENCE = 8
"""The pause is the quiet time divided by this."""
_LONGEST_PAUSE = 2.0
_LONGEST_PAUSE_UNTOLD = 0.25
"""Seconds between two looks where the kernel does not report writes."""
_IN_MODIFY = 0x2
_READ_SIZE = 4096


class LogWatch:
    """Calls `look` whenever there may be commits, until it is closed."""

    def __init__(self, log: Path, look: Callable[[], bool]) -> None:
        """`look` returns whether there were commits."""
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._writes = _told_writes(log)
        self._listens = False
        self._last_news = self._loop.time()
        self._timer = self._loop.call_soon(self._on_time)

    def close(self) -> None:
        """Stop looking."""
        self._timer.cancel()
        self._stop_listening()
        if self._writes is not None:
            os.close(self._writes)
            self._writes = None

    def _on_time(self) -> None:
        # Both, in this order: a write after the look is reported the next time.
        written = self._was_written()
        if self._look() or written:
            self._last_news = self._loop.time()
        quiet = self._loop.time() - self._last_news
        pause = _BUSY_PAUSE
        if quiet >= _QUIET:
            self._listen()
            longest = _LONGEST_PAUSE_UNTOLD if self._writes is None else _LONGEST_PAUSE
            pause = min(quiet / _PATIENCE, longest)
        self._timer = self._loop.call_later(pause, self._on_time)

    def _on_write(self) -> None:
        # Commits of this process are reported too, and must not cost a look each.
        self._stop_listening()
        self._timer.cancel()
        self._timer = self._loop.call_later(_SOON, self._on_time)

    def _listen(self) -> None:
        if self._writes is not None and not self._listens:
            self._listens = True
            self._loop.add_reader(self._writes, self._on_write)

    def _stop_listening(self) -> None:
        if self._writes is not None and self._listens:
            self._listens = False
            self._loop.remove_reader(self._writes)

    def _was_written(self) -> bool:
        if self._writes is None:
            return False
        try:
            return bool(os.read(self._writes, _READ_SIZE))
        except BlockingIOError:
            return False


def _told_writes(log: Path) -> int | None:
    """A descriptor that is readable after writes to the file; None where they are not reported."""
    if not sys.platform.startswith("linux") or not tells_of_writes(log.parent):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(log), ctypes.c_uint32(_IN_MODIFY)) < 0:
        os.close(descriptor)
        return None
    return descriptor
