"""Figures of kedge's server, and beside them how many times as much OpenCode's takes."""

import statistics
from collections.abc import Iterator, Mapping, Sequence

from bench.figures import Figure, faster, figure_of

_AGAINST = "OpenCode / kedge"
_MEMORY_LEAST = 4
"""kedge is to hold a quarter."""


def compared_times(
    name: str, sides: Sequence[Sequence[float]], *, least: float | None = None
) -> Iterator[Figure]:
    """Of seconds in each round: kedge's, and OpenCode's where there is one."""
    ours, *theirs = sides
    yield figure_of(name, [each * 1e3 for each in ours], "ms")
    for other in theirs:
        yield faster(f"{name}: {_AGAINST}", ours, other, least=least)


def compared_costs(name: str, sides: Sequence[Sequence[float]]) -> Iterator[Figure]:
    """Of seconds of a processor in each round."""
    ours, *theirs = sides
    yield figure_of(name, [each * 1e6 for each in ours], "us")
    for other in theirs:
        yield faster(f"{name}: {_AGAINST}", ours, other)


def compared_rates(
    name: str,
    sides: Sequence[Sequence[float]],
    *,
    least: float | None = None,
    details: Mapping[str, float] | None = None,
) -> Iterator[Figure]:
    """Of seconds that one of many took in each round."""
    ours, *theirs = sides
    yield figure_of(name, [1 / each for each in ours], "/s", details=details)
    for other in theirs:
        yield faster(f"{name}: {_AGAINST}", ours, other, least=least)


def compared_memory(name: str, sides: Sequence[Sequence[int]]) -> Iterator[Figure]:
    """Of bytes in each round."""
    megabytes = [[each / 1e6 for each in side] for side in sides]
    ours, *theirs = megabytes
    yield figure_of(name, ours, "MB")
    for other in theirs:
        pairs = [b / a for a, b in zip(ours, other, strict=True)]
        details = {"kedge MB": statistics.median(ours), "OpenCode MB": statistics.median(other)}
        full = f"{name}: {_AGAINST}"
        yield figure_of(full, pairs, "x", least=_MEMORY_LEAST, details=details)
