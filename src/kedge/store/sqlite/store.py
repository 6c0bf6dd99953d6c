"""The SQLite store: small work on the event loop's thread, everything that may wait on others.

A transaction on a local WAL file takes about 40 microseconds and waits for no disk, while passing
it to a thread and back costs twice that again. So a small transaction is tried where it is
requested, without waiting for any lock; if another process is writing, it goes to the worker
thread, which waits. See docs/decisions/001-inline-transactions.md.
"""

import asyncio
import functools
import logging
import math
import queue
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from kedge._async import to_the_end
from kedge.domain.errors import EngineClosed, KedgeError
from kedge.domain.events import frame_text
from kedge.domain.ids import IdMaker
from kedge.store.named_sql import load_queries
from kedge.store.port import OnCommit, OnForeignCommit, StoredEvent
from kedge.store.sqlite.checkpoints import Checkpoints
from kedge.store.sqlite.checkup import first_complaint
from kedge.store.sqlite.connection import connect, create_file, patiently
from kedge.store.sqlite.failures import damaged, is_busy, translated
from kedge.store.sqlite.file import OpenFile, refuse_network
from kedge.store.sqlite.log_watch import LogWatch
from kedge.store.sqlite.migrate import migrate
from kedge.store.transaction import Batch, Emit, Query, Rows, ScriptMaker, T, drive

_log = logging.getLogger(__name__)

_SCANNERS = 2
_COMMITS_PER_LOOK = 32
_LONGEST_TURN = 0.001
"""Seconds of inline work after which other tasks of the event loop get their turn."""

R = TypeVar("R")


