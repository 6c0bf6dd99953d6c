"""What kedge is compared with: `sqlite3` by hand, in WAL mode, with nothing around it."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

Rows: TypeAlias = Sequence[tuple[object, ...]]


@contextmanager
def database(path: Path, schema: str) -> Iterator[sqlite3.Connection]:
    """A new database with kedge's durability and SQLite's own defaults for the rest."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript(schema)
        yield connection
    finally:
        connection.close()


def insert_one_by_one(connection: sqlite3.Connection, statement: str, rows: Rows) -> None:
    """A transaction for each row."""
    for row in rows:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(statement, row)
        connection.execute("COMMIT")


def insert_at_once(connection: sqlite3.Connection, *inserts: tuple[str, Rows]) -> None:
    """One transaction for all rows of all statements."""
    connection.execute("BEGIN IMMEDIATE")
    for statement, rows in inserts:
        connection.executemany(statement, rows)
    connection.execute("COMMIT")
