"""Migrates a SQLite file to the schema of this version, after making a backup of it."""

import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from kedge._version import __version__
from kedge.domain.errors import StoreCorrupt, StoreTooNew
from kedge.store.named_sql import load_migrations, too_new
from kedge.store.queries.search import folded_title
from kedge.store.sqlite.connection import configure, open_file, patiently

APPLICATION_ID = 0x6B656467  # "kedg"


def migrate(path: Path) -> str:
    """Apply the missing migrations in one transaction; return the database's epoch."""
    connection = open_file(path, wait=0.1)
    try:
        # Before anything is changed: the file may be another program's.
        patiently(lambda: _version_now(connection, path, len(load_migrations("sqlite"))), path)
        configure(connection, path)
        return patiently(lambda: _migrate(connection, path), path)
    finally:
        connection.close()


def _migrate(connection: sqlite3.Connection, path: Path) -> str:
    migrations = load_migrations("sqlite")
    if _version_now(connection, path, len(migrations)) < len(migrations):
        # Another process may have migrated while this one waited for the lock: check again.
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = _version(connection, path, len(migrations))
            if 0 < version < len(migrations):
                _put_copy_aside(path, version)
            connection.create_function("folded_title", 1, folded_title)
            for script in migrations[version:]:
                for statement in statements(script):
                    connection.execute(statement)
            _finish(connection, version, len(migrations))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    found = connection.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
    if found is None:
        raise StoreCorrupt(f"{path} has lost its epoch; put the newest backup in its place")
    return str(found[0])


def _version_now(connection: sqlite3.Connection, path: Path, known: int) -> int:
    # In one transaction: a process that is creating the database commits all of it or nothing.
    connection.execute("BEGIN")
    try:
        return _version(connection, path, known)
    except UnicodeDecodeError as error:
        # SQLite quotes a damaged schema in its message, and Python cannot decode that.
        raise StoreCorrupt(
            f"{path} is damaged (its schema is not text); put the newest backup in its place"
        ) from error
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _version(connection: sqlite3.Connection, path: Path, known: int) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables and application != APPLICATION_ID:
        raise StoreCorrupt(f"{path} is another program's database; choose another file for kedge")
    if version > known:
        written = connection.execute("SELECT value FROM meta WHERE key = 'kedge'").fetchone()
        raise StoreTooNew(too_new(str(path), version, known, written))
    return int(version)


def _finish(connection: sqlite3.Connection, before: int, after: int) -> None:
    if before == 0:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        epoch = secrets.token_hex(8)
        connection.execute("INSERT INTO meta (key, value) VALUES ('epoch', ?)", (epoch,))
    connection.execute(
        "INSERT INTO meta (key, value) VALUES ('kedge', ?)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (__version__,),
    )
    connection.execute(f"PRAGMA user_version = {after}")


def _put_copy_aside(path: Path, version: int) -> None:
    copy = path.with_name(
        f"{path.name}.v{version}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.backup"
    )
    os.close(os.open(copy, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    # A connection of its own: it sees the state before the transaction that is about to change it.
    source, target = sqlite3.connect(path), sqlite3.connect(copy)
    try:
        source.backup(target)
        # A restored backup goes on from there: its event numbers will mean other events.
        target.execute("UPDATE meta SET value = ? WHERE key = 'epoch'", (secrets.token_hex(8),))
        target.commit()
    finally:
        source.close()
        target.close()
    descriptor = os.open(copy, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def statements(script: str) -> Iterator[str]:
    """The statements of an SQL script, one by one."""
    buffer = ""
    for line in script.splitlines(keepends=True):
        buffer += line
        if sqlite3.complete_statement(buffer):
            yield buffer
            buffer = ""
