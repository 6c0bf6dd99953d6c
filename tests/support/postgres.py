"""Finds or starts the PostgreSQL that tests use and makes databases in it; no part of kedge.

Run as a program (`python -m tests.support.postgres`) it says whether there is one.
"""

import fcntl
import getpass
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg
from psycopg import sql

from tests.support.cluster import Cluster, find_binaries
from tests.support.timeouts import PATIENCE

SETTING = "KEDGE_TEST_POSTGRES"
"""A URL of a server where databases may be made, or `private` to start one in any case."""

# Where nobody listens it is refused at once; who is there may be busy.
_PATIENCE = round(PATIENCE)

HOW_TO_MEND = (
    f"install PostgreSQL (as root on Debian `make components` does it), or set {SETTING} to the URL"
    " of a server on this machine where databases may be created"
)


class NoPostgresError(Exception):
    """There is no PostgreSQL that the tests could use."""


def locate() -> str | Path:
    """The URL of a server that is up, or else the folder of the programs to start one with."""
    setting = os.environ.get(SETTING, "")
    if setting not in ("", "private"):
        # Asked for by name: that it does not answer is an error, not a reason to look elsewhere.
        with psycopg.connect(setting, connect_timeout=_PATIENCE):
            return setting
    running = None if setting == "private" else _local_server()
    found = running or find_binaries()
    if found is None:
        raise NoPostgresError(f"no PostgreSQL found; {HOW_TO_MEND}")
    return found


def server_url(folder: Path) -> str:
    """The URL of a server that is up; a started one is shared by all who name `folder`."""
    found = locate()
    if isinstance(found, str):
        return found
    with _locked(folder):
        cluster = Cluster(binaries=found, record=folder / "cluster")
        return cluster.url() or cluster.start()


def stop_private_server(folder: Path) -> None:
    """Stop and remove the server that `server_url` started for `folder`, if it did."""
    binaries = find_binaries()
    if binaries is not None:
        Cluster(binaries=binaries, record=folder / "cluster").stop()


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """A database that exists only inside the block, whoever is still connected at its end."""
    name = f"kedge_test_{uuid.uuid4().hex}"
    # template0, because nobody can be connected to it and its encoding may be chosen.
    create = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'")
    drop = sql.SQL("DROP DATABASE {} WITH (FORCE)")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(create.format(sql.Identifier(name)))
    try:
        yield _with_database(server, name)
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(drop.format(sql.Identifier(name)))


def fresh_schema(database: str) -> str:
    """A schema of its own, which goes with its database."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
    mark = "&" if "?" in database else "?"
    return f"{database}{mark}options={quote(f'-c search_path={name}')}"


def _local_server() -> str | None:
    for user in ("postgres", getpass.getuser()):
        url = f"postgresql://{quote(user)}@127.0.0.1:5432/postgres"
        try:
            with psycopg.connect(url, connect_timeout=_PATIENCE) as connection:
                if _is_usable(connection):
                    return url
        except psycopg.OperationalError:
            continue  # Nobody there, or not for us: the next way of finding one is tried.
    return None


def _is_usable(connection: psycopg.Connection[tuple[bool]]) -> bool:
    # DROP DATABASE ... WITH (FORCE) came with version 13.
    query = "SELECT rolsuper OR rolcreatedb FROM pg_roles WHERE rolname = current_user"
    row = connection.execute(query).fetchone()
    return row is not None and row[0] and connection.info.server_version >= 130000


def _with_database(server: str, name: str) -> str:
    return urlsplit(server)._replace(path=f"/{name}").geturl()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "cluster.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Print the reason and answer 1 if there is no PostgreSQL."""
    try:
        locate()
    except NoPostgresError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
