"""The first page of sessions: it must not matter how many sessions there are."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import kedge
from bench.figures import Figure, ratio
from bench.filled_database import add_sessions
from bench.rounds import Candidate, side_by_side, steady
from bench.scratch import Scratch

_TARGET = 1.5
_FEW = 100
_PAGE = 40
_REPEATS = 5


async def sessions(scratch: Scratch) -> AsyncIterator[Figure]:
    """Every way to list, in a database of many sessions and in one of few."""
    many = await many_sessions(scratch)
    few = await scratch.filled_with(f"{_FEW} sessions", partial(add_sessions, count=_FEW))
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(scratch.engine(each)) for each in (many, few)]
        for name, wanted in _ways(scratch).items():
            scratch.say(f"listing sessions {name}")
            candidates = [_listing(engine, wanted) for engine in engines]
            large, small = await side_by_side(candidates, scratch.size(40, 2))
            yield ratio(f"first page of sessions {name}", large, small, target=_TARGET)


async def many_sessions(scratch: Scratch) -> Path:
    """The data folder of a database with very many sessions."""
    count = scratch.size(100_000, 300)
    return await scratch.filled_with(f"{count} sessions", partial(add_sessions, count=count))


def _ways(scratch: Scratch) -> Mapping[str, Mapping[str, Any]]:
    folder = scratch.tree / "pkg" / "left"
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "of the project": {},
        "of a directory": {"directory": folder},
        "below a path": {"path": "pkg"},
        "that are roots": {"roots": True},
        "everywhere": {"everywhere": True},
        "not archived": {"archived": False},
    }


def _listing(engine: kedge.Engine, wanted: Mapping[str, Any]) -> Candidate:
    async def work() -> None:
        for _ in range(_REPEATS):
            page = await engine.sessions.list(limit=_PAGE, **wanted)
            assert len(page.sessions) == _PAGE

    return steady(work, _REPEATS)
