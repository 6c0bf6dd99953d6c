"""Runs the public conformance suite on every adapter; what it looks at is in
`kedge.testing.store`."""

from pathlib import Path

import pytest

from kedge.domain.ids import IdMaker
from kedge.store.port import Store
from kedge.store.sqlite.store import SqliteStore
from kedge.testing.store import STORE_CHECKS, StoreCheck, check_store
from kedge.testing.store.database import Database

each_check = pytest.mark.parametrize(
    "check", STORE_CHECKS, ids=[getattr(check, "__name__", "check") for check in STORE_CHECKS]
)


class SqliteDatabase:
    """A file that is opened anew each time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "kedge.db"

    async def open(self) -> Store:
        return await SqliteStore.open(self._path, IdMaker())


class PostgresDatabase:
    """A database of a server, connected to anew each time."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> Store:
        from kedge.store.postgres.store import PostgresStore

        return await PostgresStore.open(self._url, IdMaker())


@each_check
async def test_sqlite_conforms(check: StoreCheck, tmp_path: Path) -> None:
    """The SQLite adapter shows the behaviour that the check is named after."""
    await check(SqliteDatabase(tmp_path))


@each_check
async def test_postgres_conforms(check: StoreCheck, postgres_schema: str) -> None:
    """The PostgreSQL adapter shows the behaviour that the check is named after."""
    await check(PostgresDatabase(postgres_schema))


async def test_a_wrong_store_fails_by_name() -> None:
    """`check_store` runs every check and says which of them failed."""

    class Broken:
        async def open(self) -> Store:
            raise RuntimeError("no such database")

    async def broken() -> Database:
        return Broken()

    with pytest.raises(ExceptionGroup) as caught:
        await check_store(broken)
    notes = [note for error in caught.value.exceptions for note in error.__notes__]
    assert notes == [f"in the check {getattr(check, '__name__', '')}" for check in STORE_CHECKS]
