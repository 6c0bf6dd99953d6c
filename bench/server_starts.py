"""Starts of the servers by turns: how long until they answer, and what they hold when they rest."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from bench.figures import Figure
from bench.scratch import Scratch
from bench.server_figures import compared_memory, compared_times
from bench.server_memory import resident
from bench.server_sides import Program, served

_SETTLES = 3
"""Seconds after which a server that was asked something rests."""
_LEAST = 2
"""kedge is to take half as long."""


@dataclass(frozen=True, slots=True)
class _Start:
    healthy: float
    useful: float
    resident: int


async def starts(
    scratch: Scratch, programs: Sequence[Program], sessions: int
) -> AsyncIterator[Figure]:
    """Starts on data that is there already."""
    scratch.say("starting: " + " and ".join(program.name for program in programs))
    rounds = [
        [await _start(program, scratch.size(_SETTLES, 0)) for program in programs]
        for _ in range(scratch.size(5, 2))
    ]
    sides = list(zip(*rounds, strict=True))
    healthy = [[each.healthy for each in side] for side in sides]
    for figure in compared_times("server, start until it answers", healthy, least=_LEAST):
        yield figure
    useful = [[each.useful for each in side] for side in sides]
    name = f"server, start until it lists {sessions:,} sessions"
    for figure in compared_times(name, useful, least=_LEAST):
        yield figure
    held = [[each.resident for each in side] for side in sides]
    for figure in compared_memory("server, memory before the run", held):
        yield figure


async def _start(program: Program, settles: float) -> _Start:
    async with served(program) as server:
        await asyncio.sleep(settles)
        return _Start(server.healthy, server.useful, resident(server.pid))
