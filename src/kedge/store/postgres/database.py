"""The connections of one process: hands them to transactions, and retries lost ones.

If the server is down, all callers wait for it together, until the outage has lasted too long.
"""

import asyncio
import logging
import math
import random
import secrets
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from kedge.domain.errors import EngineClosed, StoreError
from kedge.domain.ids import IdMaker
from kedge.store.port import OnCommit
from kedge.store.postgres.connection import Address, AsyncConnection, Connection, configure
from kedge.store.postgres.failures import (
    CommitLost,
    is_lost_connection,
    is_lost_race,
    outcome_unknown,
    pool_exhausted,
    translated,
)
from kedge.store.postgres.migrate import migrate
from kedge.store.postgres.transactions import (
    TransactionWriter,
    commit,
    drop_old_tokens,
    read_on,
    run_on,
    scan_on,
    was_committed,
    write_on,
)
from kedge.store.transaction import Emit, ScriptMaker, T

_log = logging.getLogger(__name__)
_CONNECTIONS = 10
_SCANS = 3
_WRITES = 6
"""Long reads, and writes that wait for a lock, leave connections for everything else."""
_ATTEMPTS = 6
_LOOK = 1.0
"""Seconds without a connection after which a caller checks whether the server is there at all."""
_LOOK_AGAIN = 0.1
"""Seconds between two checks of a server that is down."""
_BUSY = 60.0
"""Seconds to wait for a connection while the server is there."""
_UP_FOR = b"SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8"

R = TypeVar("R")


