"""Migrates a PostgreSQL schema to this version."""

import secrets

import psycopg

from kedge._version import __version__
from kedge.domain.errors import StoreCorrupt, StoreTooNew, StoreUnavailable
from kedge.store.named_sql import load_migrations, too_new
from kedge.store.postgres.connection import Address, AsyncConnection
from kedge.store.postgres.failures import translated
from kedge.store.queries.search import folded_title

_LOCK = "SELECT pg_advisory_xact_lock(1801806951, 0)"
_TABLE = (
    "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'kedge_schema'"
)

_TITLES_FOLDED = 8
"""The version whose table of titles is filled here: PostgreSQL does not fold case as Python
does."""


async def migrate(address: Address) -> str:
    """Apply the missing migrations in one transaction; return the database's epoch."""
    try:
        connection = await address.connect()
        async with connection:
            return await _migrate(connection, address.location)
    except psycopg.Error as error:
        raise translated(error, address.location) from error


async def _migrate(connection: AsyncConnection, location: str) -> str:
    await _check_place(connection, location)
    migrations = load_migrations("postgres")
    if await _version(connection, location, len(migrations)) < len(migrations):
        async with connection.transaction():
            # Another process may have migrated while this one waited: check again.
            await connection.execute(_LOCK)
            version = await _version(connection, location, len(migrations))
            if version == 0:
                await _check_empty(connection, location)
            for script in migrations[version:]:
                await connection.execute(script.encode())
            if 0 < version < _TITLES_FOLDED:
                await _fold_titles(connection)
            await _finish(connection, version, len(migrations))
    found = await (
        await connection.execute("SELECT value FROM meta WHERE key = 'epoch'")
    ).fetchone()
    if found is None:
        raise StoreCorrupt(f"{location} has lost its epoch; restore a backup")
    return str(found[0])


async def _fold_titles(connection: AsyncConnection) -> None:
    async with connection.cursor(name="unfolded") as unfolded, connection.cursor() as titles:
        await unfolded.execute("SELECT id, data FROM session")
        while found := await unfolded.fetchmany(500):
            await titles.executemany(
                "INSERT INTO session_title (session_id, folded) VALUES (%s, %s)",
                [(id, folded_title(data)) for id, data in found],
            )


async def _check_empty(connection: AsyncConnection, location: str) -> None:
    tables = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() LIMIT 1"
    if await (await connection.execute(tables)).fetchone() is not None:
        raise StoreCorrupt(
            f"{location} holds another program's tables; give kedge a database or a schema of its"
            " own"
        )


async def _check_place(connection: AsyncConnection, location: str) -> None:
    found = await (
        await connection.execute("SELECT current_setting('server_encoding'), current_schema()")
    ).fetchone()
    encoding, schema = found or (None, None)
    if encoding != "UTF8":
        raise StoreUnavailable(
            f"{location} is encoded in {encoding}; create the database with ENCODING 'UTF8'"
        )
    if schema is None:
        raise StoreUnavailable(
            f"no schema of the search path of {location} exists; create it with CREATE SCHEMA"
        )


async def _version(connection: AsyncConnection, location: str, known: int) -> int:
    # In the schema where tables are created: another kedge may use a later schema of the search
    # path. Not with to_regclass, which may return what it found before the wait for the lock.
    found = await (await connection.execute(_TABLE)).fetchone()
    if found is None:
        return 0
    ((version,),) = await (await connection.execute("SELECT version FROM kedge_schema")).fetchall()
    if version > known:
        written = await connection.execute("SELECT value FROM meta WHERE key = 'kedge'")
        raise StoreTooNew(too_new(location, version, known, await written.fetchone()))
    return int(version)


async def _finish(connection: AsyncConnection, before: int, after: int) -> None:
    if before == 0:
        epoch = secrets.token_hex(8)
        await connection.execute("INSERT INTO meta (key, value) VALUES ('epoch', %s)", (epoch,))
        await connection.execute("CREATE TABLE kedge_schema (version BIGINT NOT NULL)")
        await connection.execute("INSERT INTO kedge_schema VALUES (%s)", (after,))
    elif before < after:
        await connection.execute("UPDATE kedge_schema SET version = %s", (after,))
    await connection.execute(
        "INSERT INTO meta (key, value) VALUES ('kedge', %s)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (__version__,),
    )
