"""Forking a long session, compared with inserting as many bare rows of the same JSON."""

import sqlite3
from collections.abc import AsyncIterator

import kedge
from bench import bare
from bench.figures import Figure, ratio
from bench.filled_database import add_messages
from bench.rounds import Candidate, Work, side_by_side, steady
from bench.scratch import Scratch
from kedge.domain import wire
from kedge.engine.session import Session

_TARGET = 3.0
_PARTS = 5
_SCHEMA = """
CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT NOT NULL, data TEXT NOT NULL);
CREATE INDEX message_session ON message (session_id);
CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT NOT NULL, data TEXT NOT NULL);
CREATE INDEX part_message ON part (message_id);
"""
_MESSAGE = "INSERT INTO message (id, session_id, data) VALUES (?, ?, ?)"
_PART = "INSERT INTO part (id, message_id, data) VALUES (?, ?, ?)"


async def forks(scratch: Scratch) -> AsyncIterator[Figure]:
    """A fork of everything."""
    count = scratch.size(2_000, 50)
    scratch.say(f"filling a session with {count} messages and {count * _PARTS} parts")
    async with scratch.engine() as engine:
        session = await engine.sessions.create()
        await add_messages(engine, session, count, _PARTS)
        with bare.database(scratch.path("bare.db"), _SCHEMA) as tables:
            copying = await _copying(engine, session, tables, count)
            scratch.say("forking")
            fork, rows = await side_by_side([steady(session.fork), copying], scratch.size(15, 2))
    name = f"fork of {count:,} messages, {count * _PARTS:,} parts"
    yield ratio(name, fork, rows, target=_TARGET)


async def _copying(
    engine: kedge.Engine, session: Session, tables: sqlite3.Connection, count: int
) -> Candidate:
    found = await session.messages(limit=1)
    info, part = wire.encode(found.messages[0].info), wire.encode(found.messages[0].parts[0])
    ids = engine.ids

    async def prepare() -> Work:
        # Ids as kedge makes them for a fork: ascending, so that both append to their indexes.
        home = ids.session()
        messages = [(ids.message(), home, info) for _ in range(count)]
        parts = [(ids.part(), id, part) for id, _, _ in messages for _ in range(_PARTS)]

        async def work() -> None:
            bare.insert_at_once(tables, (_MESSAGE, messages), (_PART, parts))

        return work

    return Candidate(prepare)