class Database:
    """A migrated database and the pool of connections to it."""

    def __init__(self, address: Address, epoch: str, ids: IdMaker, patience: float) -> None:
        self.address = address
        self.epoch = epoch
        self.available_since = -math.inf
        """When the server was last found to be back, on the monotonic clock."""
        self._ids = ids
        self._patience = patience
        self._pool: AsyncConnectionPool[AsyncConnection] = AsyncConnectionPool(
            address.conninfo,
            kwargs={"autocommit": True},
            configure=self._configure,
            min_size=1,
            max_size=_CONNECTIONS,
            # Its attempts get ever rarer: give up soon, and the next caller starts afresh.
            reconnect_timeout=1.0,
            open=False,
            name="kedge",
        )
        self._scans = asyncio.Semaphore(_SCANS)
        self._writers: asyncio.LifoQueue[TransactionWriter] = asyncio.LifoQueue()
        process = secrets.token_hex(8)
        for n in reversed(range(_WRITES)):
            self._writers.put_nowait(TransactionWriter(f"{process}-{n}"))
        self._in_order = asyncio.Lock()
        self._away_since: float | None = None
        self._looking: asyncio.Task[None] | None = None
        self._blocking: Connection | None = None
        self._blocking_lock = threading.Lock()

    @classmethod
    async def open(cls, url: str, ids: IdMaker, patience: float) -> "Database":
        """Connect, creating or migrating the tables first if needed.

        From then on, an outage of the server is waited out for up to `patience` seconds.
        """
        address = Address.parse(url)
        database = cls(address, await migrate(address), ids, patience)
        await database._pool.open()
        try:
            await database._tidy()
        except BaseException:
            await database.close()
            raise
        return database

    async def _tidy(self) -> None:
        async def attempt() -> None:
            async with self.connection() as connection:
                await drop_old_tokens(connection)

        try:
            await self._persist(attempt)
        except StoreError as error:
            # A user that may only read cannot remove them; another one will.
            _log.info("old tokens of commits are left: %s", error)

    async def read(self, script: ScriptMaker[T]) -> T:
        async def attempt() -> T:
            async with self.connection() as connection:
                return await read_on(connection, script)

        return await self._persist(attempt)

    async def scan(self, script: ScriptMaker[T]) -> T:
        async def attempt() -> T:
            async with self._scans, self.connection() as connection:
                return await scan_on(connection, script)

        return await self._persist(attempt)

    async def write(
        self,
        script: ScriptMaker[T],
        on_commit: OnCommit,
        on_found: Callable[[], None],
        *,
        durable: bool,
    ) -> T:
        """Run a script as one transaction; the callbacks get its events.

        `on_found` is called if the commit was lost and then found to have been carried out: later
        commits may have been announced by then.
        """

        async def attempt() -> T:
            writer = await self._writers.get()

            async def finish(connection: AsyncConnection, events: Sequence[Emit]) -> None:
                try:
                    await self._commit(connection, events, writer, on_commit)
                except CommitLost as lost:
                    if not await self._was_committed(writer):
                        raise lost.error from None
                    if events:
                        on_found()

            try:
                async with self.connection() as connection:
                    return await write_on(connection, script, durable=durable, finish=finish)
            finally:
                self._writers.put_nowait(writer)

        return await self._persist(attempt)

    def run_blocking(self, script: ScriptMaker[T]) -> T:
        with self._blocking_lock:
            for attempt in range(_ATTEMPTS):
                try:
                    return run_on(self._blocking_connection(), script)
                except psycopg.Error as error:
                    if attempt + 1 == _ATTEMPTS or not _may_retry(error):
                        raise translated(error, self.address.location) from error
                    # A broken connection is opened again.
                time.sleep(_pause(attempt))
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        await self._pool.close()
        if self._blocking is not None:
            await asyncio.to_thread(self._blocking.close)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """A connection while the block runs; without a server, an error that says why."""
        task = asyncio.current_task()
        cancellations = task.cancelling() if task else 0
        try:
            connection = await self._take()
        except PoolClosed as error:
            raise EngineClosed from error
        try:
            if task and task.cancelling() > cancellations:
                # `wait_for` of Python 3.11, which the pool uses, loses a cancellation that comes at
                # the same moment as the connection.
                raise asyncio.CancelledError
            yield connection
        finally:
            await self._pool.putconn(connection)

    async def _take(self) -> AsyncConnection:
        deadline = time.monotonic() + _BUSY
        while True:
            try:
                return await self._pool.getconn(_LOOK)
            except PoolTimeout as error:
                await self._await_server()
                if time.monotonic() > deadline:
                    raise pool_exhausted(self.address.location) from error

    async def _commit(
        self,
        connection: AsyncConnection,
        events: Sequence[Emit],
        writer: TransactionWriter,
        on_commit: OnCommit,
    ) -> None:
        if not events:
            await commit(connection, events, self._ids, writer)
            return
        # One at a time, so that commits are announced in order. Waiting tasks hold row locks, so
        # the task inside must wait for no lock but the last of all, `event_head`.
        async with self._in_order:
            on_commit(await commit(connection, events, self._ids, writer))

    async def _was_committed(self, writer: TransactionWriter) -> bool:
        async def attempt() -> bool:
            async with self.connection() as connection:
                return await was_committed(connection, writer)

        try:
            return await self._persist(attempt)
        except StoreError as error:
            raise outcome_unknown(self.address.location) from error

    async def _persist(self, attempt: Callable[[], Awaitable[R]]) -> R:
        for n in range(_ATTEMPTS):
            try:
                result = await attempt()
            except psycopg.Error as error:
                if n + 1 == _ATTEMPTS or not _may_retry(error):
                    raise translated(error, self.address.location) from error
                if is_lost_connection(error):
                    await self._await_server()
                    # The idle connections broke with it; one by one they would use up the attempts.
                    await self._pool.drain()
            else:
                self._is_back()
                return result
            await asyncio.sleep(_pause(n))
        raise AssertionError("the last attempt returns or raises")

    async def _await_server(self) -> None:
        """Return when the server accepts connections; raise its error if it is down for too long.
        The pool does not say why it has no connection."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look_for_server())
            self._looking.add_done_callback(self._looked)
        looking = self._looking  # Shared by all callers.
        try:
            await asyncio.shield(looking)
        except asyncio.CancelledError:
            if looking.cancelled():
                raise EngineClosed from None
            raise

    def _looked(self, looking: asyncio.Task[None]) -> None:
        self._looking = None
        if not looking.cancelled():
            looking.exception()  # Mark as retrieved: there may be no waiting caller.

    async def _look_for_server(self) -> None:
        began = time.monotonic()
        while True:
            try:
                await (await self.address.connect()).close()
            except psycopg.Error as error:
                now = time.monotonic()
                if self._away_since is None:
                    self._away_since = now
                if now - min(began, self._away_since) >= self._patience:
                    raise translated(error, self.address.location) from error
            else:
                self._is_back()
                return
            await asyncio.sleep(_LOOK_AGAIN)

    def _is_back(self) -> None:
        if self._away_since is not None:
            self._away_since = None
            self.available_since = time.monotonic()

    async def _configure(self, connection: AsyncConnection) -> None:
        await configure(connection)
        found = await (await connection.execute(_UP_FOR)).fetchone()
        assert found is not None
        # A restart of the server that this process slept through was an outage for others.
        self.available_since = max(self.available_since, time.monotonic() - found[0])

    def _blocking_connection(self) -> Connection:
        if self._blocking is None or self._blocking.closed:
            self._blocking = self.address.connect_blocking()
        return self._blocking


def _may_retry(error: psycopg.Error) -> bool:
    return is_lost_race(error) or is_lost_connection(error)


def _pause(attempt: int) -> float:
    return random.uniform(0.5, 1.0) * (5 << attempt) / 1000
