"""Two versions of kedge side by side: this checkout and an older one, in processes that take turns.

`python -m bench --before DIR` says which. The benchmarks are this checkout's for both, so what they
call must be there in both.
"""

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.figures import Figure, ratio
from bench.processes import Process, started
from bench.rounds import WARM_UP
from bench.scratch import Scratch

_HERE = Path(__file__).parents[1]


async def compared(
    scratch: Scratch,
    case: str,
    *given: str,
    rounds: int,
    names: Sequence[str],
    warm_up: int = WARM_UP,
    most: float | None = None,
) -> list[Figure]:
    """How many times as long a case of `bench.before_side` takes as it did; a figure per name."""
    assert scratch.before is not None
    now: list[list[float]] = []
    then: list[list[float]] = []
    async with (
        _side(scratch, _HERE, case, given) as after,
        _side(scratch, scratch.before, case, given) as before,
    ):
        sides = [(after, now), (before, then)]
        for turn in range(warm_up + rounds):
            # Neither is always the one that comes second.
            for process, found in sides if turn % 2 else reversed(sides):
                await process.tell("once more")
                taken = [float(each) for each in (await process.line()).split()]
                if turn >= warm_up:
                    found.append(taken)
    columns = zip(names, zip(*now, strict=True), zip(*then, strict=True), strict=True)
    return [
        ratio(f"{name}, after / before", ours, theirs, target=most)
        for name, ours, theirs in columns
    ]


@asynccontextmanager
async def _side(
    scratch: Scratch, checkout: Path, case: str, given: Sequence[str]
) -> AsyncIterator[Process]:
    folder = scratch.path("side")
    folder.mkdir()
    command = [sys.executable, "-m", "bench.before_side", str(folder), str(int(scratch.quick))]
    environ = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{_HERE}"}
    async with started(*command, case, *given, environ=environ) as process:
        version = (await process.line()).strip()
        if Path(version) != checkout / "src/kedge":
            raise RuntimeError(f"{version} was measured instead of {checkout}/src/kedge")
        yield process
