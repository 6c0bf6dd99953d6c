"""How the SQLite adapter shares a file: locks, threads, the write-ahead log, closing."""

import asyncio
import functools
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kedge.domain import wire
from kedge.domain.errors import EngineClosed, StoreUnavailable
from kedge.domain.events import SessionErrored
from kedge.domain.ids import IdMaker
from kedge.domain.wire_errors import aborted
from kedge.store.port import StoredEvent
from kedge.store.queries.event_log import events_after, log_head
from kedge.store.sqlite.connection import connect
from kedge.store.sqlite.store import SqliteStore
from kedge.store.transaction import Emit, Script, row, run
from tests.support.timeouts import PATIENCE


def put(key: str, seen: Callable[[], None] = lambda: None) -> Callable[[], Script[str]]:
    """A script that stores one row and one event, and calls `seen` while it is at it."""

    def script() -> Script[str]:
        seen()
        yield from run(
            "worktree_put", path=key, project_id="p", fingerprint="", identity="p", now=1
        )
        event = SessionErrored(error=aborted(key))
        yield Emit(event.type, wire.encode(event), "")
        return threading.current_thread().name

    return script


def stored(path: Path) -> list[str]:
    """The rows that `put` made, as another process sees them."""
    connection = sqlite3.connect(path)
    try:
        return [key for (key,) in connection.execute("SELECT path FROM worktree ORDER BY path")]
    finally:
        connection.close()


async def test_a_small_write_runs_where_it_is_asked_for(store: SqliteStore, path: Path) -> None:
    """With nobody in the way a write needs no thread."""
    assert await store.write(put("a")) == threading.main_thread().name
    assert stored(path) == ["a"]


async def test_a_write_waits_beside_the_event_loop(
    store: SqliteStore, path: Path, other: sqlite3.Connection
) -> None:
    """While somebody else holds the lock, a write waits in the worker; the event loop goes on."""
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(store.write(put("a")))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not writing.done()
    other.execute("ROLLBACK")
    assert (await writing).startswith("kedge-sqlite-writer")
    assert stored(path) == ["a"]


async def test_who_came_first_writes_first(store: SqliteStore, other: sqlite3.Connection) -> None:
    """Small writes queue behind a large one that waits, so that they cannot starve it."""
    other.execute("BEGIN IMMEDIATE")
    order: list[str] = []
    store.follow(lambda events: order.extend(_keys(events)), lambda: None)
    large = asyncio.create_task(store.write_bulk(put("large")))
    await asyncio.sleep(0)
    small = [asyncio.create_task(store.write(put(f"small{n}"))) for n in range(3)]
    await asyncio.sleep(0)
    other.execute("ROLLBACK")
    await asyncio.gather(large, *small)
    assert order == ["large", "small0", "small1", "small2"]


def _keys(events: Any) -> list[str]:  # noqa: ANN401 - a sequence of stored events
    return [each.payload.split('"message":"')[1].split('"')[0] for each in events]


async def test_a_tight_loop_of_writes_lets_others_run(store: SqliteStore) -> None:
    """A task that only writes still gives the other tasks of the event loop their turn."""
    turns = 0
    stop = False

    async def count() -> None:
        nonlocal turns
        while not stop:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    n = 0
    while turns < 3:
        n += 1
        await store.write(put(f"{n}"))
    stop = True
    await counting


async def test_a_durable_write_waits_for_the_disk(store: SqliteStore) -> None:
    """`write_durable` commits with synchronous FULL (2); what follows it with NORMAL (1) again."""
    seen: list[int] = []

    def level() -> None:
        seen.append(store._worker_connection.execute("PRAGMA synchronous").fetchone()[0])

    await store.write_bulk(put("a", level))
    await store.write_durable(put("b", level))
    await store.write_bulk(put("c", level))
    assert seen == [1, 2, 1]


