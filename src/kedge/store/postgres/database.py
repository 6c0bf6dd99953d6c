"""The connections of one process: hands them to transactions, and tries lost ones again."""

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from kedge.domain.errors import EngineClosed
from kedge.domain.ids import IdMaker
from kedge.store.port import OnCommit
from kedge.store.postgres.connecting import Address, AsyncConnection, Connection, configure
from kedge.store.postgres.failures import (
    is_lost_connection,
    is_lost_race,
    pool_exhausted,
    translated,
)
from kedge.store.postgres.migrating import migrate
from kedge.store.postgres.transactions import commit, read_on, run_on, scan_on, write_on
from kedge.store.script import Emit, ScriptMaker, T

_CONNECTIONS = 10
_SCANS = 3
_WRITES = 6
"""Long reads, and writes that wait for a lock, leave connections for everything else."""
_ATTEMPTS = 6
_LOOK = 1.0
"""Seconds without a connection after which a caller looks whether the server is there at all."""
_PATIENCE = 60.0

R = TypeVar("R")


class Database:
    """A migrated database and the pool of connections to it."""

    def __init__(self, address: Address, epoch: str, ids: IdMaker) -> None:
        self.address = address
        self.epoch = epoch
        self._ids = ids
        self._pool: AsyncConnectionPool[AsyncConnection] = AsyncConnectionPool(
            address.conninfo,
            kwargs={"autocommit": True},
            configure=configure,
            min_size=1,
            max_size=_CONNECTIONS,
            # Its attempts get rarer and rarer: give up soon, and the next caller starts afresh.
            reconnect_timeout=1.0,
            open=False,
            name="kedge",
        )
        self._scans = asyncio.Semaphore(_SCANS)
        self._writes = asyncio.Semaphore(_WRITES)
        self._in_order = asyncio.Lock()
        self._blocking: Connection | None = None
        self._blocking_lock = threading.Lock()

    @classmethod
    async def open(cls, url: str, ids: IdMaker) -> "Database":
        """Connect, creating or migrating the tables first if need be."""
        address = Address.parse(url)
        database = cls(address, await migrate(address), ids)
        await database._pool.open()
        return database

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

    async def write(self, script: ScriptMaker[T], on_commit: OnCommit, *, durable: bool) -> T:
        async def finish(connection: AsyncConnection, events: Sequence[Emit]) -> None:
            if not events:
                await commit(connection, events, self._ids, self.address.location)
                return
            # One at a time, so that commits are told in their order. Whoever waits here holds row
            # locks, so whoever is inside must not wait for one but the last of all, `event_head`.
            async with self._in_order:
                on_commit(await commit(connection, events, self._ids, self.address.location))

        async def attempt() -> T:
            async with self._writes, self.connection() as connection:
                return await write_on(connection, script, durable=durable, finish=finish)

        return await self._persist(attempt)

    def run_blocking(self, script: ScriptMaker[T]) -> T:
        with self._blocking_lock:
            for attempt in range(_ATTEMPTS):
                try:
                    return run_on(self._blocking_connection(), script, self.address.location)
                except psycopg.Error as error:
                    if attempt + 1 == _ATTEMPTS or not _may_retry(error):
                        raise translated(error, self.address.location) from error
                    # Nothing was committed. A connection that broke is opened again.
                time.sleep(_pause(attempt))
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        await self._pool.close()
        if self._blocking is not None:
            await asyncio.to_thread(self._blocking.close)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """A connection for the length of the block; without a server, an error that says why."""
        task = asyncio.current_task()
        cancellations = task.cancelling() if task else 0
        try:
            connection = await self._take()
        except PoolClosed as error:
            raise EngineClosed from error
        try:
            if task and task.cancelling() > cancellations:
                # `wait_for` of Python 3.11, which the pool uses, forgets a cancellation that comes
                # in the same moment as the connection.
                raise asyncio.CancelledError
            yield connection
        finally:
            await self._pool.putconn(connection)

    async def _take(self) -> AsyncConnection:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return await self._pool.getconn(_LOOK)
            except PoolTimeout as error:
                await self._check_server()
                if time.monotonic() > deadline:
                    raise pool_exhausted(self.address.location) from error

    async def _check_server(self) -> None:
        """Raise what is wrong with the server; the pool does not say why it has no connection."""
        try:
            await (await self.address.connect()).close()
        except psycopg.Error as error:
            raise translated(error, self.address.location) from error

    async def _persist(self, attempt: Callable[[], Awaitable[R]]) -> R:
        for n in range(_ATTEMPTS):
            try:
                return await attempt()
            except psycopg.Error as error:
                if n + 1 == _ATTEMPTS or not _may_retry(error):
                    raise translated(error, self.address.location) from error
                if is_lost_connection(error):
                    await self._check_server()
                    # The idle ones broke with it; one by one they would use up the attempts.
                    await self._pool.drain()
            await asyncio.sleep(_pause(n))
        raise AssertionError("the last attempt returns or raises")

    def _blocking_connection(self) -> Connection:
        if self._blocking is None or self._blocking.closed:
            self._blocking = self.address.connect_blocking()
        return self._blocking


def _may_retry(error: psycopg.Error) -> bool:
    return is_lost_race(error) or is_lost_connection(error)


def _pause(attempt: int) -> float:
    return random.uniform(0.5, 1.0) * (5 << attempt) / 1000
