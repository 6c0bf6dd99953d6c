"""What only the PostgreSQL adapter does: locks, order, migrations; the rest is conformance."""

import asyncio
import functools
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote

import msgspec
import psycopg
import pytest

from kedge.domain.errors import (
    InvalidInput,
    KedgeError,
    LeaseLost,
    MessageNotFound,
    SessionNotFound,
    StoreBusy,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
    TooLarge,
)
from kedge.domain.ids import IdMaker
from kedge.domain.sessions import SessionInfo
from kedge.store.named_sql import load_migrations, load_queries
from kedge.store.postgres import migrate
from kedge.store.postgres.connection import Address
from kedge.store.postgres.failures import translated
from kedge.store.postgres.store import PostgresStore
from kedge.store.queries.event_log import log_head
from kedge.store.queries.parts import put_part
from kedge.store.queries.pieces import add_pieces, drop_pieces
from kedge.store.queries.retention import stop_and_delete
from kedge.store.queries.search import index_events, search, search_sessions, words_of
from kedge.store.queries.session_lists import EVERYWHERE
from kedge.store.queries.sessions import (
    change_session,
    child_sessions,
    create_session,
    deleted_sessions,
    lock_session,
)
from kedge.store.transaction import Script, row, run
from kedge.testing.store.scene import WORKTREE, Scene
from tests.support.timeouts import PATIENCE

Raw = psycopg.AsyncConnection[tuple[Any, ...]]


@asynccontextmanager
async def opened(url: str, *, patience: float = PATIENCE) -> AsyncIterator[Scene]:
    """A store of its own on the database, which waits so long for a server that is away."""
    store = await PostgresStore.open(url, IdMaker(), patience=patience)
    try:
        yield Scene(store)
    finally:
        await store.close()


async def connected(url: str, stack: AsyncExitStack) -> Raw:
    """A connection that stands for somebody else's."""
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    return await stack.enter_async_context(connection)


async def blocked(url: str, *, besides: int = 0) -> int:
    """The server process that waits for a lock in this database, once there is one besides the
    one that is known."""
    query = (
        "SELECT pid FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> %s"
    )
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while True:
            found = await (await connection.execute(query, (besides,))).fetchone()
            if found is not None:
                return int(found[0])


async def test_both_dialects_answer_the_same_names() -> None:
    """Every verb finds its queries whatever the database is."""
    assert load_queries("postgres").keys() == load_queries("sqlite").keys()


async def test_numbers_are_given_in_commit_order(postgres_url: str) -> None:
    """A reader that polls while stores write never finds a number at or below one it has seen."""
    async with AsyncExitStack() as stack:
        scenes = [await stack.enter_async_context(opened(postgres_url)) for _ in range(3)]
        reader = await connected(postgres_url, stack)
        writing = asyncio.gather(*(scene.add_session() for scene in scenes for _ in range(30)))
        polled: list[int] = []
        while True:
            last = writing.done()
            highest = polled[-1] if polled else 0
            query = "SELECT seq FROM event WHERE seq > %s ORDER BY seq"
            polled += [seq for (seq,) in await (await reader.execute(query, (highest,))).fetchall()]
            if last:
                break
        await writing
        assert polled == list(range(1, 91))


async def test_a_deadlock_is_tried_again(postgres_url: str) -> None:
    """The transaction that PostgreSQL chose as the victim runs again from its start."""
    async with opened(postgres_url) as scene, AsyncExitStack() as stack:
        one, two = await scene.add_session(), await scene.add_session()
        other = await connected(postgres_url, stack)
        # So that the other one is never the victim.
        await other.execute("SET deadlock_timeout = '1h'")
        attempts: list[int] = []
        holds_one, other_waits = asyncio.Event(), asyncio.Event()

        def script() -> Script[str]:
            attempts.append(1)
            yield from lock_session(one.id)
            holds_one.set()
            # Whoever waits looks for a deadlock once: it has to be there by then.
            while not other_waits.is_set():
                yield from log_head()
            return (yield from lock_session(two.id)).info.id

        lock = "SELECT 1 FROM session WHERE id = %s FOR UPDATE"
        async with other.transaction():
            await other.execute(lock, (two.id,))
            writing = asyncio.ensure_future(scene.store.write(script))
            await holds_one.wait()
            locking = asyncio.ensure_future(other.execute(lock, (one.id,)))
            await blocked(postgres_url)
            other_waits.set()
            await locking
        assert await writing == two.id
        assert len(attempts) == 2


