"""What SQLite says of a database file, without changing or migrating it."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kedge.store.named_sql import load_migrations
from kedge.store.sqlite.connection import open_file, patiently
from kedge.store.sqlite.migrate import APPLICATION_ID

_COMPLAINTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """A database file."""

    is_ours: bool
    """Whether it is a database of kedge."""
    version: int
    known: int
    """The newest schema that this kedge knows."""
    size: int
    log_size: int
    complaints: list[str] = field(default_factory=list)
    """What `integrity_check` and `foreign_key_check` say."""


def file_state(path: Path) -> FileState:
    """The state of a file; everything in it is read."""
    real = path.resolve()
    log = Path(f"{real}-wal")
    connection = open_file(real, wait=1.0)
    try:
        version, application = patiently(lambda: _versions(connection), real)
        complaints = patiently(lambda: _complaints(connection), real)
    finally:
        connection.close()
    return FileState(
        is_ours=application == APPLICATION_ID,
        version=version,
        known=len(load_migrations("sqlite")),
        size=real.stat().st_size,
        log_size=log.stat().st_size if log.exists() else 0,
        complaints=complaints,
    )


def _versions(connection: sqlite3.Connection) -> tuple[int, int]:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    return int(version), int(application)


def first_complaint(connection: sqlite3.Connection) -> str | None:
    """What is wrong with a database, in a line; None if `quick_check` finds nothing."""
    return next(iter(_said(lambda: _check(connection, "quick_check(1)"))), None)


def _complaints(connection: sqlite3.Connection) -> list[str]:
    def ask() -> list[str]:
        said = _check(connection, f"integrity_check({_COMPLAINTS})")
        keys = connection.execute("PRAGMA foreign_key_check").fetchmany(_COMPLAINTS)
        return said + [f"a row of {table} refers to one that is missing" for table, *_ in keys]

    return _said(ask)


def _check(connection: sqlite3.Connection, name: str) -> list[str]:
    found = connection.execute(f"PRAGMA {name}").fetchall()
    return [str(line) for (line,) in found if line != "ok"]


def _said(ask: Callable[[], list[str]]) -> list[str]:
    try:
        return ask()
    except UnicodeDecodeError:
        # SQLite quotes a damaged schema, and Python cannot decode that.
        return ["its schema is not text"]
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        return [str(error)]
