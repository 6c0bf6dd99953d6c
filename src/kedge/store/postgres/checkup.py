"""What a PostgreSQL server says of a database, without changing or migrating it."""

from dataclasses import dataclass

import psycopg

from kedge.store.named_sql import load_migrations
from kedge.store.postgres.connection import Address
from kedge.store.postgres.failures import translated

_TABLE = (
    "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'kedge_schema'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """A database on a server."""

    version: int
    """0 if kedge has not used it yet."""
    known: int
    server: str


async def server_state(url: str) -> ServerState:
    """The state of a database."""
    address = Address.parse(url)
    try:
        async with await address.connect() as connection:
            version = 0
            if await (await connection.execute(_TABLE)).fetchone() is not None:
                found = await connection.execute("SELECT version FROM kedge_schema")
                ((version,),) = await found.fetchall()
            said = await (await connection.execute("SHOW server_version")).fetchone()
    except psycopg.Error as error:
        raise translated(error, address.location) from error
    assert said is not None
    return ServerState(version=version, known=len(load_migrations("postgres")), server=str(said[0]))