async def test_who_creates_a_session_second_hears_that_it_exists(postgres_url: str) -> None:
    """Losing the race for an id gives the same error as coming later."""
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        info = one.session()
        stores = [one.store, two.store] * 4
        results = await asyncio.gather(
            *(store.write(lambda: create_session(info, WORKTREE)) for store in stores),
            return_exceptions=True,
        )
        errors = [each for each in results if isinstance(each, BaseException)]
        assert len(errors) == len(stores) - 1
        assert all(isinstance(each, InvalidInput) and each.field == "id" for each in errors)


async def _part_while(scene: Scene, url: str, change: str) -> None:
    """Put a part under a lease while somebody holds the session and makes a change to it."""
    info = await scene.add_session()
    message = await scene.add_user(info)
    fence = await scene.acquire(info)
    part = scene.text(message)
    async with AsyncExitStack() as stack:
        other = await connected(url, stack)
        async with other.transaction():
            await other.execute("SELECT 1 FROM session WHERE id = %s FOR UPDATE", (info.id,))
            await other.execute(change.encode(), (info.id,))
            writing = asyncio.ensure_future(scene.write(put_part, part, now=1, fence=fence))
            await blocked(url)
        await writing


async def test_a_part_that_waited_sees_the_take_over(postgres_url: str) -> None:
    """A fence is checked against the lease as it is after the wait for the session."""
    async with opened(postgres_url) as scene:
        with pytest.raises(LeaseLost):
            await _part_while(
                scene,
                postgres_url,
                "UPDATE lease SET generation = generation + 1 WHERE session_id = %s",
            )


async def test_a_part_that_waited_sees_its_message_go(postgres_url: str) -> None:
    """No part is stored for a message that was removed during the wait for the session."""
    async with opened(postgres_url) as scene:
        with pytest.raises(MessageNotFound):
            await _part_while(scene, postgres_url, "DELETE FROM message WHERE session_id = %s")


async def test_a_part_that_waited_sees_its_session_go(postgres_url: str) -> None:
    """No part is stored in a session that was deleted during the wait for it."""
    async with opened(postgres_url) as scene:
        with pytest.raises(SessionNotFound):
            await _part_while(
                scene, postgres_url, "UPDATE session SET time_deleted = 1 WHERE id = %s"
            )


async def test_writers_of_parts_starve_nobody(postgres_url: str) -> None:
    """However many store parts of a session without a pause, others get to change it."""
    async with opened(postgres_url) as scene:
        info = await scene.add_session()
        message = await scene.add_user(info)

        async def stream() -> None:
            while True:
                await scene.write(put_part, scene.text(message), now=1)

        writers = [asyncio.create_task(stream()) for _ in range(5)]
        try:
            async with asyncio.timeout(PATIENCE):
                for n in range(3):
                    change = functools.partial(msgspec.structs.replace, title=f"{n}")
                    await scene.write(change_session, info.id, change)
        finally:
            for each in writers:
                each.cancel()
            await asyncio.gather(*writers, return_exceptions=True)


async def test_a_tree_that_grows_is_deleted_whole(postgres_url: str) -> None:
    """Subtasks that are made while their root is deleted are either refused or deleted too."""
    async with opened(postgres_url) as scene:
        root = await scene.add_session()

        async def grow() -> int:
            parent, made = root, 0
            while True:
                child = msgspec.structs.replace(scene.session(), parentID=parent.id)
                try:
                    await scene.write(create_session, child, WORKTREE)
                except SessionNotFound:
                    return made
                parent, made = child, made + 1

        growing = asyncio.create_task(grow())
        while not await scene.read(child_sessions, root.id):
            pass
        await scene.write(stop_and_delete, root.id, "me", scene.ids, 1)
        made = await growing
        deleted = await scene.store.scan(functools.partial(deleted_sessions, (0, ""), 1000))
        assert len(deleted) == made + 1


