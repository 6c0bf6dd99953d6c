"""One version of kedge, timed round by round for `bench.before`; only what it imports differs.

It prints where its kedge is, and then for each line that it is given the seconds of one round.
"""

import asyncio
import itertools
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import kedge
from bench.engines import changed_by, protecting
from bench.rounds import no_collection
from bench.scratch import Scratch
from bench.server_cuts import cut_start
from bench.snapshots_sides import open_snapshots, wait_until_independent
from bench.trees import committed, sizes
from kedge.agent import Agent

Round = Callable[[], Awaitable[tuple[float, ...]]]


@asynccontextmanager
async def first_command(scratch: Scratch, root: str) -> AsyncIterator[Round]:
    """From opening a worktree to the snapshot after the first command, and until all is kept."""

    async def measure() -> tuple[float, ...]:
        _write_out(scratch)
        return _first_command(Path(root), scratch.path("kedge"))

    yield measure


def _first_command(root: Path, data: Path) -> tuple[float, float]:
    written = root / "written by a command"
    with no_collection():
        begin = time.perf_counter()
        snapshots = open_snapshots(root, data)
        snapshots.track()
        written.write_text("as short as can be\n")
        snapshots.track()
        ended = time.perf_counter()
        wait_until_independent(snapshots)
        kept = time.perf_counter()
    written.unlink()
    snapshots.close()
    shutil.rmtree(data)
    return ended - begin, kept - begin


@asynccontextmanager
async def revert(scratch: Scratch, number: str) -> AsyncIterator[Round]:
    """The revert of a session that changed so many files of the middle tree."""
    _, middle, _ = sizes(scratch)
    tree = committed(scratch, middle)
    async with protecting(scratch, tree) as engine:

        async def measure() -> tuple[float, ...]:
            session, prompt = await changed_by(engine, lambda: tree.change(int(number)))
            _write_out(scratch)
            with no_collection():
                begin = time.perf_counter()
                receipt = await session.revert(prompt)
                seconds = time.perf_counter() - begin
            assert [each.outcome for each in receipt.files] == ["restored"] * int(number)
            return (seconds,)

        yield measure


@asynccontextmanager
async def speaking(scratch: Scratch, amount: str) -> AsyncIterator[Round]:
    """So many streams of so many tokens, as fast as can be, until their sessions are idle."""
    streams, tokens = map(int, amount.split("x"))
    async with _speaker(scratch) as speak:

        async def measure() -> tuple[float, ...]:
            _write_out(scratch)
            with no_collection():
                begin = time.perf_counter()
                await asyncio.gather(*(speak(tokens, 0) for _ in range(streams)))
                return (time.perf_counter() - begin,)

        yield measure


@asynccontextmanager
async def speaking_slowly(scratch: Scratch, amount: str) -> AsyncIterator[Round]:
    """What a processor works for streams that say twenty tokens a second, as models do."""
    streams, tokens = map(int, amount.split("x"))
    async with _speaker(scratch) as speak:

        async def measure() -> tuple[float, ...]:
            _write_out(scratch)
            with no_collection():
                begin = time.process_time()
                await asyncio.gather(*(speak(tokens, 1 / 20) for _ in range(streams)))
                return (time.process_time() - begin,)

        yield measure


@asynccontextmanager
async def _speaker(
    scratch: Scratch,
) -> AsyncIterator[Callable[[int, float], Awaitable[None]]]:
    """Speaks so many tokens in a new session, with a pause after each; somebody listens."""
    settings = kedge.Settings(snapshots=False)
    async with scratch.engine(settings=settings) as engine, engine.events.subscribe() as events:

        async def speak(tokens: int, pause: float) -> None:
            session = await engine.sessions.create("Measured")
            async with session.turn("Speak") as turn, turn.step() as step, step.speak() as out:
                for _ in range(tokens):
                    await out.write("token ")
                    await asyncio.sleep(pause)

        listening = asyncio.create_task(_listen(events))
        yield speak
        listening.cancel()


async def _listen(events: "kedge.Subscription") -> None:
    async for _ in events:
        pass


@asynccontextmanager
async def prompts(scratch: Scratch, number: str) -> AsyncIterator[Round]:
    """So many prompts to kedge's agent, one after the other; each has it write a new file."""
    tree = committed(scratch, sizes(scratch)[1])
    names = (f"written-{count}.txt" for count in itertools.count())
    async with protecting(scratch, tree) as engine, Agent(engine, environ={}) as agent:
        session = await engine.sessions.create("Measured")

        async def measure() -> tuple[float, ...]:
            _write_out(scratch)
            with no_collection():
                begin = time.perf_counter()
                for name in itertools.islice(names, int(number)):
                    await agent.prompt(session, f"write {name} two", model="kedge/offline")
                return (time.perf_counter() - begin,)

        await measure()
        assert (tree.root / "written-0.txt").read_text() == "two\n"
        yield measure


@asynccontextmanager
async def pages(scratch: Scratch, number: str) -> AsyncIterator[Round]:
    """So many pages of a hundred messages, each with a text."""
    async with scratch.engine(settings=kedge.Settings(snapshots=False)) as engine:
        session = await engine.sessions.create("Measured")
        for _ in range(50):
            async with session.turn("Say something") as turn, turn.step() as step:
                await step.text("Something.")

        async def measure() -> tuple[float, ...]:
            _write_out(scratch)
            with no_collection():
                begin = time.perf_counter()
                for _ in range(int(number)):
                    page = await session.messages(limit=100)
                    assert len(page.messages) == 100
                return (time.perf_counter() - begin,)

        yield measure


CASES: dict[str, Callable[..., AbstractAsyncContextManager[Round]]] = {
    case.__name__: case
    for case in (first_command, revert, speaking, speaking_slowly, prompts, pages, cut_start)
}


def _write_out(scratch: Scratch) -> None:
    """What the other side left to be written must not be paid for by this one."""
    if not scratch.quick:
        os.sync()


async def main(folder: str, quick: str, case: str, *given: str) -> None:
    """Answer until nobody asks any more."""
    scratch = Scratch(Path(folder), quick == "1")
    print(Path(kedge.__file__).parent, flush=True)
    async with CASES[case](scratch, *given) as measure:
        while await asyncio.to_thread(sys.stdin.readline):
            print(*await measure(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
