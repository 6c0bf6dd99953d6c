"""Opens PostgreSQL connections, and describes them without passwords."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import StrDumper

from kedge.domain.errors import StoreUnavailable
from kedge.store.transaction import Row

AsyncConnection: TypeAlias = psycopg.AsyncConnection[Row]
Connection: TypeAlias = psycopg.Connection[Row]

SETTINGS = "SET lock_timeout = '60s'; SET idle_in_transaction_session_timeout = '60s'"
"""A process that was paused inside a transaction must not block the others for good."""

_DEFAULTS: Mapping[str, str | int] = {
    "application_name": "kedge",
    "client_encoding": "UTF8",
    "connect_timeout": 10,
    # A peer that vanished without a word is noticed within a minute.
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 50_000,
}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a database."""

    conninfo: str
    """The connection string for libpq; may contain a password."""
    location: str
    """The same for messages; without passwords."""

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Parse a `postgresql://` URL; the `PG*` variables fill in what it leaves out."""
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            # The reason quotes the URL, and possibly its password.
            raise StoreUnavailable(
                "the database URL cannot be read; it looks like postgresql://user:password@host:5432/name,"
                " with other characters than letters and digits written as %XX"
            ) from None
        return cls(make_conninfo("", **{**_DEFAULTS, **given}), _location(given))

    async def connect(self) -> AsyncConnection:
        """A connection in autocommit mode."""
        connection = await psycopg.AsyncConnection.connect(self.conninfo, autocommit=True)
        try:
            await configure(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    def connect_blocking(self) -> Connection:
        """The same for a thread."""
        connection = psycopg.connect(self.conninfo, autocommit=True)
        try:
            _adapt(connection)
            connection.execute(SETTINGS)
        except BaseException:
            connection.close()
            raise
        return connection


async def configure(connection: AsyncConnection) -> None:
    """Make a fresh connection ready for use."""
    _adapt(connection)
    await connection.execute(SETTINGS)


def _adapt(connection: AsyncConnection | Connection) -> None:
    # By default psycopg chooses types by the size of a number, and prepares a statement for each.
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    connection.adapters.register_dumper(str, StrDumper)


def _location(given: Mapping[str, object]) -> str:
    known = {key: str(given[key]) for key in ("user", "host", "port", "dbname") if given.get(key)}
    user = f"{known['user']}@" if "user" in known else ""
    host, port, name = known.get("host", ""), known.get("port", "5432"), known.get("dbname", "")
    if host and not host.startswith("/"):
        return f"postgresql://{user}{host}:{port}/{name}"
    return f"postgresql://{user}/{name}" + (f"?host={host}" if host else "")
