"""Keeps the write-ahead log of a SQLite file small, in a thread of its own: a checkpoint waits for
the disk."""

import logging
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kedge.store.sqlite.connection import WAL_LIMIT, connect

_log = logging.getLogger(__name__)
_TRIES = 3
_FIRST_TRY = 10
_LONGEST_TRY = 500
"""Milliseconds of one try to start the log afresh, when it is small and when it is large."""


class Checkpoints:
    """Makes the checkpoints of one process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log_path = f"{path}-wal"
        self._connection = connect(path, wait=0)
        self._thread = ThreadPoolExecutor(1, "kedge-sqlite-checkpoints")
        self._running = False
        self._restart_above = 2 * WAL_LIMIT

    def look(self) -> None:
        """See whether the log has grown too long, and if so do something about it, not waiting for
        it."""
        if not self._running and self._size() > WAL_LIMIT:
            self._running = True
            self._thread.submit(self._checkpoint)

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
            if size > self._restart_above:
                done = self._restart(size)
                self._restart_above = 2 * WAL_LIMIT if done else size + WAL_LIMIT
            else:
                # Nobody waits for this one. When nobody writes meanwhile, the log begins anew.
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            # Nothing is lost: the log only stays longer, and the next look tries again.
            _log.warning("checkpoint of %s failed: %s", self._path, error)
        finally:
            self._running = False

    def _restart(self, size: int) -> bool:
        """Start the log afresh; under constant use it never empties by itself.

        Writers wait while the readers of the moment finish. So the tries are short at first, longer
        as the log grows, and between them the others get their turn.
        """
        # Cut off only when it is far too long: writing over a file is cheaper than making it grow.
        mode = "RESTART" if size < 4 * WAL_LIMIT else "TRUNCATE"
        patience = min(_LONGEST_TRY, _FIRST_TRY * size // (2 * WAL_LIMIT))
        self._connection.execute(f"PRAGMA busy_timeout = {patience}")
        try:
            for _ in range(_TRIES):
                found = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
                busy, pages, _ = found
                if not busy or pages < 0:
                    # Done, or somebody else is at it.
                    return True
                time.sleep(patience / 1000)
            return False
        finally:
            self._connection.execute("PRAGMA busy_timeout = 0")
