"""PostgreSQL goes away and comes back: what callers are told, and that the store recovers."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import LiteralString

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from kedge.domain.errors import EngineClosed, StoreUnavailable
from kedge.domain.ids import IdMaker
from kedge.domain.sessions import SessionInfo
from kedge.store.postgres.connection import Address
from kedge.store.postgres.transactions import TransactionWriter, commit, was_committed
from kedge.store.queries.event_log import log_head
from kedge.store.queries.sessions import create_session
from kedge.store.transaction import Script, row, run
from kedge.testing.store.scene import WORKTREE, Scene
from tests.store.test_postgres import blocked, connected, opened
from tests.support.timeouts import PATIENCE

_END_ALL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@pytest.fixture
def deaf_to_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at the log's head, so that what is heard came by notification."""
    monkeypatch.setattr("kedge.store.postgres.notify._POLL", 3600.0)


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
    monkeypatch.setattr("kedge.store.postgres.notify._POLL", 0.01)
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


class Line:
    """A loopback port that leads to the server and can be cut."""

    def __init__(self, target: tuple[str, int] | str) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._ends: list[asyncio.StreamWriter] = []
        self._answers = asyncio.Event()
        self._turns_away = False
        self.turned_away = asyncio.Event()
        self._copying: set[asyncio.Task[None]] = set()
        # Takes no connections: it keeps others off the port while the line is cut.
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holder.bind(("127.0.0.1", 0))
        self.port: int = self._holder.getsockname()[1]

    async def join(self, *, turns_away: bool = False) -> None:
        """Let connections through, or end each at once, as a server that starts does."""
        self._turns_away = turns_away
        self._answers.set()
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
        for task in self._copying:
            task.cancel()
        if self._copying:
            await asyncio.wait(self._copying)
        self._ends.clear()

    def withhold(self) -> None:
        """Carry what is asked and, until the line is joined again, no more answers."""
        self._answers.clear()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._turns_away:
            self.turned_away.set()
            writer.transport.abort()
            return
        if isinstance(self._target, str):
            there, here = await asyncio.open_unix_connection(self._target)
        else:
            there, here = await asyncio.open_connection(*self._target)
        self._ends += [writer, here]
        asking = self._copy(reader, here, None)
        for copying in (asking, self._copy(there, writer, self._answers)):
            task = asyncio.ensure_future(copying)
            self._copying.add(task)
            task.add_done_callback(self._copying.discard)

    async def _copy(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        gate: asyncio.Event | None,
    ) -> None:
        try:
            while data := await source.read(65536):
                if gate is not None:
                    await gate.wait()
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


class Writing:
    """Stores a session, and counts how often that was begun."""

    def __init__(self, scene: Scene, before_commit: Callable[[], None] = lambda: None) -> None:
        self._scene = scene
        self._before_commit = before_commit
        self.info = scene.session()
        self.attempts = 0

    def script(self) -> Script[SessionInfo]:
        self.attempts += 1
        stored = yield from create_session(self.info, WORKTREE)
        if self.attempts == 1:
            self._before_commit()
        return stored

    async def write(self) -> SessionInfo:
        """Store it."""
        return await self._scene.store.write(self.script)


