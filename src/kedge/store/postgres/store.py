"""The PostgreSQL store: transactions on a pool of connections, notifications on a connection of its
own.

A transaction that writes runs in a task of its own, so that a cancelled caller neither breaks a
connection nor hides a commit.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kedge._async import to_the_end
from kedge.domain.errors import EngineClosed, StoreUnavailable
from kedge.domain.ids import IdMaker
from kedge.store.port import OnCommit, OnForeignCommit, StoredEvent
from kedge.store.transaction import ScriptMaker, T

if TYPE_CHECKING:
    from kedge.store.postgres.database import Database
    from kedge.store.postgres.notify import CommitListener

R = TypeVar("R")


class PostgresStore:
    """A `Store` in one PostgreSQL database, or one schema of it."""

    def __init__(self, database: "Database") -> None:
        from kedge.store.postgres.notify import Caller

        self.epoch = database.epoch
        self.location = database.address.location
        self._database = database
        self._caller = Caller(database)
        self._listener: CommitListener | None = None
        self._watchers = 0
        self._unfinished: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._on_commit: OnCommit = lambda events: None
        self._on_foreign_commit: OnForeignCommit = lambda: None

    @classmethod
    async def open(cls, url: str, ids: IdMaker, *, patience: float = 0.0) -> "PostgresStore":
        """Open the database at a URL, creating or migrating its tables first if needed.

        From then on, an outage of the server is waited out for up to `patience` seconds.
        """
        try:
            from kedge.store.postgres.database import Database
        except ImportError as error:
            raise StoreUnavailable(
                f"PostgreSQL needs packages that are not there ({error}); run"
                " pip install 'kedge[postgres]', or `make tools` in a checkout of kedge"
            ) from error
        return cls(await Database.open(url, ids, patience))

    @property
    def available_since(self) -> float:
        return self._database.available_since

    async def read(self, script: ScriptMaker[T], /) -> T:
        self._check_open()
        return await self._database.read(script)

    async def scan(self, script: ScriptMaker[T], /) -> T:
        self._check_open()
        return await self._database.scan(script)

    async def write(self, script: ScriptMaker[T], /) -> T:
        return await self._write(script, durable=False)

    async def write_bulk(self, script: ScriptMaker[T], /) -> T:
        return await self._write(script, durable=False)

    async def write_durable(self, script: ScriptMaker[T], /) -> T:
        return await self._write(script, durable=True)

    def run_blocking(self, script: ScriptMaker[T], /) -> T:
        self._check_open()
        return self._database.run_blocking(script)

    def check(self) -> None:
        # The tables of a server cannot be removed unnoticed.
        return

    def follow(self, on_commit: OnCommit, on_foreign_commit: OnForeignCommit, /) -> None:
        self._on_commit, self._on_foreign_commit = on_commit, on_foreign_commit

    def watch(self) -> None:
        from kedge.store.postgres.notify import CommitListener

        self._watchers += 1
        if self._listener is None:
            self._listener = CommitListener(self._database, self._caller, self._hear)

    def unwatch(self) -> None:
        self._watchers -= 1
        if self._watchers == 0:
            self._stop_listening()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._stop_listening()
        if self._unfinished:
            await asyncio.wait(self._unfinished)
        await self._caller.finish()
        await self._database.close()

    async def _write(self, script: ScriptMaker[T], *, durable: bool) -> T:
        work = self._database.write(script, self._tell, self._tell_found, durable=durable)
        return await self._to_the_end(work)

    def _hear(self) -> None:
        self._on_foreign_commit()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosed

    def _tell(self, events: Sequence[StoredEvent]) -> None:
        self._on_commit(events)
        self._caller.call()

    def _tell_found(self) -> None:
        # Reading the log gives it in the right order.
        self._on_foreign_commit()
        self._caller.call()

    async def _to_the_end(self, work: Coroutine[Any, Any, R]) -> R:
        if self._closed:
            work.close()
            raise EngineClosed
        return await to_the_end(self._begin(work))

    def _stop_listening(self) -> None:
        if self._listener is not None:
            _ = self._begin(self._listener.stop())
            self._listener = None

    def _begin(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        task = asyncio.get_running_loop().create_task(work)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return task
