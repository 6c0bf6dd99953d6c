"""The servers that are compared: how each is started, and how long until it answers."""

import asyncio
import json
import os
import random
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.agents_opencode import prepared
from bench.agents_sides import configuration
from bench.processes import started
from bench.server_data import Filled
from bench.server_http import connected
from bench.server_load import Load

_STARTS = 120
"""Seconds that it may take to start."""
_EVERY = 0.02
"""Seconds between two questions while it starts: OpenCode never answers those that come early."""
_PORTS = range(20_000, 32_000)


@dataclass(frozen=True, slots=True)
class Program:
    """A server with a home and data of its own; the port comes last in its command."""

    name: str
    command: Sequence[str]
    environ: Mapping[str, str]
    worktree: Path


@dataclass(frozen=True, slots=True)
class Served:
    """A server that answers."""

    pid: int
    port: int
    healthy: float
    """Seconds from its start to the first answer that all is well."""
    useful: float
    """Seconds from its start to the first list of sessions."""


@dataclass(frozen=True, slots=True)
class Side:
    """A server that is measured, with what was put into it."""

    name: str
    pid: int
    port: int
    filled: Filled
    load: Load


def kedge_program(worktree: Path, home: Path, model_url: str) -> Program:
    """kedge, as installed here."""
    config = home / "config"
    (config / "kedge").mkdir(parents=True)
    (config / "kedge" / "kedge.json").write_text(json.dumps(configuration(model_url)))
    # Nothing of whoever runs this: a password, say, would keep the load out.
    environ = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(config),
        "PATH": os.environ.get("PATH", os.defpath),
    }
    data = str(home / "data")
    command = (sys.executable, "-m", "kedge", "serve", "--data", data, str(worktree), "--port")
    return Program("kedge", command, environ, worktree)


def opencode_program(program: Path, worktree: Path, home: Path, model_url: str) -> Program:
    """The real OpenCode, off the network."""
    command = (str(program), "serve", "--hostname", "127.0.0.1", "--port")
    # It complains of its own subscribers when there are many.
    environ = {**prepared(home, model_url), "NODE_NO_WARNINGS": "1"}
    return Program("OpenCode", command, environ, worktree)


@asynccontextmanager
async def served(program: Program) -> AsyncIterator[Served]:
    """A server that is up until the block ends."""
    port = _free_port()
    begin = time.monotonic()
    async with started(
        *program.command, str(port), folder=program.worktree, environ=program.environ
    ) as process:
        # It says where it listens, or ends without a word.
        said = asyncio.create_task(process.line())
        try:
            async with asyncio.timeout(_STARTS):
                healthy = await _first_answer(port, "/global/health", said) - begin
                useful = await _first_answer(port, "/session?limit=1000", said) - begin
            yield Served(process.pid, port, healthy, useful)
        finally:
            said.cancel()
            with suppress(ProcessLookupError):
                await process.stop()


def _free_port() -> int:
    """One that the system gives to nobody of its own accord, so that it is free a moment later."""
    while True:
        port = random.choice(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


async def _first_answer(port: int, path: str, said: asyncio.Task[str]) -> float:
    """When the first of many equal questions was answered."""
    asking: list[asyncio.Task[float | None]] = []
    try:
        while True:
            asking.append(asyncio.create_task(_answered(port, path)))
            await asyncio.sleep(_EVERY)
            answers = [each.result() for each in asking if each.done()]
            if found := [at for at in answers if at is not None]:
                return min(found)
            if said.done():
                said.result()
            asking = [each for each in asking if not each.done()]
    finally:
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def _answered(port: int, path: str) -> float | None:
    """When it was answered; None if nobody is there yet, or not with a success."""
    try:
        async with connected(port) as connection:
            await connection.ask("GET", path)
    except (OSError, RuntimeError, asyncio.IncompleteReadError):
        return None
    return time.monotonic()