async def test_another_programs_schema_is_left_alone(postgres_url: str) -> None:
    """Where there are tables of others, kedge puts none beside them."""
    async with AsyncExitStack() as stack:
        other = await connected(postgres_url, stack)
        await other.execute("CREATE TABLE something_else (id int)")
        with pytest.raises(StoreCorrupt, match="another program"):
            await PostgresStore.open(postgres_url, IdMaker())
        await other.execute("DROP TABLE something_else")


async def test_plain_writes_do_not_weaken_and_durable_ones_strengthen(postgres_url: str) -> None:
    """Only `write_durable` waits for the disk where the server's own setting does not."""

    def setting() -> Script[Any]:
        yield from run("meta_set", key="a", value="b")
        return (yield from row("synchronous_commit"))

    async with AsyncExitStack() as stack:
        other = await connected(postgres_url, stack)
        name = (await (await other.execute("SELECT current_database()")).fetchall())[0][0]
        await other.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        with pytest.MonkeyPatch.context() as patch:
            queries = "kedge.store.postgres.transactions"
            statement = b"SELECT current_setting('synchronous_commit')"
            patch.setitem(sys.modules[queries]._SQL, "synchronous_commit", statement)
            async with opened(postgres_url) as scene:
                assert await scene.store.write(setting) == ("off",)
                assert await scene.store.write_durable(setting) == ("on",)
                assert await scene.store.write(setting) == ("off",)


async def test_only_pieces_do_not_wait_for_the_disk(postgres_url: str) -> None:
    """They are for the end of this process, not of the server; the next transaction waits again."""

    def setting(first: Script[None]) -> Script[Any]:
        yield from first
        return (yield from row("synchronous_commit"))

    async with opened(postgres_url) as scene:
        with pytest.MonkeyPatch.context() as patch:
            queries = "kedge.store.postgres.transactions"
            statement = b"SELECT current_setting('synchronous_commit')"
            patch.setitem(sys.modules[queries]._SQL, "synchronous_commit", statement)
            assert await scene.write(setting, add_pieces(())) == ("off",)
            assert await scene.write(setting, drop_pieces("ses_1", "prt_1")) == ("on",)


async def test_processes_that_start_together_migrate_once(postgres_url: str) -> None:
    """All of them find the one database that the first of them made."""
    async with AsyncExitStack() as stack:
        opening = [stack.enter_async_context(opened(postgres_url)) for _ in range(6)]
        scenes = await asyncio.gather(*opening)
        assert len({scene.store.epoch for scene in scenes}) == 1
        other = await connected(postgres_url, stack)
        versions = await (await other.execute("SELECT version FROM kedge_schema")).fetchall()
        assert versions == [(len(load_migrations("postgres")),)]


