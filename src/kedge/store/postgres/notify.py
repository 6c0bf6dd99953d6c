"""Notifies other processes of commits and listens for theirs."""

import asyncio
import logging
from collections.abc import Callable

import psycopg
from psycopg import sql

from kedge.domain.errors import KedgeError
from kedge.store.postgres.database import Database
from kedge.store.transaction import row

_log = logging.getLogger(__name__)

_POLL = 2.0
_BETWEEN_CALLS = 0.010
"""Seconds between two notifications: each takes a lock that all of the server's databases share."""
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0
_CANCEL_AGAIN = 1.0


class Caller:
    """Notifies the other processes after commits, at most once in ten milliseconds."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._statement = sql.SQL("NOTIFY {}").format(sql.Identifier(channel(database)))
        self._calling: asyncio.Task[None] | None = None
        self._again = False
        self.pid = 0
        """The server process that sent the last notification."""

    def call(self) -> None:
        """Note that something was committed."""
        self._again = True
        if self._calling is None:
            self._calling = asyncio.get_running_loop().create_task(self._call())

    async def finish(self) -> None:
        """Send the notification that is due, if there is one."""
        if self._calling is not None:
            await self._calling

    async def _call(self) -> None:
        try:
            while self._again:
                self._again = False
                await self._notify()
                await asyncio.sleep(_BETWEEN_CALLS)
        finally:
            self._calling = None

    async def _notify(self) -> None:
        try:
            async with self._database.connection() as connection:
                self.pid = connection.info.backend_pid
                await connection.execute(self._statement)
        except (psycopg.Error, KedgeError) as error:
            # The others look by themselves every two seconds.
            _log.warning("could not notify other processes: %s", error)


class CommitListener:
    """Notices the commits of other processes, by notification and by polling the log's head."""

    def __init__(self, database: Database, caller: Caller, heard: Callable[[], None]) -> None:
        self._database = database
        self._caller = caller
        self._heard = heard
        loop = asyncio.get_running_loop()
        self._tasks = (loop.create_task(self._listen()), loop.create_task(self._poll()))

    async def stop(self) -> None:
        """Stop listening, and close the connection."""
        pending = set(self._tasks)
        while pending:
            for task in pending:
                task.cancel()
            # Repeated if needed: connecting can lose a cancellation, as the pool can.
            _, pending = await asyncio.wait(pending, timeout=_CANCEL_AGAIN)

    async def _listen(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                async with await self._database.address.connect() as connection:
                    pause = _FIRST_PAUSE
                    await self._hear(connection)
            except psycopg.Error as error:
                _log.warning("not listening to %s: %s", self._database.address.location, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _hear(self, connection: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        statement = sql.SQL("LISTEN {}").format(sql.Identifier(channel(self._database)))
        await connection.execute(statement)
        # Commits before this moment were not notified.
        self._heard()
        async for call in connection.notifies():
            if call.pid != self._caller.pid:
                self._heard()

    async def _poll(self) -> None:
        seen: int | None = None
        while True:
            await asyncio.sleep(_POLL)
            try:
                head = await self._database.read(lambda: row("event_head"))
            except KedgeError as error:
                _log.warning("could not look for commits of other processes: %s", error)
                continue
            if head is not None and head[0] != seen:
                seen = head[0]
                self._heard()


def channel(database: Database) -> str:
    """The channel for the processes of this database; several databases may share a server."""
    return f"kedge_{database.epoch}"
