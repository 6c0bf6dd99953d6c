"""How a SQLite file is made and brought up to date; what cannot be is refused unchanged."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from kedge import __version__
from kedge.domain.errors import StoreCorrupt, StoreError, StoreTooNew
from kedge.domain.ids import IdMaker
from kedge.store.named_sql import load_migrations
from kedge.store.queries.search import search_sessions
from kedge.store.queries.session_lists import EVERYWHERE
from kedge.store.sqlite import migrate as module
from kedge.store.sqlite.store import SqliteStore
from kedge.store.transaction import Script, row, run
from kedge.testing.store.scene import Scene

SECOND = "CREATE TABLE added (id TEXT PRIMARY KEY);\nINSERT INTO added SELECT path FROM worktree;\n"
BROKEN = SECOND + "INSERT INTO no_such_table VALUES (1);\n"


NEWEST = len(load_migrations("sqlite"))
"""The version that this kedge writes."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database is."""
    return tmp_path / "kedge.db"


def put() -> Script[None]:
    """One row."""
    yield from run(
        "worktree_put", path="/kept", project_id="p", fingerprint="", identity="p", now=1
    )


async def make(path: Path) -> str:
    """A database of this version with a row in it; gives its epoch."""
    store = await SqliteStore.open(path, IdMaker())
    await store.write(put)
    await store.close()
    return store.epoch


def add_migration(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let this kedge know one version more."""
    migrations = [*load_migrations("sqlite"), script]
    monkeypatch.setattr(module, "load_migrations", lambda dialect: migrations)


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    """What a file holds, or a change of it."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def backups(path: Path) -> list[Path]:
    """The copies that were put aside."""
    return sorted(path.parent.glob("*.backup"))


async def test_a_new_file_is_for_its_owner_alone(path: Path) -> None:
    """Nobody else on the machine can read the sessions."""
    await make(path)
    store = await SqliteStore.open(path, IdMaker())
    await store.write(put)
    modes = {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
    await store.close()
    assert modes == {"kedge.db": 0o600, "kedge.db-wal": 0o600, "kedge.db-shm": 0o600}


async def test_a_migration_puts_a_copy_aside(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before an existing database is changed, a whole copy of it is made; it keeps its epoch."""
    epoch = await make(path)
    add_migration(monkeypatch, SECOND)
    store = await SqliteStore.open(path, IdMaker())
    await store.close()
    assert store.epoch == epoch
    assert query(path, "SELECT id FROM added") == [("/kept",)]
    assert query(path, "PRAGMA user_version") == [(NEWEST + 1,)]
    (copy,) = backups(path)
    epoch = "SELECT value FROM meta WHERE key = 'epoch'"
    assert query(copy, epoch) != query(path, epoch), "its events will be other ones"
    assert copy.stat().st_mode & 0o777 == 0o600
    assert query(copy, "SELECT path FROM worktree") == [("/kept",)]
    assert query(copy, "PRAGMA user_version") == [(NEWEST,)]


@pytest.mark.parametrize("version", range(1, NEWEST))
async def test_every_older_database_is_brought_up_to_date(
    path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that an older kedge wrote ends up with its rows and today's tables."""
    with monkeypatch.context() as patched:
        older = load_migrations("sqlite")[:version]
        patched.setattr(module, "load_migrations", lambda dialect: older)
        epoch = await make(path)
    store = await SqliteStore.open(path, IdMaker())
    assert store.epoch == epoch
    assert await store.read(lambda: row("worktree_get", path="/kept")) is not None
    await store.close()
    new = path.with_name("new.db")
    await make(new)
    schema = "SELECT name, sql FROM sqlite_schema ORDER BY name"
    assert query(path, schema) == query(new, schema)
    assert query(path, "PRAGMA user_version") == [(NEWEST,)]


@pytest.mark.parametrize("damage", ["""'{"title":5}'""", "CAST(x'7bff7d' AS TEXT)"])
async def test_titles_of_an_older_database_are_found(
    path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """The version before 8 had no table of titles to look for parts in; what is damaged has no
    title to be found by, and keeps none of the others from being found."""
    with monkeypatch.context() as patched:
        older = load_migrations("sqlite")[:7]
        patched.setattr(module, "load_migrations", lambda dialect: older)
        scene = Scene(await SqliteStore.open(path, IdMaker()))
        info = await scene.add_session(title="Große 100 %")
        damaged = await scene.add_session(title="Große 100 %, damaged")
        await scene.store.close()
    query(path, f"UPDATE session SET data = {damage} WHERE id = '{damaged.id}'")
    scene = Scene(await SqliteStore.open(path, IdMaker()))
    for words in ("SSE", "0 %"):
        page = await scene.read(
            search_sessions,
            words,
            EVERYWHERE,
            roots=None,
            archived=None,
            start=0,
            after=None,
            limit=9,
        )
        assert page.sessions == [info]
    await scene.store.close()


async def test_a_failed_migration_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration that fails half-way leaves the database as it was, for the old kedge to use."""
    epoch = await make(path)
    with monkeypatch.context() as patched:
        add_migration(patched, BROKEN)
        with pytest.raises(StoreError, match="no_such_table"):
            await SqliteStore.open(path, IdMaker())
    assert query(path, "PRAGMA user_version") == [(NEWEST,)]
    assert query(path, "SELECT count(*) FROM sqlite_schema WHERE name = 'added'") == [(0,)]
    store = await SqliteStore.open(path, IdMaker())
    assert store.epoch == epoch
    assert await store.read(lambda: row("worktree_get", path="/kept")) is not None
    await store.close()


async def test_many_migrate_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many that find an old database at once, one migrates it and one copy is made."""
    await make(path)
    add_migration(monkeypatch, SECOND)
    stores = await asyncio.gather(*(SqliteStore.open(path, IdMaker()) for _ in range(6)))
    for store in stores:
        await store.close()
    assert len(backups(path)) == 1
    assert query(path, "SELECT id FROM added") == [("/kept",)]


def test_a_newer_database_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database of a newer kedge is left alone, with a message that says what is needed."""
    with monkeypatch.context() as patched:
        add_migration(patched, SECOND)
        asyncio.run(make(path))
    before = path.read_bytes()
    with pytest.raises(
        StoreTooNew,
        match=f"schema {NEWEST + 1}, this one knows {NEWEST}.*install kedge {__version__}",
    ):
        asyncio.run(make(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_the_database_of_another_program_is_refused(path: Path, journal: str) -> None:
    """Another program's database is not touched, not even its journal mode."""
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.execute("CREATE TABLE theirs (id)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match="another program"):
        asyncio.run(make(path))
    assert path.read_bytes() == before


def test_a_killed_creation_is_finished_by_the_next(path: Path) -> None:
    """An empty file, as a process leaves it that is killed at once, becomes a database."""
    path.touch()
    asyncio.run(make(path))
    assert query(path, "SELECT path FROM worktree") == [("/kept",)]
