"""A program that writes, reads or listens beside others on one database, and counts what happened.

It says `ready`, waits for a line, works as its role says, and reports what it counted as `result`.
"""

import asyncio
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import kedge
from kedge.domain.errors import InvalidInput
from kedge.domain.events import PartUpdated, ServerHeartbeat
from kedge.domain.messages import MessageModel, MessageTime, UserMessage
from kedge.domain.parts import TextPart
from kedge.domain.sessions import Todo
from tests.torture.orders import Orders, received, report

MODEL = MessageModel(providerID="test", modelID="test")
LEAST = 100
"""Writes of each writer, however long they take."""
SHARED = "ses_shared"
"""A session that all writers write to, so that they meet."""


class Racer:
    """One process of a race."""

    def __init__(self, engine: kedge.Engine, orders: Orders) -> None:
        self._engine = engine
        self._orders = orders
        self._random = random.Random(orders.seed)
        self._latencies: list[float] = []
        self._errors: list[str] = []
        self._log_size = 0

    async def write(self) -> dict[str, Any]:
        """Write for the time that was ordered; gives latencies (ms) and whatever went wrong."""
        mine = await self._engine.sessions.create(f"racer {self._orders.seed}")
        shared = await self._shared()
        homes = [(each, await self._message(each)) for each in (mine, shared)]
        deadline = time.monotonic() + self._orders.seconds
        # On a loaded machine the time may be over before there was anything of a race.
        while time.monotonic() < deadline or len(self._latencies) < LEAST:
            session, message = self._random.choice(homes)
            await self._timed(partial(self._write_one, session, message))
        return self._counted()

    async def read(self) -> dict[str, Any]:
        """Read for the time that was ordered."""
        await self._shared()
        deadline = time.monotonic() + self._orders.seconds
        while time.monotonic() < deadline:
            await self._timed(self._read_one)
        return self._counted()

    async def listen(self) -> dict[str, Any]:
        """Hear every event from the first on, until the number that comes on standard input."""
        loop = asyncio.get_running_loop()
        last = asyncio.ensure_future(loop.run_in_executor(None, sys.stdin.readline))
        seqs: list[int] = []
        lags: list[float] = []
        async with self._engine.events.subscribe(after=self._engine.events.start) as events:
            last.add_done_callback(lambda _: self._engine.events.announce(ServerHeartbeat()))
            async for event in events:
                if event.type == "server.resync":
                    continue
                if event.seq:
                    seqs.append(event.seq)
                if event.type == PartUpdated.type and len(seqs) % 20 == 0:
                    part = event.properties
                    assert isinstance(part, PartUpdated)
                    lags.append(self._engine.clock.now() - part.time)
                if last.done() and seqs and seqs[-1] >= int(last.result()):
                    break
        return {"seqs": seqs, "lags": lags}

    async def _timed(self, action: Callable[[], Awaitable[object]]) -> None:
        begin = time.perf_counter()
        try:
            await action()
        except Exception as error:  # noqa: BLE001 - that there is none is what is tested
            self._errors.append(repr(error))
        self._latencies.append(round((time.perf_counter() - begin) * 1000, 3))
        if len(self._latencies) % 25 == 0:
            self._log_size = max(self._log_size, _size_of(f"{self._orders.database}-wal"))

    def _counted(self) -> dict[str, Any]:
        return {
            "latencies": self._latencies,
            "errors": self._errors,
            "log_size": self._log_size,
        }

    async def _write_one(self, session: kedge.Session, message: str) -> None:
        match self._random.random():
            case chance if chance < 0.8:
                part = TextPart(
                    id=self._engine.ids.part(),
                    sessionID=session.id,
                    messageID=message,
                    text="x" * self._random.randrange(600),
                )
                await session.put_part(part)
            case chance if chance < 0.9:
                await self._message(session)
            case chance if chance < 0.95:
                await session.set_todos([Todo(content="c", status="pending", priority="low")])
            case _:
                await session.update(metadata={"n": self._random.random()})

    async def _read_one(self) -> None:
        page = await self._engine.sessions.list(limit=20)
        session = self._random.choice(page.sessions)
        found = await session.messages(limit=20)
        for each in found.messages[:1]:
            await session.message(each.info.id)

    async def _shared(self) -> kedge.Session:
        try:
            return await self._engine.sessions.create("shared", id=SHARED)
        except InvalidInput:
            return await self._engine.sessions.get(SHARED)

    async def _message(self, session: kedge.Session) -> str:
        message = UserMessage(
            id=self._engine.ids.message(),
            sessionID=session.id,
            time=MessageTime(created=self._engine.clock.now()),
            agent="build",
            model=MODEL,
        )
        await session.put_message(message)
        return message.id


def _size_of(path: str) -> int:
    return os.stat(path).st_size if os.path.exists(path) else 0


async def main(orders: Orders) -> None:
    """Wait for the start, then open an engine at the same instant as the others and work."""
    report("ready")
    sys.stdin.readline()
    async with kedge.open(orders.directory, database=orders.database) as engine:
        racer = Racer(engine, orders)
        roles = {"write": racer.write, "read": racer.read, "listen": racer.listen}
        result = await roles[orders.role]()
    report("result", result)


if __name__ == "__main__":
    asyncio.run(main(received()))
