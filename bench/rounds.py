"""Times candidates side by side, so that whatever else the machine does hits them alike."""

import gc
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

Work: TypeAlias = Callable[[], Awaitable[object]]

WARM_UP = 2
"""Rounds of each candidate that do not count."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something to be timed, round by round."""

    prepare: Callable[[], Awaitable[Work]]
    """Makes one round ready; only the work it gives is timed."""
    operations: int = 1
    """How many operations one round has."""


def steady(work: Work, operations: int = 1) -> Candidate:
    """A candidate that needs no preparation."""

    async def prepare() -> Work:
        return work

    return Candidate(prepare, operations)


async def side_by_side(
    candidates: Sequence[Candidate],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    warm_up: int = WARM_UP,
) -> list[list[float]]:
    """Seconds per operation, for each candidate in each round: A B C, A B C, ..."""
    samples: list[list[float]] = [[] for _ in candidates]
    for turn in range(warm_up + rounds):
        for candidate, found in zip(candidates, samples, strict=True):
            work = await candidate.prepare()
            with no_collection():
                begin = clock()
                await work()
                seconds = clock() - begin
            if turn >= warm_up:
                found.append(seconds / candidate.operations)
    return samples


@contextmanager
def no_collection() -> Iterator[None]:
    """Python's garbage is collected before the block, and not in it."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
