"""Translates SQLite's errors to kedge's: each says what to do next."""

import os
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

from kedge.domain.errors import (
    KedgeError,
    StoreBusy,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TooLarge,
)

_LITTLE_SPACE = 1024 * 1024
_PROC = Path("/proc")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection holds a lock that will be free again."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def translated(error: sqlite3.Error, path: Path) -> KedgeError:
    """The typed error for something SQLite refused to do to the file at `path`."""
    match _code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusy(
                f"{path} has been locked for too long by {holders(path)}; stop that, or choose"
                " another data folder, and try again"
            )
        case sqlite3.SQLITE_FULL:
            return _full(path)
        case sqlite3.SQLITE_NOTADB:
            return StoreCorrupt(f"{path} is not a SQLite database; choose another file for kedge")
        case sqlite3.SQLITE_CORRUPT:
            return damaged(path, error)
        case 0 if str(error).startswith("Could not decode to UTF-8"):
            # Python's own error: the stored bytes were valid text once. The damaged text is not
            # repeated.
            return damaged(path, "text that is not UTF-8")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return read_only(path)
        case sqlite3.SQLITE_CANTOPEN:
            return _cannot_open(path, error)
        case sqlite3.SQLITE_TOOBIG:
            return TooLarge("the value is larger than SQLite stores")
        case sqlite3.SQLITE_IOERR if _free_space(path) < _LITTLE_SPACE:
            return _full(path)
        case _:
            return StoreUnavailable(f"{path} cannot be used: {error}")


def holders(path: Path) -> str:
    """Which other processes have the database locked for writing, in words.

    Works only on Linux, and not for processes in other containers. The file itself is not opened
    for this: closing a descriptor of it would drop the locks of this process.
    """
    files = {_lock_name(Path(f"{path}{end}")) for end in ("", "-shm")} - {None}
    found: dict[str, None] = {}
    # There is no such table, or the process has ended since.
    with suppress(OSError):
        for line in (_PROC / "locks").read_text("ascii", "replace").splitlines():
            # 1: POSIX ADVISORY WRITE 4711 08:01:131073 120 120
            words = line.split()
            if len(words) > 5 and words[3] == "WRITE" and words[5] in files:
                with suppress(OSError):
                    program = (_PROC / words[4] / "comm").read_text("utf-8", "replace").strip()
                    if int(words[4]) != os.getpid():
                        found[f"process {words[4]} ({program})"] = None
    return ", ".join(found) or "another program"


def _lock_name(file: Path) -> str | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"


def _code(error: sqlite3.Error) -> int:
    # The low byte is the primary code; errors of the module itself carry none.
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _cannot_open(path: Path, error: sqlite3.Error) -> KedgeError:
    if path.is_dir():
        return StoreUnavailable(f"{path} is a directory; a database file is needed there")
    if not path.parent.is_dir():
        return StoreUnavailable(f"the folder {path.parent} does not exist; make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return read_only(path)
    if _free_space(path) < _LITTLE_SPACE:
        return _full(path)
    return StoreUnavailable(f"{path} cannot be opened: {error}")


def damaged(path: Path, how: object) -> StoreCorrupt:
    """The error for a file that holds what kedge has not written."""
    return StoreCorrupt(
        f"{path} is damaged ({how}); move it away, and put the newest {path.name}.*.backup in its"
        " place if there is one"
    )


def _full(path: Path) -> StoreFull:
    return StoreFull(f"the disk that holds {path} is full; nothing was stored; make room and retry")


def read_only(path: Path) -> StoreReadOnly:
    """The error for a file or folder that cannot be written."""
    return StoreReadOnly(
        f"{path} cannot be written; make it and its folder writable, or choose another data folder"
    )


def _free_space(path: Path) -> int:
    return shutil.disk_usage(path.parent).free
