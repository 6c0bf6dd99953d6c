"""Keeps the write-ahead log of a SQLite file small, in a thread of its own: a checkpoint waits for
the disk."""

import logging
import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kedge.store.sqlite.connection import WAL_LIMIT, connect

_log = logging.getLogger(__name__)
_PRESSING = 4
"""How many times its limit the log may grow before writers pause."""
_STAND_BACK = 5.0
_SHORT_TRY = 0.01
_LONG_TRY = 0.5
"""Seconds of one attempt to restart the log: the short one normally, the long one when it is far
too long."""


class Checkpoints:
    """Makes the checkpoints of one process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log_path = f"{path}-wal"
        self._connection = connect(path, wait=0)
        self._thread = ThreadPoolExecutor(1, "kedge-sqlite-checkpoints")
        self._lock = threading.Lock()
        self._running = False
        self._restart_above = 2 * WAL_LIMIT
        self._nothing_presses = threading.Event()
        self._nothing_presses.set()

    def look(self) -> None:
        """Check whether the log is too long, and if so start a checkpoint without waiting for
        it."""
        size = self._size()
        if size <= WAL_LIMIT:
            return
        with self._lock:
            if size > _PRESSING * WAL_LIMIT:
                self._nothing_presses.clear()
            if self._running:
                return
            self._running = True
        self._thread.submit(self._checkpoint)

    @property
    def presses(self) -> bool:
        """Whether the log is so long that writers should pause until it is restarted."""
        return not self._nothing_presses.is_set()

    def let_pass(self) -> None:
        """Pause for a moment if needed; called by a thread that is about to write."""
        self._nothing_presses.wait(_STAND_BACK)

    def close(self) -> None:
        """Finish what was begun."""
        self._thread.shutdown()
        self._connection.close()

    def _size(self) -> int:
        try:
            return os.stat(self._log_path).st_size
        except FileNotFoundError:
            return 0

    def _checkpoint(self) -> None:
        try:
            size = self._size()
            if size > min(self._restart_above, _PRESSING * WAL_LIMIT):
                done = self._restart(size)
                self._restart_above = 2 * WAL_LIMIT if done else size + WAL_LIMIT
            else:
                # Blocks no other connection. Without writes meanwhile, the log begins anew.
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            # Nothing is lost: the log only stays longer, and the next check tries again.
            _log.warning("checkpoint of %s failed: %s", self._path, error)
        finally:
            with self._lock:
                self._nothing_presses.set()
                self._running = False

    def _restart(self, size: int) -> bool:
        """Restart the log; under constant use it never empties by itself.

        Writers wait while the current readers finish. So the attempts are short and few, until the
        log is far too long: then the writers of this process pause, also for the attempts of other
        processes, and the log is truncated.
        """
        # Otherwise the file keeps its size: overwriting a file is cheaper than growing it.
        presses = size > _PRESSING * WAL_LIMIT
        mode, pause = ("TRUNCATE", _LONG_TRY) if presses else ("RESTART", _SHORT_TRY)
        deadline = time.monotonic() + 3 * pause
        self._connection.execute(f"PRAGMA busy_timeout = {round(pause * 1000)}")
        try:
            while True:
                found = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
                busy, pages, _ = found
                if not busy or (pages < 0 and not presses):
                    return True
                if time.monotonic() > deadline:
                    return False
                time.sleep(_SHORT_TRY)
        finally:
            self._connection.execute("PRAGMA busy_timeout = 0")
