"""Opens SQLite connections the way kedge wants them, and gives up the wait for a lock only after
long."""

import errno
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kedge.store.sqlite.failures import holders, is_busy, read_only, translated

_log = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds a caller waits for a lock of another process before it gets an error."""

SILENCE = 0.5
"""Seconds of such a wait after which the log says who is waited for."""

WAL_LIMIT = 4 * 1024 * 1024
"""Bytes of write-ahead log after which a checkpoint is due."""

T = TypeVar("T")

_creating = threading.Lock()


def connect(path: Path, *, wait: float) -> sqlite3.Connection:
    """A connection in autocommit mode; `wait` is how long SQLite itself waits for a lock, in
    seconds."""
    connection = open_file(path, wait=wait)
    try:
        configure(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def open_file(path: Path, *, wait: float) -> sqlite3.Connection:
    """A connection that has changed nothing about the file yet."""
    return patiently(
        lambda: sqlite3.connect(
            # One that is not there is not made: it was taken away, and would be an empty one.
            f"{path.as_uri()}?mode=rw",
            uri=True,
            timeout=wait,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        ),
        path,
    )


def configure(connection: sqlite3.Connection, path: Path) -> None:
    """Set a connection up the way kedge wants it."""
    patiently(lambda: _configure(connection), path)


def create_file(path: Path) -> None:
    """Make the file for its owner alone; the log and the index that SQLite puts beside it follow
    its mode."""
    # When a process closes any descriptor of a file, POSIX drops all locks it has on it, SQLite's
    # too. So a file that is there is not opened, and one that is being made is nobody else's yet.
    with _creating:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise read_only(path) from error
            failure = sqlite3.OperationalError(str(error))
            failure.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise translated(failure, path) from error


def patiently(action: Callable[[], T], path: Path) -> T:
    """Run an action again while somebody else holds a lock; other errors become typed ones."""
    started = time.monotonic()
    is_told = False
    while True:
        try:
            return action()
        except sqlite3.Error as error:
            waited = time.monotonic() - started
            if not is_busy(error) or waited > PATIENCE:
                raise translated(error, path) from error
        if waited > SILENCE and not is_told:
            is_told = True
            _log.warning(
                "%s is locked by %s; waiting for up to %d seconds", path, holders(path), PATIENCE
            )
        time.sleep(0.002)


def _configure(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = NORMAL")
    # Checkpoints wait for the disk, so they are made beside the writes and not by them.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT}")
    connection.execute("PRAGMA temp_store = MEMORY")
