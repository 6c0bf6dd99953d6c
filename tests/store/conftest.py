"""A SQLite store to test with, and somebody else's connection to its file."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kedge.domain.ids import IdMaker
from kedge.store.sqlite.store import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database is."""
    return tmp_path / "kedge.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """An open store."""
    opened = await SqliteStore.open(path, IdMaker())
    yield opened
    await opened.close()


@pytest.fixture
def other(store: SqliteStore, path: Path) -> Iterator[sqlite3.Connection]:
    """Somebody else's connection to the same file."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
    yield connection
    connection.close()
