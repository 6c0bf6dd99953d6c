"""PostgreSQL goes away and comes back: what callers are told, and that the store recovers."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from kedge.domain.errors import StoreUnavailable
from kedge.domain.sessions import SessionInfo
from kedge.store.script import Script, row, run
from kedge.store.verbs.eventlog import log_head
from kedge.store.verbs.sessions import create_session
from kedge.testing.store.scene import WORKTREE
from tests.store.test_postgres import blocked, connected, opened
from tests.support.patience import PATIENCE

_END_ALL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@pytest.fixture
def deaf_to_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at the log's head, so that what is heard came by notification."""
    monkeypatch.setattr("kedge.store.postgres.following._POLL", 3600.0)


async def end_all(url: str) -> None:
    """End every connection to the database, as a restart of the server does."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(_END_ALL)


class Heard:
    """Counts what a store is told about other processes."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Condition()

    def __call__(self) -> None:
        self.count += 1
        self._wake = asyncio.ensure_future(self._tell())

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def more_than(self, count: int) -> None:
        """Wait until it was told more often than `count` times."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: self.count > count)


@pytest.mark.usefixtures("deaf_to_polls")
async def test_a_commit_wakes_other_processes(postgres_url: str) -> None:
    """A notification tells the other store, and not the one that committed."""
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        mine, theirs = Heard(), Heard()
        one.store.follow(lambda events: None, mine)
        two.store.follow(lambda events: None, theirs)
        one.store.watch()
        two.store.watch()
        await mine.more_than(0)
        await theirs.more_than(0)
        await one.add_session()
        await theirs.more_than(1)
        await two.add_session()
        await mine.more_than(1)
        assert (mine.count, theirs.count) == (2, 2)


async def test_without_notifications_the_log_is_looked_at(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit of a process that could not notify is found by the poll."""
    monkeypatch.setattr("kedge.store.postgres.following._POLL", 0.01)
    async with opened(postgres_url) as scene, AsyncExitStack() as stack:
        heard = Heard()
        scene.store.follow(lambda events: None, heard)
        scene.store.watch()
        await heard.more_than(1)
        before = heard.count
        other = await connected(postgres_url, stack)
        await other.execute("UPDATE event_head SET seq = seq + 1")
        await heard.more_than(before)


@pytest.mark.usefixtures("deaf_to_polls")
async def test_lost_connections_are_opened_again(postgres_url: str) -> None:
    """After the server ended them all, reads and writes go on and the listener is told once."""
    async with opened(postgres_url) as scene:
        heard = Heard()
        scene.store.follow(lambda events: None, heard)
        scene.store.watch()
        await heard.more_than(0)
        info = scene.session()
        await asyncio.gather(*(scene.read(log_head) for _ in range(8)))
        await end_all(postgres_url)
        await scene.store.write(lambda: create_session(info, WORKTREE))
        await heard.more_than(1)
        await end_all(postgres_url)
        assert await scene.read(log_head) == 1
        await heard.more_than(2)


async def test_a_thread_opens_its_lost_connection_again(postgres_url: str) -> None:
    """`run_blocking` works before and after the server ended its connection."""

    def script() -> Script[object]:
        yield from run("meta_set", key="a", value="b")
        return (yield from row("meta_get", key="a"))

    async with opened(postgres_url) as scene:
        for _ in range(2):
            assert await asyncio.to_thread(scene.store.run_blocking, script) == ("b",)
            await end_all(postgres_url)


async def test_a_commit_of_unknown_outcome_is_not_repeated(postgres_url: str) -> None:
    """A connection lost after the commit was sent is an error that says so, not a repetition."""
    async with opened(postgres_url) as scene, AsyncExitStack() as stack:
        other = await connected(postgres_url, stack)
        info = scene.session()
        attempts: list[int] = []

        def script() -> Script[SessionInfo]:
            attempts.append(1)
            return create_session(info, WORKTREE)

        async with other.transaction():
            await other.execute("UPDATE event_head SET seq = seq")
            writing = asyncio.ensure_future(scene.store.write(script))
            pid = await blocked(postgres_url)
            await other.execute("SELECT pg_terminate_backend(%s)", (pid,))
            with pytest.raises(StoreUnavailable, match="not known"):
                await writing
        assert len(attempts) == 1
        assert await scene.events() == []


class Line:
    """A loopback port that leads to the server and can be cut."""

    def __init__(self, target: tuple[str, int] | str) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._ends: list[asyncio.StreamWriter] = []
        self._copying: set[asyncio.Task[None]] = set()
        # Takes no connections: it keeps others off the port while the line is cut.
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holder.bind(("127.0.0.1", 0))
        self.port: int = self._holder.getsockname()[1]

    async def join(self) -> None:
        """Let connections through."""
        self._server = await asyncio.start_server(
            self._carry, "127.0.0.1", self.port, reuse_address=True
        )

    async def close(self) -> None:
        """Cut the line for good."""
        await self.cut()
        self._holder.close()

    async def cut(self) -> None:
        """End what is connected, and refuse new connections."""
        assert self._server is not None
        self._server.close()
        for end in self._ends:
            end.transport.abort()
        if self._copying:
            await asyncio.wait(self._copying)
        self._ends.clear()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(self._target, str):
            there, here = await asyncio.open_unix_connection(self._target)
        else:
            there, here = await asyncio.open_connection(*self._target)
        self._ends += [writer, here]
        for source, target in ((reader, here), (there, writer)):
            task = asyncio.ensure_future(self._copy(source, target))
            self._copying.add(task)
            task.add_done_callback(self._copying.discard)

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                target.write(data)
        except ConnectionError:
            pass  # It was cut, which is what this is for.
        target.transport.abort()


@asynccontextmanager
async def line_to(url: str) -> AsyncIterator[tuple[Line, str]]:
    """A line to the server of a database, and the database's URL at the near end."""
    known = conninfo_to_dict(url)
    host, port = str(known.get("host")), int(known.get("port") or 5432)
    line = Line(f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port))
    await line.join()
    try:
        yield line, f"postgresql://{known['user']}@127.0.0.1:{line.port}/{known['dbname']}"
    finally:
        await line.close()


async def test_a_lost_server_is_said_and_its_return_is_noticed(postgres_url: str) -> None:
    """While the server is away everything fails with a typed error; when it is back it works."""
    async with line_to(postgres_url) as (line, url), opened(url) as scene:
        await scene.add_session()
        for _ in range(2):
            await line.cut()
            with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{line.port}"):
                await scene.read(log_head)
            with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{line.port}"):
                await scene.add_session()
            await line.join()
            head = await scene.read(log_head)
            await scene.add_session()
            assert await scene.read(log_head) == head + 1
