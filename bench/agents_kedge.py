"""kedge's agent in a process of its own, as somebody's program would embed it."""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import kedge
from bench.agents_sides import Side, Turn, configuration
from bench.processes import Process, started
from kedge.agent import Agent
from kedge.domain.events import PartDelta, SessionIdle
from kedge.engine.event_log import Subscription


class KedgeSide(Side):
    """The process as seen from the bench."""

    name = "kedge"

    def __init__(self, process: Process) -> None:
        self._process = process
        self.pid = process.pid

    async def turn(self, prompt: str) -> Turn:
        """Prompt in a new session."""
        await self._process.tell(prompt)
        return Turn(*json.loads(await self._process.line()))


@asynccontextmanager
async def kedge_side(
    worktree: Path, home: Path, url: str, subscribers: int
) -> AsyncIterator[KedgeSide]:
    """kedge on a worktree, with a home of its own."""
    config = home / "config"
    (config / "kedge").mkdir(parents=True)
    (config / "kedge" / "kedge.json").write_text(json.dumps(configuration(url)))
    environ = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(config)}
    environ |= {"XDG_DATA_HOME": str(home / "data")}
    command = (sys.executable, "-m", __name__, str(worktree), str(subscribers))
    async with started(*command, environ=environ) as process:
        yield KedgeSide(process)


async def _run(worktree: Path, subscribers: int) -> None:
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(kedge.open(worktree))
        agent = await stack.enter_async_context(Agent(engine))
        listening = [
            await stack.enter_async_context(engine.events.subscribe()) for _ in range(subscribers)
        ]
        while prompt := await asyncio.to_thread(sys.stdin.readline):
            session = await engine.sessions.create("Measured")
            heard = [asyncio.create_task(_hear(each, session.id)) for each in listening]
            await agent.prompt(session, prompt)
            turns = [await each for each in heard]
            print(json.dumps([min(at for at, _ in turns), min(n for _, n in turns)]), flush=True)


async def _hear(events: Subscription, session: str) -> tuple[int, int]:
    """When a subscriber heard of the end, and how many deltas before."""
    deltas = 0
    async for event in events:
        if event.type == PartDelta.type:
            deltas += 1
        elif event.type == SessionIdle.type and event.session_id == session:
            return time.monotonic_ns(), deltas
    raise RuntimeError("the events ended before the turn did")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.agents_kedge")
    parser.add_argument("worktree", type=Path)
    parser.add_argument("subscribers", type=int)
    given = parser.parse_args()
    asyncio.run(_run(given.worktree, given.subscribers))
