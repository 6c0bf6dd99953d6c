"""Opens and configures SQLite connections; waits long for locks before giving up."""

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
"""Seconds of such a wait after which a warning names the process that holds the lock."""

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
    """A connection that has not changed the file yet."""
    return patiently(
        lambda: sqlite3.connect(
            # A missing file is not created: it was removed, and a new one would be empty.
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
    """Configure a connection."""
    patiently(lambda: _configure(connection), path)


def create_file(path: Path) -> None:
    """Create the file, readable by its owner alone; SQLite gives its log and index the same
    mode."""
    # When a process closes any descriptor of a file, POSIX drops all its locks on the file,
    # SQLite's too. So an existing file is not opened, and a file that is being created has no users
    # yet.
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
    """Retry an action while another connection holds a lock; other errors become typed ones."""
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
    # Checkpoints wait for the disk, so they run beside the writes instead of within them.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT}")
    connection.execute("PRAGMA temp_store = MEMORY")