async def test_titles_of_an_older_database_are_found(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version before 8 had no table of titles to look for parts in; what is damaged has no
    title to be found by, and keeps none of the others from being found."""
    with monkeypatch.context() as patched:
        older = load_migrations("postgres")[:7]
        patched.setattr(migrate, "load_migrations", lambda dialect: older)
        async with opened(postgres_url) as scene:
            infos = [await scene.add_session(title=f"Große {n} %\0") for n in range(501)]
            damaged = await scene.add_session(title="Große % damaged")
    async with AsyncExitStack() as stack:
        other = await connected(postgres_url, stack)
        await other.execute(
            "UPDATE session SET data = %s WHERE id = %s", ('{"title":5}', damaged.id)
        )
    async with opened(postgres_url) as scene:
        args: dict[str, Any] = {"roots": None, "archived": None, "start": 0, "after": None}
        page = await scene.read(search_sessions, "SSE 500 %\0", EVERYWHERE, **args, limit=9)
        assert page.sessions == infos[-1:]
        page = await scene.read(search_sessions, "%", EVERYWHERE, **args, limit=999)
        assert len(page.sessions) == len(infos)


async def test_a_newer_schema_is_refused(postgres_url: str) -> None:
    """A database of a newer kedge is left alone, and the error names its version."""
    async with opened(postgres_url), AsyncExitStack() as stack:
        other = await connected(postgres_url, stack)
        await other.execute("UPDATE kedge_schema SET version = 99")
        with pytest.raises(StoreTooNew, match="schema 99"):
            await PostgresStore.open(postgres_url, IdMaker())


async def test_another_programs_tables_are_left_alone(postgres_url: str) -> None:
    """A schema where somebody else made a table is refused, and nothing is left in it."""
    async with AsyncExitStack() as stack:
        other = await connected(postgres_url, stack)
        await other.execute("CREATE TABLE session (id INT)")
        with pytest.raises(StoreCorrupt, match="another program"):
            await PostgresStore.open(postgres_url, IdMaker())
        found = await (await other.execute("SELECT to_regclass('kedge_schema')")).fetchall()
        assert found == [(None,)]


async def test_schemas_of_one_database_are_apart(postgres_url: str) -> None:
    """Each schema holds a kedge of its own, even if another stands later in the search path."""
    async with opened(postgres_url) as scene, AsyncExitStack() as stack:
        await scene.add_session()
        other = await connected(postgres_url, stack)
        await other.execute("CREATE SCHEMA tenant")
        mark = "&" if "?" in postgres_url else "?"
        url = f"{postgres_url}{mark}options={quote('-c search_path=tenant,public')}"
        async with opened(url) as tenant:
            assert tenant.store.epoch != scene.store.epoch
            assert await tenant.events() == []


async def test_a_missing_schema_is_said(postgres_url: str) -> None:
    """A search path that leads nowhere is an error before anything is made."""
    mark = "&" if "?" in postgres_url else "?"
    with pytest.raises(StoreUnavailable, match="CREATE SCHEMA"):
        await PostgresStore.open(
            f"{postgres_url}{mark}options={quote('-c search_path=nowhere')}", IdMaker()
        )


async def _indexed(scene: Scene, info: SessionInfo, *texts: str) -> None:
    message = await scene.add_user(info)
    for text in texts:
        await scene.add_text(message, text)
    while await scene.store.write(lambda: index_events(100)):
        pass


async def test_search_takes_words_of_any_length(postgres_url: str) -> None:
    """A word longer than PostgreSQL's longest lexeme is stored, and found by itself."""
    async with opened(postgres_url) as scene:
        info = await scene.add_session()
        await _indexed(scene, info, "x" * 60_000, " ".join(f"w{n}" for n in range(9_000)))
        for word in ("X" * 5_000, "w8999"):
            page = await scene.read(search, words_of(word), after=None, limit=5)
            assert [hit.session.id for hit in page.hits] == [info.id]


async def test_an_excerpt_shows_the_word(postgres_url: str) -> None:
    """A hit deep in a long text is shown with what is around it."""
    async with opened(postgres_url) as scene:
        info = await scene.add_session()
        await _indexed(scene, info, "before " * 500 + "the Needle lies here" + " after" * 500)
        page = await scene.read(search, ["needle"], after=None, limit=5)
        [hit] = page.hits
        assert "the Needle lies here" in hit.excerpt
        assert (hit.excerpt[0], hit.excerpt[-1]) == ("…", "…")
        assert len(hit.excerpt) < 200


def test_a_location_holds_no_password() -> None:
    """Wherever the password stands in the URL, messages do not show it."""
    for url in (
        "postgresql://ann:hush@db.example:6000/kedge",
        "postgresql://ann@db.example:6000/kedge?password=hush",
    ):
        address = Address.parse(url)
        assert address.location == "postgresql://ann@db.example:6000/kedge"
        assert "hush" in address.conninfo


def test_a_url_that_cannot_be_read_is_not_quoted() -> None:
    """The error for a malformed URL does not repeat the password in it, nor does its cause."""
    with pytest.raises(StoreUnavailable) as caught:
        Address.parse("postgresql://ann:hush%zz@db.example/kedge")
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


async def test_a_missing_database_is_said(postgres_url: str) -> None:
    """The error names the database and does not show the password."""
    url = postgres_url.replace("/kedge_test_", "/no_such_").replace("postgres@", "postgres:hush@")
    with pytest.raises(StoreUnavailable, match="no_such_") as caught:
        await PostgresStore.open(url, IdMaker())
    assert "hush" not in str(caught.value)


async def test_nobody_at_the_address_is_said() -> None:
    """A refused connection is a typed error that names host, port and database."""
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1/kedge"):
        await PostgresStore.open("postgresql://ann:hush@127.0.0.1:1/kedge", IdMaker())


async def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without psycopg the store can be imported, and opening it names the extra."""
    monkeypatch.delitem(sys.modules, "kedge.store.postgres.database", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg_pool", None)
    with pytest.raises(StoreUnavailable, match=r"pip install 'kedge\[postgres\]'"):
        await PostgresStore.open("postgresql://127.0.0.1/kedge", IdMaker())


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("53100", StoreFull),
        ("25006", StoreReadOnly),
        ("42501", StoreReadOnly),
        ("57014", StoreBusy),
        ("55P03", StoreBusy),
        ("40P01", StoreBusy),
        ("54000", TooLarge),
        ("XX001", StoreCorrupt),
        ("53300", StoreUnavailable),
        ("28P01", StoreUnavailable),
    ],
)
def test_errors_are_typed(state: str, expected: type[KedgeError]) -> None:
    """What PostgreSQL refuses becomes an error that says who must act."""
    error = translated(psycopg.errors.lookup(state)("it said so"), "postgresql://db/kedge")
    assert type(error) is expected
    assert "it said so" in str(error) or "postgresql://db/kedge" in str(error)


async def test_text_that_cannot_be_stored_is_the_callers(postgres_url: str) -> None:
    """A NUL, which PostgreSQL's text cannot hold, is an input error."""
    async with opened(postgres_url) as scene:
        with pytest.raises(InvalidInput, match="NUL"):
            await scene.store.write(lambda: run("meta_set", key="a", value="b\0c"))


async def test_a_statement_that_took_too_long_is_said(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's statement timeout ends a wait with a typed error, and the store goes on."""

    def locked_soon() -> Script[object]:
        # Only here: on a loaded machine any statement may take so long.
        yield from run("be_impatient")
        return (yield from lock_session(info.id))

    monkeypatch.setitem(
        sys.modules["kedge.store.postgres.transactions"]._SQL,
        "be_impatient",
        b"SET LOCAL statement_timeout = 200",
    )
    async with opened(postgres_url) as scene, AsyncExitStack() as stack:
        info = await scene.add_session()
        other = await connected(postgres_url, stack)
        async with other.transaction():
            await other.execute("SELECT 1 FROM session FOR UPDATE")
            with pytest.raises(StoreBusy, match="timeout"):
                await scene.store.write(locked_soon)
        await scene.add_user(info)


async def test_a_cancelled_read_leaves_its_connection_usable(postgres_url: str) -> None:
    """Whoever gives up a long read takes no connection out of use."""
    async with opened(postgres_url) as scene:
        await scene.add_session()
        for pauses in range(40):
            reading = asyncio.ensure_future(scene.messages(scene.session()))
            for _ in range(pauses % 20):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        assert len(await scene.events()) == 1


async def test_a_cancellation_that_the_pool_forgets_counts(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Python 3.11 forgets it when a connection is free in the same moment; else whoever closes
    an engine would wait for ever."""
    async with opened(postgres_url) as scene:
        pool = scene.store._database._pool  # type: ignore[attr-defined]
        take, waits = pool.getconn, asyncio.Event()

        async def forgetful(patience: float) -> object:
            waits.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(PATIENCE)
            return await take(patience)

        with monkeypatch.context() as patch:
            patch.setattr(pool, "getconn", forgetful)
            reading = asyncio.create_task(scene.store.read(log_head))
            await waits.wait()
            reading.cancel()
            await asyncio.wait({reading})
        assert reading.cancelled()
        assert await scene.store.read(log_head) == 0
