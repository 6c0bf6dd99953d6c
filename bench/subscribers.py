"""An event and the many who wait for it: how long until all have it, and what one who waits
holds."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import kedge
from bench.figures import Figure, figure_of
from bench.filled_database import new_message, new_part
from bench.rounds import Candidate, side_by_side, steady
from bench.scratch import Scratch
from kedge.domain.messages import UserMessage
from kedge.engine.session import Session


class Audience:
    """Tasks that each read a subscription of their own and do nothing with what they get."""

    def __init__(self, engine: kedge.Engine, size: int) -> None:
        self.size = size
        self._engine = engine
        self._ready = asyncio.Semaphore(0)
        self._left = 0
        self._all_heard = asyncio.Event()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Audience"]:
        """Everybody waits for the next event."""
        tasks = [asyncio.create_task(self._listen()) for _ in range(self.size)]
        try:
            for _ in tasks:
                await self._ready.acquire()
            # One more turn of the loop, after which each of them waits inside its subscription.
            await asyncio.sleep(0)
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def hears(self, event: Awaitable[None]) -> None:
        """Make one event happen and wait until everybody has it."""
        self._left = self.size
        self._all_heard.clear()
        await event
        if self.size:
            await self._all_heard.wait()

    async def _listen(self) -> None:
        async with self._engine.events.subscribe() as events:
            self._ready.release()
            async for _ in events:
                self._left -= 1
                if self._left == 0:
                    self._all_heard.set()


async def subscribers(scratch: Scratch) -> AsyncIterator[Figure]:
    """Stored events and deltas that go to many, and the memory of those who wait."""
    many = scratch.size(500, 20)
    for name, make in (("stored event", _storing), ("delta", _announcing)):
        scratch.say(f"passing a {name} on to {many} subscribers")
        async with AsyncExitStack() as stack:
            candidates = [await _audience(stack, scratch, size, make) for size in (many, 0)]
            heard, unheard = await side_by_side(candidates, scratch.size(60, 2))
        extra = [a - b for a, b in zip(heard, unheard, strict=True)]
        yield figure_of(f"{name} until {many} subscribers have it", [e * 1e3 for e in extra], "ms")
        yield figure_of(f"{name} per subscriber", [e * 1e6 / many for e in extra], "us")
    scratch.say("weighing subscribers")
    yield await _memory(scratch)


def _storing(
    engine: kedge.Engine, session: Session, message: UserMessage
) -> Callable[[], Awaitable[None]]:
    return lambda: session.put_part(new_part(engine, message, "A short text."))


def _announcing(
    engine: kedge.Engine, session: Session, message: UserMessage
) -> Callable[[], Awaitable[None]]:
    part = new_part(engine, message, "")

    async def announce() -> None:
        session.delta(message.id, part.id, " word", offset=0)

    return announce


async def _audience(
    stack: AsyncExitStack,
    scratch: Scratch,
    size: int,
    make: Callable[[kedge.Engine, Session, UserMessage], Callable[[], Awaitable[None]]],
) -> Candidate:
    engine = await stack.enter_async_context(scratch.engine())
    session = await engine.sessions.create()
    message = new_message(engine, session)
    await session.put_message(message)
    happen = make(engine, session, message)
    audience = await stack.enter_async_context(Audience(engine, size).listening())
    return steady(lambda: audience.hears(happen()))


async def _memory(scratch: Scratch) -> Figure:
    few, many = scratch.size(500, 20), scratch.size(5_000, 100)
    async with scratch.engine() as engine:
        tracemalloc.start()
        try:
            samples = []
            for _ in range(scratch.size(3, 2)):
                held = [await _held_by(engine, size) for size in (few, many)]
                samples.append((held[1] - held[0]) / (many - few))
        finally:
            tracemalloc.stop()
    return figure_of("memory per idle subscriber, with its task", samples, "B")


async def _held_by(engine: kedge.Engine, size: int) -> int:
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    async with Audience(engine, size).listening():
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    return after - before
