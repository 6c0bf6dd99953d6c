"""The write-ahead log stays small, whoever reads and writes."""

import sqlite3
from pathlib import Path

import pytest

from kedge.store.sqlite import checkpoints
from kedge.store.sqlite.store import SqliteStore
from tests.store.test_sqlite_store import put


def _size(path: Path) -> int:
    return path.stat().st_size


async def test_the_log_is_started_afresh(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write-ahead log does not grow beyond a small multiple of its limit."""
    monkeypatch.setattr(checkpoints, "WAL_LIMIT", 64 * 1024)
    store._checkpoints._restart_above = 2 * 64 * 1024
    log = Path(f"{path}-wal")
    largest = 0
    for n in range(400):
        await store.write_bulk(put(f"{n:04}" + "x" * 2000))
        store._checkpoints._thread.submit(lambda: None).result()
        largest = max(largest, _size(log))
    assert 64 * 1024 < largest < 8 * 64 * 1024


async def test_a_reader_that_stays_does_not_stop_the_writers(
    store: SqliteStore, path: Path, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that a reader keeps alive is started afresh once the reader is gone."""
    monkeypatch.setattr(checkpoints, "WAL_LIMIT", 64 * 1024)
    monkeypatch.setattr(checkpoints, "_LONG_TRY", 0.0)
    store._checkpoints._restart_above = 2 * 64 * 1024
    log = Path(f"{path}-wal")
    other.execute("BEGIN")
    other.execute("SELECT * FROM worktree").fetchall()
    for n in range(100):
        await store.write_bulk(put(f"{n:04}" + "x" * 2000))
        store._checkpoints._thread.submit(lambda: None).result()
    grown = _size(log)
    assert grown > 4 * 64 * 1024
    other.execute("COMMIT")
    for n in range(100, 200):
        await store.write_bulk(put(f"{n:04}" + "x" * 2000))
        store._checkpoints._thread.submit(lambda: None).result()
    assert _size(log) < grown
