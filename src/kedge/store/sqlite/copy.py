"""A copy of a database file as it is at one moment, made while other processes write."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from kedge.store.sqlite.connection import create_file, open_file, patiently

_PAGES = 2048
"""Pages that are copied between two calls of `tell`."""


def copy_file(source: Path, target: Path, tell: Callable[[int, int], None]) -> None:
    """Copy a database to a new file; it is on the disk when this returns. `tell` hears how many
    pages of how many are copied."""
    create_file(target)
    real = source.resolve()
    reader, writer = open_file(real, wait=1.0), sqlite3.connect(target)
    try:
        # Without a transaction of our own, SQLite begins again whenever another process writes.
        reader.execute("BEGIN")
        patiently(lambda: reader.execute("SELECT count(*) FROM sqlite_schema").fetchone(), real)
        reader.backup(
            writer, pages=_PAGES, progress=lambda _, left, total: tell(total - left, total)
        )
        reader.execute("ROLLBACK")
        # One file is easier to keep than three; kedge sets it back when it opens the copy.
        writer.execute("PRAGMA journal_mode = DELETE")
    finally:
        writer.close()
        reader.close()
    fd = os.open(target, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
