"""What it takes before the first call: importing kedge, and opening and closing a database."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import kedge
from bench.figures import Figure, figure_of, ratio
from bench.rounds import Candidate, side_by_side, steady
from bench.scratch import Scratch
from bench.sessions import many_sessions


async def starting(scratch: Scratch) -> AsyncIterator[Figure]:
    """Imports in new processes, then databases: one to be made, a small one, a large one."""
    scratch.say("importing kedge")
    programs = ("import kedge", "import asyncio, sqlite3, msgspec")
    ours, theirs = await side_by_side([_program(p) for p in programs], scratch.size(15, 2))
    yield figure_of("start Python and import kedge", [each * 1e3 for each in ours], "ms")
    yield ratio("import kedge / asyncio, sqlite3, msgspec", ours, theirs)
    large, small = await many_sessions(scratch), scratch.path("small")
    scratch.say("opening databases")
    candidates = [
        _opening(scratch, lambda: scratch.path("new")),
        _opening(scratch, lambda: large),
        _opening(scratch, lambda: small),
    ]
    made, filled, empty = await side_by_side(candidates, scratch.size(25, 2))
    yield figure_of("open and close a new database", [each * 1e3 for each in made], "ms")
    yield figure_of("open and close a small database", [each * 1e3 for each in empty], "ms")
    yield ratio("open and close: many sessions / none", filled, empty)


def _program(text: str) -> Candidate:
    async def work() -> None:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", text)
        assert await process.wait() == 0

    return steady(work)


def _opening(scratch: Scratch, folder: Callable[[], Path]) -> Candidate:
    async def work() -> None:
        async with kedge.open(scratch.tree, data_dir=folder()):
            pass

    return steady(work)
