"""kedge's server beside the real OpenCode's: the same data, the same requests, by turns.

Both are filled through their own routes and stay up together; while one is asked, the other rests.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

from bench.figures import Figure
from bench.scratch import Scratch
from bench.server_data import Amount, Filled, check, fill
from bench.server_figures import compared_memory
from bench.server_load import load
from bench.server_memory import resident
from bench.server_model import model
from bench.server_requests import requests
from bench.server_sides import Program, Side, kedge_program, opencode_program, served
from bench.server_starts import starts
from bench.server_streams import streams
from bench.server_turns import turns
from bench.trees import committed, sizes
from tests.support.opencode import Unavailable, install

_SETTLES = 2
"""Seconds between two looks at what a server holds when the run is over."""


async def server(scratch: Scratch) -> AsyncIterator[Figure]:
    """Starts, requests, prompts, streams and memory; OpenCode's where it can be had."""
    wanted = Amount(sessions=scratch.size(1_000, 30), messages=scratch.size(5_000, 120))
    async with AsyncExitStack() as stack:
        model_url = await stack.enter_async_context(model())
        programs = await _programs(scratch, model_url)
        scratch.say(f"filling: {' and '.join(program.name for program in programs)}")
        filled = await asyncio.gather(*[_filled(each, wanted) for each in programs])
        async for figure in starts(scratch, programs, wanted.sessions):
            yield figure
        sides = [
            await _side(stack, program, found, wanted)
            for program, found in zip(programs, filled, strict=True)
        ]
        async for figure in requests(scratch, sides, wanted):
            yield figure
        async for figure in turns(scratch, sides):
            yield figure
        async for figure in streams(scratch, sides):
            yield figure
        for figure in compared_memory("server, memory after the run", await _held(scratch, sides)):
            yield figure


async def _programs(scratch: Scratch, model_url: str) -> list[Program]:
    root = committed(scratch, sizes(scratch)[0]).root
    programs = [kedge_program(root, scratch.path("home"), model_url)]
    if scratch.quick:
        scratch.say("OpenCode's server is left out: a quick run fetches nothing")
        return programs
    try:
        opencode = await asyncio.to_thread(install)
    except Unavailable as why:
        scratch.notice(f"OPENCODE'S SERVER IS NOT MEASURED: {why}")
        return programs
    return [*programs, opencode_program(opencode, root, scratch.path("home"), model_url)]


async def _filled(program: Program, wanted: Amount) -> Filled:
    async with served(program) as running:
        return await fill(running.port, wanted)


async def _side(stack: AsyncExitStack, program: Program, filled: Filled, wanted: Amount) -> Side:
    running = await stack.enter_async_context(served(program))
    asking = await stack.enter_async_context(load(running.port, running.pid))
    await check(program.name, running.port, filled, wanted)
    return Side(program.name, running.pid, running.port, filled, asking)


async def _held(scratch: Scratch, sides: Sequence[Side]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in sides]
    for _ in range(scratch.size(3, 2)):
        await asyncio.sleep(scratch.size(_SETTLES, 0))
        for side, held in zip(sides, found, strict=True):
            held.append(resident(side.pid))
    return found