async def test_a_cancelled_write_is_whole_or_absent(
    store: SqliteStore, path: Path, other: sqlite3.Connection
) -> None:
    """A cancelled transaction is not torn: it commits with its event, or is never begun."""
    other.execute("BEGIN IMMEDIATE")
    waiting = [asyncio.create_task(store.write_bulk(put(f"{n}"))) for n in range(3)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    other.execute("ROLLBACK")
    assert await store.write_bulk(put("last")) is not None
    events = await store.scan(lambda: events_after(0))
    assert sorted(_keys(events)) == stored(path)
    assert "last" in stored(path)


async def test_closing_finishes_what_was_begun(
    store: SqliteStore, path: Path, other: sqlite3.Connection
) -> None:
    """Writes that were accepted before the store was closed are carried out and acknowledged."""
    other.execute("BEGIN IMMEDIATE")
    waiting = [asyncio.create_task(store.write_bulk(put(f"{n}"))) for n in range(3)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    other.execute("ROLLBACK")
    await asyncio.gather(*waiting, closing)
    assert stored(path) == ["0", "1", "2"]
    with pytest.raises(EngineClosed):
        await store.write(put("late"))


async def test_a_write_that_gave_way_to_a_close_is_refused(store: SqliteStore) -> None:
    """A write that lets others run first and finds the store closed says so."""
    store._last_turn = 0
    writing = asyncio.create_task(store.write(put("late")))
    reading = asyncio.create_task(store.read(log_head))
    await asyncio.sleep(0)
    await store.close()
    for task in (writing, reading):
        with pytest.raises(EngineClosed):
            await task


async def test_a_blocking_write_from_a_thread(store: SqliteStore, path: Path) -> None:
    """A thread can write while the event loop stands still."""
    thread = threading.Thread(target=lambda: store.run_blocking(put_quietly))
    thread.start()
    thread.join()
    assert stored(path) == ["quiet"]


def put_quietly() -> Script[None]:
    """A row without an event."""
    yield from run(
        "worktree_put", path="quiet", project_id="p", fingerprint="", identity="p", now=1
    )


async def test_an_error_in_a_script_leaves_nothing(store: SqliteStore, path: Path) -> None:
    """What a script wrote before it failed is taken back, in the loop and in the worker."""

    def failing() -> Script[None]:
        yield from put("a")()
        raise ValueError("no")

    for write in (store.write, store.write_bulk, store.write_durable):
        with pytest.raises(ValueError, match="no"):
            await write(failing)
    assert stored(path) == []
    assert await store.read(log_head) == 0


async def test_a_second_store_keeps_the_locks_of_the_first(store: SqliteStore, path: Path) -> None:
    """Opening the file once more in one process does not drop the locks that are held on it.

    POSIX takes all locks of a process away when it closes any descriptor of the file; another
    process would then remove the log under our feet.
    """
    second = await SqliteStore.open(path, IdMaker())
    program = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], timeout=0)\n"
        "try: print(connection.execute('PRAGMA journal_mode = DELETE').fetchone()[0])\n"
        "except sqlite3.OperationalError as error: print(error)\n"
    )
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "database is locked"
    await second.close()


async def test_many_open_one_new_file_at_once(path: Path) -> None:
    """Stores that find no database at the same instant make one together."""
    stores = await asyncio.gather(*(SqliteStore.open(path, IdMaker()) for _ in range(8)))
    assert len({each.epoch for each in stores}) == 1
    await asyncio.gather(
        *(each.write(put(each.location + str(n))) for n, each in enumerate(stores))
    )
    assert await stores[0].read(log_head) == 8
    for each in stores:
        await each.close()


async def test_watching_survives_a_lock(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A moment in which the file cannot be looked at does not end the following of others."""
    looks = 0
    told = asyncio.Event()
    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorcode = sqlite3.SQLITE_BUSY_RECOVERY

    class Locked:
        def execute(self, sql: str) -> sqlite3.Cursor:
            nonlocal looks
            looks += 1
            if looks < 3:
                raise busy
            return real.execute(sql)

    real = store._inline
    monkeypatch.setattr(store, "_inline", Locked())
    store.follow(lambda events: None, told.set)
    store.watch()
    await asyncio.wait_for(told.wait(), PATIENCE)
    store.unwatch()
    assert looks >= 3
    monkeypatch.undo()


def test_a_file_that_cannot_be_opened_is_a_typed_error(tmp_path: Path) -> None:
    """SQLite's own error does not get out when a connection cannot be made at all."""
    with pytest.raises(StoreUnavailable):
        connect(tmp_path / "missing" / "kedge.db", wait=0)


async def test_events_are_told_in_the_order_of_the_log(store: SqliteStore) -> None:
    """However writes are carried out, those who follow hear their events once and in order."""
    heard: list[StoredEvent] = []
    store.follow(heard.extend, lambda: None)
    writes = [store.write, store.write_bulk, store.write_durable]
    await asyncio.gather(*(writes[n % 3](put(f"{n}")) for n in range(60)))
    assert [each.seq for each in heard] == list(range(1, 61))


async def test_the_row_of_a_foreign_writer_is_seen(
    store: SqliteStore, other: sqlite3.Connection
) -> None:
    """A read sees what another process has committed."""
    other.execute("INSERT INTO meta (key, value) VALUES ('x', 'y')")
    assert await store.read(lambda: row("meta_get", key="x")) == ("y",)


async def test_a_number_is_never_given_twice(store: SqliteStore) -> None:
    """When the newest event is deleted, the next one still gets a number of its own."""
    for key in "ab":
        await store.write(put(key))

    def drop() -> Script[None]:
        for seq in (1, 2):
            yield from run("event_drop", seq=seq)

    await store.write(drop)
    assert await store.read(log_head) == 2
    assert await store.read(lambda: events_after(0)) == []
    await store.write(put("c"))
    assert [event.seq for event in await store.read(lambda: events_after(0))] == [3]
    await store.write(lambda: run("event_drop", seq=3))
    assert await store.read(log_head) == 3


async def test_a_page_of_events_is_bounded_by_its_size(store: SqliteStore) -> None:
    """Large events come in smaller pages, to bound a reader's memory; none is left out."""
    for n in range(80):
        await store.write_bulk(put(f"{n:02}" + "x" * 200_000))
    pages = []
    seq = 0
    while page := await store.scan(functools.partial(events_after, seq)):
        pages.append(len(page))
        seq = page[-1].seq
    assert sum(pages) == 80
    assert max(pages) <= 64
