"""Runs a script as one transaction on one connection; choosing the connection and trying again is not done here.

Statements go out in pipeline mode: one that gives no rows is not waited for. So a transaction takes as many round trips
as the script asks questions, and one more for everything it changed, its events and the COMMIT together. That keeps
the row of `event_head`, which all writers need, locked for no time that a client could spend.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import psycopg

from kedge.domain.errors import InvariantBroken
from kedge.domain.events import frame
from kedge.domain.ids import IdMaker
from kedge.store.driving import drive
from kedge.store.port import StoredEvent
from kedge.store.postgres.connecting import AsyncConnection, Connection
from kedge.store.postgres.failures import is_lost_connection, outcome_unknown
from kedge.store.queries import load_queries
from kedge.store.script import Batch, Emit, Query, Rows, Script, ScriptMaker, T

AsyncExecute: TypeAlias = Callable[[Query | Batch], Awaitable[Rows]]

_BEGIN_WRITE = b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_BEGIN_READ = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_COMMIT = b"COMMIT"
# Never less than the server's own setting: `remote_apply` is more than `on`.
_DURABLE = (
    b"SELECT set_config('synchronous_commit', 'on', true)"
    b" WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')"
)
_NO_ROWS: Rows = ()

_SQL = {name: sql.encode() for name, sql in load_queries("postgres").items()}
_GIVES_ROWS = {
    name
    for name, sql in load_queries("postgres").items()
    if re.match(r"\s*(SELECT|WITH)\b", sql) or re.search(r"\bRETURNING\b", sql)
}


class _Statements:
    """Runs the steps of one transaction on a connection in pipeline mode."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self.answered = False
        """Whether the server has answered anything yet."""

    async def execute(self, step: Query | Batch) -> Rows:
        cursor = self._connection.cursor()
        if type(step) is Batch:
            await cursor.executemany(_SQL[step.name], step.args)
            return _NO_ROWS
        await cursor.execute(_SQL[step.name], step.args)
        if step.name not in _GIVES_ROWS:
            return _NO_ROWS
        found = await cursor.fetchall()
        self.answered = True
        return found


async def drive_async(script: Script[T], execute: AsyncExecute) -> tuple[T, list[Emit]]:
    """Run a script to its end; the twin of `kedge.store.driving.drive` that waits without blocking."""
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
    """Run a reading script that is likely to ask one question, which needs no transaction around it."""
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
        async with connection.pipeline():
            await connection.execute(_BEGIN_READ)
            result, _ = await drive_async(script(), _Statements(connection).execute)
            await connection.execute(_COMMIT)
    except BaseException:
        await _roll_back(connection)
        raise
    return result


async def write_on(
    connection: AsyncConnection, script: ScriptMaker[T], ids: IdMaker, location: str, durable: bool
) -> tuple[T, list[StoredEvent]]:
    """Run a script and store its events, in one transaction."""
    committing = False
    try:
        async with connection.pipeline() as pipeline:
            await connection.execute(_BEGIN_WRITE)
            if durable:
                await connection.execute(_DURABLE)
            statements = _Statements(connection)
            result, events = await drive_async(script(), statements.execute)
            if not statements.answered:
                # A connection that broke while it was idle must be found out before the commit is sent.
                await pipeline.sync()
            framed = [frame(ids.event(), event.properties) for event in events]
            committing = True
            appended = await _append(connection, events, framed)
            await connection.execute(_COMMIT)
        return result, await _stored(appended, events, framed)
    except psycopg.Error as error:
        if committing and is_lost_connection(error):
            raise outcome_unknown(location) from error
        await _roll_back(connection)
        raise
    except BaseException:
        await _roll_back(connection)
        raise


def run_on(connection: Connection, script: ScriptMaker[T], location: str) -> T:
    """Run a script that emits no events, as one transaction of a blocking connection."""

    def execute(step: Query | Batch) -> Rows:
        cursor = connection.cursor()
        if type(step) is Query:
            cursor.execute(_SQL[step.name], step.args)
            return cursor.fetchall() if step.name in _GIVES_ROWS else _NO_ROWS
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
    try:
        connection.execute(_COMMIT)
    except psycopg.Error as error:
        if is_lost_connection(error):
            raise outcome_unknown(location) from error
        raise
    return result


async def _roll_back(connection: AsyncConnection) -> None:
    status = connection.info.transaction_status
    if status in (psycopg.pq.TransactionStatus.INTRANS, psycopg.pq.TransactionStatus.INERROR):
        await connection.execute(b"ROLLBACK")


async def _append(
    connection: AsyncConnection, events: Sequence[Emit], framed: Sequence[str]
) -> psycopg.AsyncCursor[tuple[object, ...]] | None:
    if not events:
        return None
    cursor = connection.cursor()
    replaced = [{"seq": event.replaces} for event in events if event.replaces is not None]
    if replaced:
        # Before the head is locked: whoever waits for a row must not make all others wait.
        await cursor.executemany(_SQL["event_drop"], replaced)
        cursor = connection.cursor()
    await cursor.execute(
        _SQL["event_append"],
        {
            "count": len(events),
            "types": [event.properties.type for event in events],
            "entities": [event.entity for event in events],
            "sessions": [event.session_id for event in events],
            "projects": [event.project_id for event in events],
            "directories": [event.directory for event in events],
            "payloads": framed,
        },
    )
    return cursor


async def _stored(
    appended: psycopg.AsyncCursor[tuple[object, ...]] | None,
    events: Sequence[Emit],
    framed: Sequence[str],
) -> list[StoredEvent]:
    if appended is None:
        return []
    seqs = sorted(int(str(seq)) for (seq,) in await appended.fetchall())
    return [
        StoredEvent(
            seq,
            event.properties.type,
            event.session_id,
            event.project_id,
            event.directory,
            payload,
        )
        for seq, event, payload in zip(seqs, events, framed, strict=True)
    ]
