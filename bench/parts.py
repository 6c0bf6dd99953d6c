"""Storing one part with its event, compared with a bare transaction that inserts the same JSON."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import kedge
from bench import bare
from bench.figures import Figure, figure_of, ratio
from bench.filled_database import KILOBYTE, new_message, new_part
from bench.rounds import Candidate, Work, side_by_side, steady
from bench.scratch import Scratch
from kedge.domain import wire
from kedge.domain.messages import UserMessage
from kedge.engine.session import Session
from kedge.engine.steps import Step

_TARGET = 4.0
_TASKS = 20
_SCHEMA = "CREATE TABLE part (id TEXT PRIMARY KEY, data TEXT NOT NULL)"
_INSERT = "INSERT INTO part (id, data) VALUES (?, ?)"


async def parts(scratch: Scratch) -> AsyncIterator[Figure]:
    """Parts of 1 kB and of 30 kB, one after another and from many tasks."""
    rounds = scratch.size(25, 2)
    # Long rounds: each must pay its share of the checkpoints, whoever makes them.
    for size, text, count in (
        ("1 kB", KILOBYTE, scratch.size(500, 20)),
        ("30 kB", KILOBYTE * 30, scratch.size(100, 20)),
    ):
        target = _TARGET if size == "1 kB" else None
        scratch.say(f"storing parts of {size}")
        async with AsyncExitStack() as stack:
            candidates = [
                await _plain(stack, scratch, text, count),
                await _fenced(stack, scratch, text, count),
                await _concurrent(stack, scratch, text, count),
                await _bare(stack, scratch, text, count),
            ]
            plain, fenced, concurrent, baseline = await side_by_side(candidates, rounds)
            # Waiting for the disk and for other programs left out: the same on a busy machine.
            worked = await side_by_side([candidates[0], candidates[-1]], rounds, time.process_time)
        yield ratio(f"store a part of {size}", plain, baseline, target=target)
        yield ratio(f"store a part of {size} in a step", fenced, baseline, target=target)
        yield ratio(f"store a part of {size}, processor time", *worked)
        yield ratio(f"store a part of {size}, {_TASKS} tasks", concurrent, baseline)
        yield figure_of(
            f"parts of {size} stored by {_TASKS} tasks", [1 / each for each in concurrent], "/s"
        )


async def _plain(stack: AsyncExitStack, scratch: Scratch, text: str, count: int) -> Candidate:
    engine = await stack.enter_async_context(scratch.engine())
    session, message = await _message(engine)

    async def prepare() -> Work:
        made = [new_part(engine, message, text) for _ in range(count)]

        async def work() -> None:
            for part in made:
                await session.put_part(part)

        return work

    return Candidate(prepare, count)


async def _fenced(stack: AsyncExitStack, scratch: Scratch, text: str, count: int) -> Candidate:
    engine = await stack.enter_async_context(scratch.engine())
    session = await engine.sessions.create()
    turn = await stack.enter_async_context(session.turn("Store parts"))
    step: Step = await stack.enter_async_context(turn.step())

    async def work() -> None:
        for _ in range(count):
            await step.text(text)

    return steady(work, count)


async def _concurrent(stack: AsyncExitStack, scratch: Scratch, text: str, count: int) -> Candidate:
    engine = await stack.enter_async_context(scratch.engine())
    homes = [await _message(engine) for _ in range(_TASKS)]

    async def one_task(session: Session, message: UserMessage) -> None:
        for _ in range(count // _TASKS):
            await session.put_part(new_part(engine, message, text))

    async def work() -> None:
        await asyncio.gather(*(one_task(*home) for home in homes))

    return steady(work, count // _TASKS * _TASKS)


async def _bare(stack: AsyncExitStack, scratch: Scratch, text: str, count: int) -> Candidate:
    engine = await stack.enter_async_context(scratch.engine())
    _, message = await _message(engine)
    table: sqlite3.Connection = stack.enter_context(bare.database(scratch.path("bare.db"), _SCHEMA))

    async def prepare() -> Work:
        made = [new_part(engine, message, text) for _ in range(count)]
        rows = [(part.id, wire.encode(part)) for part in made]

        async def work() -> None:
            bare.insert_one_by_one(table, _INSERT, rows)

        return work

    return Candidate(prepare, count)


async def _message(engine: kedge.Engine) -> tuple[Session, UserMessage]:
    session = await engine.sessions.create()
    message = new_message(engine, session)
    await session.put_message(message)
    return session, message
