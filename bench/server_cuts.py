"""Starts of a server that was killed in the middle of many turns: until it answers, and until every
turn says that it was cut off."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from bench.before import compared
from bench.figures import Figure
from bench.scratch import Scratch
from bench.server_http import Connection, connected
from bench.server_sides import Program, Served, served

_LOOK = 0.02
_TALKS = "slow 30000 100ms huge 200KB"
_WORKS = "bash sleep 3000"
_STAYS = "bash trap '' TERM; while true; do sleep 1; done"
"""A command that does not end when it is asked to."""
CUTS = {
    "turns": ((_TALKS, _WORKS), 100),
    "commands that ignore SIGTERM": ((_STAYS,), 30),
}
"""What is cut off, and how often."""


async def cut_starts_compared(scratch: Scratch) -> AsyncIterator[Figure]:
    """The same start with this version and with another one."""
    for case, (_, full) in CUTS.items():
        number = scratch.size(full, 2)
        name = f"server, start with {number} cut {case}"
        scratch.say(f"comparing: {name}")
        names = [f"{name}, until it answers", f"{name}, until all are recovered"]
        for figure in await compared(
            scratch,
            "cut_start",
            case,
            str(number),
            rounds=scratch.size(3, 1),
            names=names,
            warm_up=scratch.size(1, 0),
        ):
            yield figure


@asynccontextmanager
async def cut_start(
    scratch: Scratch, case: str, number: str
) -> AsyncIterator[Callable[[], Awaitable[tuple[float, ...]]]]:
    """Seconds from a start until it answers, and until all that a kill cut off is recovered."""
    texts, _ = CUTS[case]
    prompts = [texts[n % len(texts)] for n in range(int(number))]

    async def measure() -> tuple[float, ...]:
        program = _program(scratch)
        sessions = await _killed_in_the_middle(program, prompts)
        begin = time.monotonic()
        async with served(program) as server, connected(server.port) as connection:
            await _until(connection, sessions, _is_over)
            recovered = time.monotonic() - begin
        return server.useful, recovered

    yield measure


def _program(scratch: Scratch) -> Program:
    """The kedge of this process, with a home of its own."""
    home, worktree = scratch.path("home"), scratch.path("worktree")
    home.mkdir()
    worktree.mkdir()
    environ = {
        "HOME": str(home),
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": os.environ["PYTHONPATH"],
    }
    data = str(home / "data")
    command = (sys.executable, "-m", "kedge", "serve", "--data", data, str(worktree), "--port")
    return Program("kedge", command, environ, worktree)


async def _killed_in_the_middle(program: Program, prompts: Sequence[str]) -> list[str]:
    async with AsyncExitStack() as stack:
        server: Served = await stack.enter_async_context(served(program))
        connection = await stack.enter_async_context(connected(server.port))
        sessions = [(await connection.ask("POST", "/session", {}))["id"] for _ in prompts]
        for session, text in zip(sessions, prompts, strict=True):
            body = {"parts": [{"type": "text", "text": text}]}
            await connection.ask("POST", f"/session/{session}/prompt_async", body)
        await _until(connection, sessions, _is_under_way)
        os.kill(server.pid, signal.SIGKILL)
    return sessions


async def _until(
    connection: Connection, sessions: Sequence[str], holds: Callable[[Any], bool]
) -> None:
    """Wait until something holds of the messages of every session."""
    waiting = list(sessions)
    while waiting:
        if holds(await connection.ask("GET", f"/session/{waiting[-1]}/message")):
            waiting.pop()
        else:
            await asyncio.sleep(_LOOK)


def _is_under_way(messages: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether the answer speaks, or runs a command."""
    return any(
        part.get("text") or part.get("state", {}).get("status") == "running"
        for each in messages[1:]
        for part in each["parts"]
    )


def _is_over(messages: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether the answer says that it was cut off."""
    return "error" in messages[-1]["info"]
