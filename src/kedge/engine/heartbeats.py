"""The heartbeat of an engine: a file in the data folder that is written four times a second while
calls run, so that it is known after a crash until when the process lived.

The time of a beat is the file's time stamp: it comes from the same clock as those of the files that
are compared with it. The file holds the difference between that clock and one that cannot be set,
so that a clock that was set back is noticed.
"""

import fcntl
import logging
import os
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kedge.engine.settings import make_private_folder

EVERY = 0.25
"""Seconds between two beats."""

_log = logging.getLogger(__name__)
_FOLDER = "heartbeats"
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
STEADY: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The clock that goes on while the machine sleeps; macOS has another name for it."""


class Heartbeat:
    """The heartbeat of one engine, in a thread, because the event loop may be busy for long."""

    def __init__(self, data: Path, engine: str) -> None:
        self._path = data / _FOLDER / engine
        self._lock = threading.Condition()
        self._fd: int | None = None
        self._thread: threading.Thread | None = None
        self._running = 0
        self._sleeps = False
        self._closed = False
        self._is_failing = False

    @contextmanager
    def beating(self) -> Iterator[int | None]:
        """Beat now, and until the block ends; yields the time of the first beat.

        None if the file cannot be written: then it is unknown until when the process lived, and
        after a crash its calls' changes are doubted.
        """
        first = self.beat()
        with self._lock:
            self._running += 1
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._run, name="kedge-heartbeat", daemon=True
                )
                self._thread.start()
            elif self._sleeps:
                self._lock.notify()
        try:
            yield first
        finally:
            with self._lock:
                self._running -= 1

    def beat(self) -> int | None:
        """Beat once; return the time of the beat on the file system's clock, in ns."""
        with self._lock:
            if self._closed:
                return None
            try:
                if self._fd is None:
                    self._fd = _opened(self._path)
                os.pwrite(self._fd, _distance().to_bytes(8, signed=True), 0)
                found = os.fstat(self._fd).st_ctime_ns
            except OSError as error:
                if not self._is_failing:
                    _log.warning("cannot write the heartbeat to %s: %s", self._path, error)
                self._is_failing = True
                return None
            self._is_failing = False
            return found

    def close(self) -> None:
        """Stop, and remove the file: nothing of this engine is left to recover."""
        with self._lock:
            self._closed = True
            self._lock.notify()
        if self._thread is not None:
            self._thread.join()
        if self._fd is not None:
            with suppress(FileNotFoundError):
                self._path.unlink()
            os.close(self._fd)
            self._fd = None

    def _run(self) -> None:
        while True:
            with self._lock:
                # While no call runs the heartbeat costs nothing.
                self._sleeps = not self._running
                if self._sleeps:
                    self._lock.wait_for(lambda: self._running or self._closed)
                    self._sleeps = False
                elif not self._closed:
                    self._lock.wait(EVERY)
                if self._closed:
                    return
                runs = bool(self._running)
            if runs:
                self.beat()


def last_beat(data: Path, engine: str) -> int | None:
    """The time of an engine's last beat, on the file system's clock; None if unknown.

    If the clock was set back since, files saved after the beat may have an earlier time stamp: the
    beat counts as that much earlier.
    """
    try:
        fd = os.open(data / _FOLDER / engine, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        content, beat = os.read(fd, 8), os.fstat(fd).st_ctime_ns
    except OSError:
        return None
    finally:
        os.close(fd)
    if len(content) != 8:
        return None
    return beat - max(0, int.from_bytes(content, signed=True) - _distance())


def silent_engines(data: Path) -> list[str]:
    """Engines that are gone and have left a file; running engines hold a lock on theirs."""
    try:
        names = os.listdir(data / _FOLDER)
    except OSError:
        return []
    return [name for name in names if not _is_locked(data / _FOLDER / name)]


def forget_beats(data: Path, engines: Collection[str]) -> None:
    """Remove the files of engines of which nothing is left to recover."""
    for engine in engines:
        with suppress(OSError):
            (data / _FOLDER / engine).unlink()


def _opened(path: Path) -> int:
    make_private_folder(path.parent)
    fd = os.open(path, _OPEN, 0o600)
    # Contended only for a moment, by processes that check whether this engine lives.
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def _is_locked(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        # Gone by now, or unreadable.
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _distance() -> int:
    """The difference between the file system's clock and the steady one, in nanoseconds."""
    return time.time_ns() - time.clock_gettime_ns(STEADY)
