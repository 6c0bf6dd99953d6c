"""Work on many files shared out among threads, so that they wait for the disk together."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_AT_ONCE = 8
"""Together, the file system writes its journal, and the disk empties its cache, less often."""

T = TypeVar("T")
R = TypeVar("R")


def in_shares(
    work: Callable[[Sequence[T]], list[R]], things: Sequence[T], *, least: int = 1
) -> list[R]:
    """What `work` makes of each thing, in their order; each thread has a share of `least` or more.

    If a share raises, the others are over or never begun when this raises.
    """
    threads = min(_AT_ONCE, len(things) // least)
    if threads < 2:
        return work(things)
    with ThreadPoolExecutor(threads) as pool:
        # Handing over one by one would take longer than most of the work.
        shares = list(pool.map(work, [things[first::threads] for first in range(threads)]))
    return [shares[number % threads][number // threads] for number in range(len(things))]
