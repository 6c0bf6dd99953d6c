"""Runs a script as one transaction on a connection; choosing one and retrying happen elsewhere.

The events and the COMMIT are sent together, in pipeline mode: so no client spends time while it
holds the lock on the row of `event_head`, which all writers need. The statements before them are
not: psycopg takes longer to pipeline a statement than a server nearby takes to answer it.

Each transaction that changes something also writes the token of its writer. If the connection is
lost before the COMMIT is answered, the token tells whether it was carried out.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import psycopg

from kedge.domain.errors import InvariantBroken
from kedge.domain.events import frame_text
from kedge.domain.ids import IdMaker
from kedge.store.named_sql import load_queries
from kedge.store.port import StoredEvent
from kedge.store.postgres.connection import AsyncConnection, Connection
from kedge.store.postgres.failures import CommitLost, is_lost_connection
from kedge.store.transaction import Batch, Emit, Query, Row, Rows, Script, ScriptMaker, T, drive

AsyncExecute: TypeAlias = Callable[[Query | Batch], Awaitable[Rows]]
Finish: TypeAlias = Callable[[AsyncConnection, Sequence[Emit]], Awaitable[None]]

_BEGIN_WRITE = b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_BEGIN_READ = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_COMMIT = b"COMMIT"
# Never less than the server's own setting: `remote_apply` is more than `on`.
_DURABLE = (
    b"SELECT set_config('synchronous_commit', 'on', true)"
    b" WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')"
)
# Where the row was fenced, its new number is null, which the column refuses.
_PUT_TOKEN = (
    b"INSERT INTO commit_token (writer, number)"
    b" SELECT %(writer)s, %(number)s WHERE pg_current_xact_id_if_assigned() IS NOT NULL"
    b" ON CONFLICT (writer) DO UPDATE SET time_used = excluded.time_used,"
    b" number = CASE WHEN commit_token.number < excluded.number THEN excluded.number END"
)
_FENCE_TOKEN = (
    b"INSERT INTO commit_token (writer, number) VALUES (%(writer)s, %(number)s + 1)"
    b" ON CONFLICT (writer) DO UPDATE SET time_used = excluded.time_used, number = excluded.number"
    b" WHERE commit_token.number < %(number)s"
)
_GET_TOKEN = b"SELECT number FROM commit_token WHERE writer = %(writer)s"
_DROP_TOKENS = b"DELETE FROM commit_token WHERE time_used < now() - interval '7 days'"
_NO_ROWS: Rows = ()


@dataclass(slots=True)
class TransactionWriter:
    """Runs one transaction at a time, and numbers them so that each can be looked up."""

    id: str
    """Unique to this process."""
    number: int = 0
    """The number of the last transaction; the next number is used for the fence against it."""

    @property
    def token(self) -> dict[str, object]:
        """The token that the last transaction writes."""
        return {"writer": self.id, "number": self.number}


_SQL = {name: sql.encode() for name, sql in load_queries("postgres").items()}


def _executor(connection: AsyncConnection) -> AsyncExecute:
    async def execute(step: Query | Batch) -> Rows:
        cursor = connection.cursor()
        if type(step) is Batch:
            await cursor.executemany(_SQL[step.name], step.args)
            return _NO_ROWS
        await cursor.execute(_SQL[step.name], step.args)
        return await cursor.fetchall() if cursor.description else ((cursor.rowcount,),)

    return execute


async def drive_async(script: Script[T], execute: AsyncExecute) -> tuple[T, list[Emit]]:
    """Run a script to its end; the asynchronous twin of `kedge.store.transaction.drive`."""
    events: list[Emit] = []
    try:
        step = next(script)
        while True:
            if type(step) is Emit:
                events.append(step)
                step = script.send(_NO_ROWS)
            elif type(step) is Query or type(step) is Batch:
                step = script.send(await execute(step))
            else:
                raise InvariantBroken(f"a script yielded {step!r}")
    except StopIteration as done:
        return done.value, events
    finally:
        script.close()


async def read_on(connection: AsyncConnection, script: ScriptMaker[T]) -> T:
    """Run a reading script; if it has only one query, it needs no transaction."""
    attempt = script()
    try:
        step = next(attempt)
        if type(step) is not Query:
            raise InvariantBroken(f"a reading script yielded {step!r}")
        cursor = await connection.execute(_SQL[step.name], step.args)
        attempt.send(await cursor.fetchall())
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        attempt.close()
    return await scan_on(connection, script)


async def scan_on(connection: AsyncConnection, script: ScriptMaker[T]) -> T:
    """Run a reading script on one state of the database."""
    try:
        await connection.execute(_BEGIN_READ)
        result, _ = await drive_async(script(), _executor(connection))
        await connection.execute(_COMMIT)
    except BaseException:
        await _roll_back(connection)
        raise
    return result


async def write_on(
    connection: AsyncConnection, script: ScriptMaker[T], *, durable: bool, finish: Finish
) -> T:
    """Run a script as a transaction, which `finish` ends with the events that it gets."""
    try:
        await connection.execute(_BEGIN_WRITE)
        if durable:
            await connection.execute(_DURABLE)
        result, events = await drive_async(script(), _executor(connection))
        await _drop_progress(connection, events)
        await finish(connection, events)
    except BaseException:
        await _roll_back(connection)
        raise
    return result


async def commit(
    connection: AsyncConnection, events: Sequence[Emit], ids: IdMaker, writer: TransactionWriter
) -> list[StoredEvent]:
    """Store the events and the token of a transaction and commit, in one round trip."""
    framed = [frame_text(ids.event(), event.type, event.properties) for event in events]
    writer.number += 2
    try:
        async with connection.pipeline():
            if events:
                appended = await _append(connection, events, framed, writer)
            else:
                await connection.execute(_PUT_TOKEN, writer.token)
            await connection.execute(_COMMIT)
        seqs = await appended.fetchall() if events else []
    except psycopg.Error as error:
        if is_lost_connection(error):
            # Closed at once: a rollback would fail.
            await connection.close()
            raise CommitLost(error) from error
        raise
    return [
        StoredEvent(
            seq,
            event.type,
            event.session_id,
            event.project_id,
            event.directory,
            payload,
        )
        for (seq,), event, payload in zip(sorted(seqs), events, framed, strict=True)
    ]


async def was_committed(connection: AsyncConnection, writer: TransactionWriter) -> bool:
    """Whether the last transaction of a writer was carried out; if not, it never will be."""
    # Waits for a transaction that is still running and has written its token.
    await connection.execute(_FENCE_TOKEN, writer.token)
    found = await (await connection.execute(_GET_TOKEN, writer.token)).fetchone()
    return found == (writer.number,)


async def drop_old_tokens(connection: AsyncConnection) -> None:
    """Delete the tokens of dead processes; living ones write theirs again."""
    await connection.execute(_DROP_TOKENS)


def run_on(connection: Connection, script: ScriptMaker[T]) -> T:
    """Run a script that emits no events, as one transaction of a blocking connection."""

    def execute(step: Query | Batch) -> Rows:
        cursor = connection.cursor()
        if type(step) is Query:
            cursor.execute(_SQL[step.name], step.args)
            return cursor.fetchall() if cursor.description else ((cursor.rowcount,),)
        cursor.executemany(_SQL[step.name], step.args)
        return _NO_ROWS

    connection.execute(_BEGIN_WRITE)
    try:
        result, events = drive(script(), execute)
        if events:
            raise InvariantBroken("a script that runs beside the event loop emitted events")
    except BaseException:
        if not connection.closed:
            connection.execute(b"ROLLBACK")
        raise
    connection.execute(_COMMIT)
    return result


async def _roll_back(connection: AsyncConnection) -> None:
    status = connection.info.transaction_status
    if status in (psycopg.pq.TransactionStatus.INTRANS, psycopg.pq.TransactionStatus.INERROR):
        await connection.execute(b"ROLLBACK")


async def _drop_progress(connection: AsyncConnection, events: Sequence[Emit]) -> None:
    for event in events:
        if event.after_progress:
            stale = {"session_id": event.session_id, "entity": event.entity}
            await connection.execute(_SQL["event_drop_progress"], stale)


async def _append(
    connection: AsyncConnection,
    events: Sequence[Emit],
    framed: Sequence[str],
    writer: TransactionWriter,
) -> psycopg.AsyncCursor[Row]:
    return await connection.execute(
        _SQL["event_append"],
        {
            **writer.token,
            "count": len(events),
            "types": _array(event.type for event in events),
            "entities": _array(event.entity for event in events),
            "sessions": _array(event.session_id for event in events),
            "projects": _array(event.project_id for event in events),
            "directories": _array(event.directory for event in events),
            "payloads": _array(framed),
            "progress": _array(str(int(event.progress)) for event in events),
        },
    )


def _array(values: Iterable[str | None]) -> str:
    """The text form of an array; psycopg's own takes longer than the whole statement."""
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: str | None) -> str:
    if value is None:
        return "NULL"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
