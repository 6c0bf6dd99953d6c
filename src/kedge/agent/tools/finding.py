"""Where a text or some lines stand in another one; in time that grows with their length only."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

MOST_PLACES = 1000
"""So many are counted; nobody wants to know of more."""


def _without_blanks(line: str) -> str:
    return " ".join(line.split())


KEYS: tuple[Callable[[str], str], ...] = (str.rstrip, str.strip, _without_blanks)
"""What lines are compared by that are not exactly the same, the strictest first."""


def places_of(
    text: str, wanted: str, *, everywhere: bool = False, shared: int = 0
) -> Iterator[int]:
    """Where it stands: `everywhere` for all places that have at most so many `shared` letters;
    else the first ones, also where they overlap, to be counted."""
    step = len(wanted) - shared if everywhere else 1
    count = 0
    at = text.find(wanted)
    while at >= 0 and (everywhere or count < MOST_PLACES):
        yield at
        count += 1
        at = text.find(wanted, at + step)


def places_of_lines(
    lines: Sequence[str],
    wanted: Sequence[str],
    key: Callable[[str], str],
    *,
    everywhere: bool = False,
) -> Iterator[int]:
    """The numbers of the lines, from 0, at which those begin that the key takes for the wanted."""
    keys = [key(line) for line in lines]
    starts = [0, *accumulate(len(line) + 1 for line in keys)]
    haystack = "\n" + "\n".join(keys) + "\n"
    needle = "\n" + "\n".join(map(key, wanted)) + "\n"
    for at in places_of(haystack, needle, everywhere=everywhere, shared=1):
        yield bisect_right(starts, at) - 1