async def until_stored(url: str, query: LiteralString) -> None:
    """Wait until a commit is visible to others."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while await (await connection.execute(query)).fetchone() is None:
            pass


async def test_a_commit_that_was_lost_is_repeated(postgres_url: str) -> None:
    """A connection that ends before the server has committed costs no more than another attempt."""
    async with opened(postgres_url) as scene, AsyncExitStack() as stack:
        other = await connected(postgres_url, stack)
        writing = Writing(scene)
        async with other.transaction():
            await other.execute("UPDATE event_head SET seq = seq")
            written = asyncio.ensure_future(writing.write())
            await other.execute("SELECT pg_terminate_backend(%s)", (await blocked(postgres_url),))
        assert (await written).id == writing.info.id
        assert writing.attempts == 2
        assert [event.seq for event in await scene.events()] == [1]


async def test_a_commit_whose_answer_was_lost_is_not_repeated(postgres_url: str) -> None:
    """What was stored is found, its result given, and its events are heard once."""
    async with line_to(postgres_url) as (line, url), opened(url) as scene:
        told: list[int] = []
        heard = Heard()
        scene.store.follow(lambda events: told.extend(each.seq for each in events), heard)
        writing = Writing(scene, line.withhold)
        written = asyncio.ensure_future(writing.write())
        await until_stored(postgres_url, "SELECT 1 FROM event")
        await line.cut()
        await line.join()
        assert (await written).id == writing.info.id
        assert writing.attempts == 1
        assert [event.seq for event in await scene.events()] == [1]
        assert (told, heard.count) == ([], 1)


async def test_a_commit_without_events_is_looked_up_too(postgres_url: str) -> None:
    """What only changed a row is stored once, although its answer did not come."""
    attempts: list[int] = []

    def script() -> Script[str]:
        attempts.append(1)
        yield from run("meta_set", key="attempt", value=str(len(attempts)))
        line.withhold()
        return "done"

    async with line_to(postgres_url) as (line, url), opened(url) as scene:
        written = asyncio.ensure_future(scene.store.write(script))
        await until_stored(postgres_url, "SELECT 1 FROM meta WHERE key = 'attempt'")
        await line.cut()
        await line.join()
        assert await written == "done"
        assert attempts == [1]


async def test_a_commit_of_a_thread_is_repeated(postgres_url: str) -> None:
    """`run_blocking` makes nothing of a lost answer: what it is used for may be done twice."""
    attempts: list[int] = []

    def script() -> Script[str]:
        attempts.append(1)
        yield from run("meta_set", key="attempt", value=str(len(attempts)))
        if attempts == [1]:
            line.withhold()
        return "done"

    async with line_to(postgres_url) as (line, url), opened(url) as scene:
        written = asyncio.create_task(asyncio.to_thread(scene.store.run_blocking, script))
        await until_stored(postgres_url, "SELECT 1 FROM meta WHERE key = 'attempt'")
        await line.cut()
        await line.join()
        assert await written == "done"
        assert attempts == [1, 1]


async def test_a_commit_that_is_still_under_way_does_not_come_later(postgres_url: str) -> None:
    """Who lost the connection to a transaction that waits ends it before it is repeated."""
    async with (
        line_to(postgres_url) as (line, url),
        opened(url) as scene,
        AsyncExitStack() as stack,
    ):
        other = await connected(postgres_url, stack)
        writing = Writing(scene)
        async with other.transaction():
            await other.execute("UPDATE event_head SET seq = seq")
            written = asyncio.ensure_future(writing.write())
            first = await blocked(postgres_url)
            await line.cut()
            await line.join()
            repeated = asyncio.ensure_future(blocked(postgres_url, besides=first))
            await asyncio.wait({written, repeated}, return_when=asyncio.FIRST_COMPLETED)
            assert not written.done()
        assert (await written).id == writing.info.id
        assert writing.attempts == 2
        assert [event.seq for event in await scene.events()] == [1]


async def test_what_cannot_be_found_out_in_time_is_said(postgres_url: str) -> None:
    """Whoever lost a commit and then the server is told that nobody knows what came of it."""
    async with line_to(postgres_url) as (line, url), opened(url, patience=0) as scene:
        written = asyncio.ensure_future(Writing(scene, line.withhold).write())
        await until_stored(postgres_url, "SELECT 1 FROM event")
        await line.cut()
        with pytest.raises(StoreUnavailable, match="not known"):
            await written
        await line.join()
        await scene.add_session()
        assert [event.seq for event in await scene.events()] == [1, 2]


async def test_a_commit_that_is_missed_never_comes(postgres_url: str) -> None:
    """However often one looks, what was not committed is not there, and is refused when it comes
    late."""
    async with opened(postgres_url):
        connection = await Address.parse(postgres_url).connect()
    async with connection:
        writer = TransactionWriter("some process-0", number=2)
        assert [await was_committed(connection, writer) for _ in range(2)] == [False, False]
        await connection.execute("BEGIN")
        await connection.execute("UPDATE meta SET value = 'late' WHERE key = 'epoch'")
        late = TransactionWriter(writer.id)
        with pytest.raises(psycopg.errors.NotNullViolation):
            await commit(connection, [], IdMaker(), late)
        assert late == writer
        await connection.execute("ROLLBACK")
        await connection.execute("BEGIN")
        await connection.execute("UPDATE meta SET value = 'next' WHERE key = 'epoch'")
        await commit(connection, [], IdMaker(), writer)
        assert await was_committed(connection, writer)


async def test_tokens_of_processes_that_are_gone_are_dropped(postgres_url: str) -> None:
    """A week after it was written last, a row tells nobody anything any more."""
    async with opened(postgres_url) as scene, AsyncExitStack() as stack:
        await scene.add_session()
        other = await connected(postgres_url, stack)
        await other.execute(
            "INSERT INTO commit_token SELECT 'old', 2, now() - interval '8 days'"
            " UNION SELECT 'young', 2, now() - interval '6 days'"
        )
        async with opened(postgres_url):
            found = await other.execute("SELECT writer, number FROM commit_token ORDER BY number")
            (_, mine), (young, _) = sorted(await found.fetchall())
            assert (mine, young) == (2, "young")


async def test_whoever_waits_for_the_server_hears_that_the_store_is_closed(
    postgres_url: str,
) -> None:
    """Closing does not wait for a server that is away, and leaves nobody waiting."""
    async with line_to(postgres_url) as (line, url), opened(url) as scene:
        await line.cut()
        await line.join(turns_away=True)
        reading = asyncio.ensure_future(scene.read(log_head))
        async with asyncio.timeout(PATIENCE):
            await line.turned_away.wait()
            await scene.store.close()
            with pytest.raises(EngineClosed):
                await reading


async def test_an_outage_is_waited_out(postgres_url: str) -> None:
    """Reads and writes that find no server wait for it, and do what they were asked."""
    async with line_to(postgres_url) as (line, url), opened(url, patience=PATIENCE) as scene:
        await scene.add_session()
        before = scene.store.available_since
        await line.cut()
        await line.join(turns_away=True)
        reading = asyncio.ensure_future(scene.read(log_head))
        writing = asyncio.ensure_future(scene.add_session())
        async with asyncio.timeout(PATIENCE):
            await line.turned_away.wait()
        await line.cut()
        await line.join()
        await writing
        assert await reading in (1, 2)
        assert scene.store.available_since > before


async def test_a_lost_server_is_said_and_its_return_is_noticed(postgres_url: str) -> None:
    """While the server is away everything fails with a typed error; when it is back it works."""
    async with line_to(postgres_url) as (line, url), opened(url, patience=0) as scene:
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
