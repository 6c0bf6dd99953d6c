"""Commits of other processes are heard by the kernel's word, and without it."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.store.sqlite import log_watch
from kedge.store.sqlite import store as store_module
from kedge.store.sqlite.file import tells_of_writes
from kedge.store.sqlite.log_watch import LogWatch
from kedge.store.sqlite.store import SqliteStore
from tests.support.timeouts import PATIENCE

_NEVER = 3600.0
_COMMIT = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("CREATE TABLE somebodys (n INTEGER)")
connection.execute("INSERT INTO somebodys VALUES (1)")
"""


class Looks:
    """Counts looks, and lets a test wait for one more."""

    def __init__(self) -> None:
        self.news = False
        self._came = asyncio.Event()

    def __call__(self) -> bool:
        self._came.set()
        found, self.news = self.news, False
        return found

    async def next(self) -> None:
        """Wait for a look that begins after this call."""
        self._came.clear()
        async with asyncio.timeout(PATIENCE):
            await self._came.wait()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A file that stands for SQLite's log."""
    path = tmp_path / "kedge.db-wal"
    path.write_bytes(b"before")
    if not tells_of_writes(tmp_path):
        pytest.skip("this file system does not tell of writes")
    return path


def _always_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_watch, "_QUIET", 0.0)


def _never_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    _always_quiet(monkeypatch)
    monkeypatch.setattr(log_watch, "_PATIENCE", 1e-12)
    monkeypatch.setattr(log_watch, "_LONGEST_PAUSE", _NEVER)


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


async def test_a_write_is_followed_by_a_look(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However rare looks have become, a write to the log causes one, and so does the next."""
    _never_by_itself(monkeypatch)
    looks = Looks()
    watch = LogWatch(log, looks)
    await looks.next()
    for _ in range(3):
        _append(log)
        await looks.next()
    watch.close()


async def test_a_commit_that_can_be_read_late_is_found(log: Path) -> None:
    """A write that is not followed by a commit at once makes the looks frequent again: the commit
    is there when the disk has synchronised it, and nothing tells of that."""
    looks = Looks()
    watch = LogWatch(log, looks)
    await looks.next()
    _append(log)
    await looks.next()
    looks.news = True
    await looks.next()
    assert not looks.news
    watch.close()


async def test_a_closed_watch_holds_nothing(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor is left behind, whether it was listened to or not."""
    _never_by_itself(monkeypatch)
    before = set(os.listdir("/proc/self/fd"))
    looks = Looks()
    listening = LogWatch(log, looks)
    await looks.next()
    unused = LogWatch(log, looks)
    listening.close()
    unused.close()
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("way", ["told", "untold", "deaf"])
async def test_commits_of_another_process_are_heard(
    way: str, store: SqliteStore, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are where the kernel tells of writes, where it does not, and where it should but does
    not, as when another machine writes."""
    _always_quiet(monkeypatch)
    if way == "untold":
        monkeypatch.setattr(log_watch, "tells_of_writes", lambda path: False)
    if way == "deaf":
        other = tmp_path / "another file"
        other.touch()
        monkeypatch.setattr(store_module, "LogWatch", lambda _, look: LogWatch(other, look))
    heard = asyncio.Event()
    store.follow(lambda events: None, heard.set)
    store.watch()
    async with asyncio.timeout(PATIENCE):
        # The first look always has news: of what was there before.
        await heard.wait()
        heard.clear()
        await asyncio.to_thread(subprocess.check_call, [sys.executable, "-c", _COMMIT, str(path)])
        await heard.wait()
    store.unwatch()