class SqliteStore:
    """A `Store` in one SQLite file."""

    def __init__(self, path: Path, epoch: str, ids: IdMaker) -> None:
        self.epoch = epoch
        self.location = str(path)
        self.available_since = -math.inf
        self._path = path
        self._ids = ids
        self._queries = load_queries("sqlite")
        self._inline = connect(path, wait=0)
        # Not left to SQLite's own wait: its sleeps grow to 100 ms, and a long sleeper gets no turn.
        self._worker_connection = connect(path, wait=0)
        self._file = OpenFile(path)
        self._worker = ThreadPoolExecutor(1, "kedge-sqlite-writer")
        self._scanner = ThreadPoolExecutor(_SCANNERS, "kedge-sqlite-reader")
        self._scan_connections: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        self._waiting = 0
        self._commits = 0
        self._checkpoints = Checkpoints(path)
        self._last_turn = time.monotonic()
        self._closed = False
        self._on_commit: OnCommit = lambda events: None
        self._on_foreign_commit: OnForeignCommit = lambda: None
        self._watchers = 0
        self._watch: LogWatch | None = None
        self._seen_version: int | None = None
        self._complaint: str | None = None
        """What is wrong with the file, empty if nothing is; None if it was not checked yet."""

    @classmethod
    async def open(cls, path: Path, ids: IdMaker) -> "SqliteStore":
        """Open the file, creating or migrating it first if needed."""

        def prepare() -> "SqliteStore":
            # SQLite keeps its log beside the file itself, not beside a link to it.
            file = path.resolve()
            refuse_network(file.parent)
            create_file(file)
            return cls(file, migrate(file), ids)

        return await asyncio.to_thread(prepare)

    def check(self) -> None:
        self._file.check()

    async def read(self, script: ScriptMaker[T], /) -> T:
        await self._take_turns()
        self._check_open()
        try:
            return self._read_on(self._inline, script)
        except sqlite3.Error as error:
            if not is_busy(error):
                raise translated(error, self._path) from error
        return await self.scan(script)

    async def scan(self, script: ScriptMaker[T], /) -> T:
        self._check_open()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._scanner, self._scan, script)

    async def write(self, script: ScriptMaker[T], /) -> T:
        await self._take_turns()
        self._check_open()
        if self._waiting or self._checkpoints.presses:
            # In order of arrival: a stream of small writes would starve a large one.
            return await self.write_bulk(script)
        try:
            result, events = self._write_on(self._inline, script)
        except sqlite3.Error as error:
            if not is_busy(error):
                raise translated(error, self._path) from error
            return await self.write_bulk(script)
        self._look_after_log()
        self._on_commit(events)
        return result

    async def write_bulk(self, script: ScriptMaker[T], /) -> T:
        return await self._in_worker(script, "NORMAL")

    async def write_durable(self, script: ScriptMaker[T], /) -> T:
        return await self._in_worker(script, "FULL")

    def run_blocking(self, script: ScriptMaker[T], /) -> T:
        connection = self._connect()
        try:
            result, _ = patiently(lambda: self._write_on(connection, script), self._path)
            return result
        finally:
            connection.close()

    def follow(self, on_commit: OnCommit, on_foreign_commit: OnForeignCommit, /) -> None:
        self._on_commit, self._on_foreign_commit = on_commit, on_foreign_commit

    def watch(self) -> None:
        self._watchers += 1
        if self._watch is None:
            self._seen_version = None
            self._watch = LogWatch(Path(f"{self._path}-wal"), self._look_for_commits)

    def unwatch(self) -> None:
        self._watchers -= 1
        if self._watchers == 0:
            self._end_watch()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._end_watch()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._worker.shutdown()
        self._scanner.shutdown()
        self._checkpoints.close()
        while not self._scan_connections.empty():
            self._scan_connections.get().close()
        self._worker_connection.close()
        self._inline.close()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosed

    async def _take_turns(self) -> None:
        now = time.monotonic()
        if now - self._last_turn > _LONGEST_TURN:
            await asyncio.sleep(0)
            self._last_turn = time.monotonic()

    async def _in_worker(self, script: ScriptMaker[T], synchronous: str) -> T:
        self._check_open()
        self._waiting += 1
        loop = asyncio.get_running_loop()
        work = functools.partial(self._work, script, synchronous)
        working = loop.run_in_executor(self._worker, work)
        working.add_done_callback(self._worked)
        result, _ = await to_the_end(working)
        return result

    def _worked(self, working: "asyncio.Future[tuple[T, list[StoredEvent]]]") -> None:
        self._waiting -= 1
        if working.exception() is None:
            self._on_commit(working.result()[1])

    def _work(self, script: ScriptMaker[T], synchronous: str) -> tuple[T, list[StoredEvent]]:
        connection = self._worker_connection

        self._checkpoints.let_pass()

        def work() -> tuple[T, list[StoredEvent]]:
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            return self._write_on(connection, script)

        result = patiently(work, self._path)
        self._checkpoints.look()
        return result

    def _scan(self, script: ScriptMaker[T]) -> T:
        connection = self._scan_connection()
        try:
            return patiently(lambda: self._read_on(connection, script), self._path)
        finally:
            self._scan_connections.put(connection)

    def _scan_connection(self) -> sqlite3.Connection:
        try:
            return self._scan_connections.get_nowait()
        except queue.Empty:
            connection = self._connect()
            connection.execute("PRAGMA query_only = ON")
            return connection

    def _connect(self) -> sqlite3.Connection:
        self._file.check()
        connection = connect(self._path, wait=1.0)
        try:
            self._file.check()
        except BaseException:
            # A connection to another file, which replaced ours at this moment.
            connection.close()
            raise
        return connection

    def _read_on(self, connection: sqlite3.Connection, script: ScriptMaker[T]) -> T:
        self._file.look()
        return self._in_transaction(
            connection, "BEGIN", lambda: drive(script(), self._executor(connection))[0]
        )

    def _write_on(
        self, connection: sqlite3.Connection, script: ScriptMaker[T]
    ) -> tuple[T, list[StoredEvent]]:
        def work() -> tuple[T, list[StoredEvent]]:
            result, events = drive(script(), self._executor(connection))
            stored = self._append(connection, events)
            self._file.look()
            self._file.check_file()
            return result, stored

        return self._in_transaction(connection, "BEGIN IMMEDIATE", work)

    def _in_transaction(
        self, connection: sqlite3.Connection, begin: str, work: Callable[[], R]
    ) -> R:
        connection.execute(begin)
        try:
            result = work()
            connection.execute("COMMIT")
            return result
        except BaseException as error:
            # SQLite has rolled back by itself after some errors.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, Exception) and not isinstance(error, KedgeError | sqlite3.Error):
                self._check_for_damage(connection, error)
            raise

    def _check_for_damage(self, connection: sqlite3.Connection, error: Exception) -> None:
        """Raise `StoreCorrupt` if an error comes from rows that are not what kedge has written.

        SQLite notices damage only when it meets it in its own structures. The file is read whole
        for this, so it is done once.
        """
        if self._complaint is None:
            self._complaint = first_complaint(connection) or ""
        if self._complaint:
            raise damaged(self._path, self._complaint) from error

    def _executor(self, connection: sqlite3.Connection) -> Callable[[Query | Batch], Rows]:
        queries = self._queries

        def execute(step: Query | Batch) -> Rows:
            if type(step) is Query:
                cursor = connection.execute(queries[step.name], step.args)
                return ((cursor.rowcount,),) if cursor.description is None else cursor.fetchall()
            connection.executemany(queries[step.name], step.args)
            return ()

        return execute

    def _append(self, connection: sqlite3.Connection, events: Sequence[Emit]) -> list[StoredEvent]:
        stored = []
        for event in events:
            if event.after_progress:
                entity = {"session_id": event.session_id, "entity": event.entity}
                connection.execute(self._queries["event_drop_progress"], entity)
            home = (event.session_id, event.project_id, event.directory)
            kind = event.type
            payload = frame_text(self._ids.event(), kind, event.properties)
            cursor = connection.execute(
                self._queries["event_append"], (kind, event.entity, *home, payload, event.progress)
            )
            assert cursor.lastrowid is not None
            stored.append(StoredEvent(cursor.lastrowid, kind, *home, payload))
        return stored

    def _look_after_log(self) -> None:
        self._commits += 1
        if self._commits >= _COMMITS_PER_LOOK:
            self._commits = 0
            self._checkpoints.look()

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _look_for_commits(self) -> bool:
        """Check whether another process has committed since the last look; return whether it
        has."""
        try:
            (version,) = self._inline.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error as error:
            # Another process repairs the log after a crash, or it is worse: the next look tells.
            if not is_busy(error):
                _log.warning("cannot look for commits in %s: %s", self._path, error)
            return False
        if version == self._seen_version:
            return False
        self._seen_version = version
        self._on_foreign_commit()
        return True
