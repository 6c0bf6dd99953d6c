"""The PostgreSQL store: transactions on a pool of connections, and news from other processes on one of its own.

A transaction runs in a task of its own, so that a caller who is cancelled neither breaks a connection nor hides a commit.
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from kedge.domain.errors import EngineClosed, StoreUnavailable
from kedge.domain.ids import IdMaker
from kedge.store.port import OnCommit, OnForeignCommit
from kedge.store.script import ScriptMaker, T

if TYPE_CHECKING:
    from kedge.store.postgres.database import Database
    from kedge.store.postgres.following import Listener

R = TypeVar("R")


class PostgresStore:
    """A `Store` in one PostgreSQL database, or one schema of it."""

    def __init__(self, database: "Database") -> None:
        from kedge.store.postgres.following import Caller

        self.epoch = database.epoch
        self.location = database.address.location
        self._database = database
        self._caller = Caller(database)
        self._listener: Listener | None = None
        self._watchers = 0
        self._writing: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._on_commit: OnCommit = lambda events: None
        self._on_foreign_commit: OnForeignCommit = lambda: None

    @classmethod
    async def open(cls, url: str, ids: IdMaker) -> "PostgresStore":
        """Open the database at a `postgresql://` URL, creating or migrating its tables first if need be."""
        try:
            from kedge.store.postgres.database import Database
        except ImportError as error:
            raise StoreUnavailable(
                f"PostgreSQL needs packages that are not installed ({error}); run pip install 'kedge[postgres]'"
            ) from error
        return cls(await Database.open(url, ids))

    async def read(self, script: ScriptMaker[T], /) -> T:
        self._check_open()
        return await self._database.read(script)

    async def scan(self, script: ScriptMaker[T], /) -> T:
        self._check_open()
        return await self._database.scan(script)

    async def write(self, script: ScriptMaker[T], /) -> T:
        return await self._to_the_end(self._write(script, durable=False))

    async def write_bulk(self, script: ScriptMaker[T], /) -> T:
        return await self._to_the_end(self._write(script, durable=False))

    async def write_durable(self, script: ScriptMaker[T], /) -> T:
        return await self._to_the_end(self._write(script, durable=True))

    def run_blocking(self, script: ScriptMaker[T], /) -> T:
        self._check_open()
        return self._database.run_blocking(script)

    def follow(self, on_commit: OnCommit, on_foreign_commit: OnForeignCommit, /) -> None:
        self._on_commit, self._on_foreign_commit = on_commit, on_foreign_commit

    def watch(self) -> None:
        from kedge.store.postgres.following import Listener

        self._watchers += 1
        if self._listener is None:
            heard = lambda: self._on_foreign_commit()  # noqa: E731
            self._listener = Listener(self._database, self._caller, heard)

    def unwatch(self) -> None:
        self._watchers -= 1
        if self._watchers == 0 and self._listener is not None:
            self._listener.stop()
            self._listener = None

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._writing:
            await asyncio.wait(self._writing)
        if self._listener is not None:
            self._listener.stop()
            await self._listener.stopped()
        await self._caller.finish()
        await self._database.close()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosed

    async def _write(self, script: ScriptMaker[T], *, durable: bool) -> T:
        result, events = await self._database.write(script, durable=durable)
        if events:
            self._on_commit(events)
            self._caller.call()
        return result

    async def _to_the_end(self, work: Coroutine[Any, Any, R]) -> R:
        if self._closed:
            work.close()
            raise EngineClosed
        task = asyncio.get_running_loop().create_task(work)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return await asyncio.shield(task)
