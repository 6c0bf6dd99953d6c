"""Requests by the second, and what the load could ask at most of a server that does nothing."""

import statistics
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPMethod

from bench.figures import Figure, figure_of
from bench.scratch import Scratch
from bench.server_data import PAGE, Amount, check_alike, page_path, sessions_path
from bench.server_figures import compared_rates
from bench.server_http import request
from bench.server_load import Loaded
from bench.server_sides import Side
from bench.server_stub import stub

_WARM_UP = 2
_SOME = 50
"""How many sessions are asked for by turns, one at a time."""


@dataclass(frozen=True, slots=True)
class _Question:
    """What is asked again and again."""

    name: str
    requests: Sequence[Sequence[bytes]]
    """Of each server, taken by turns."""
    count: int
    """Of each round."""
    least: float | None


async def requests(
    scratch: Scratch, sides: Sequence[Side], wanted: Amount
) -> AsyncIterator[Figure]:
    """Every question to every server by turns, and then as much to one that does nothing."""
    sizes: list[tuple[_Question, int]] = []
    for question in _questions(scratch, sides, wanted):
        scratch.say(f"{question.name}: {' and '.join(side.name for side in sides)}")
        rounds = [
            [
                await side.load.ask(asked, question.count)
                for side, asked in zip(sides, question.requests, strict=True)
            ]
            for _ in range(_WARM_UP + scratch.size(15, 2))
        ]
        answers = list(zip(*rounds[_WARM_UP:], strict=True))
        found = [statistics.median(each.size for each in side) for side in answers]
        check_alike(question.name, found)
        sizes.append((question, round(found[0])))
        for figure in _figures(question, sides, answers):
            yield figure
    async for figure in _most(scratch, sizes):
        yield figure


def _questions(scratch: Scratch, sides: Sequence[Side], wanted: Amount) -> Iterator[_Question]:
    yield _Question(
        "GET session",
        [[_get(side, f"/session/{id}") for id in side.filled.sessions[:_SOME]] for side in sides],
        scratch.size(1_000, 40),
        8,
    )
    yield _Question(
        f"list of {wanted.sessions:,} sessions",
        [[_get(side, sessions_path(wanted))] for side in sides],
        scratch.size(40, 8),
        8,
    )
    yield _Question(
        f"page of {PAGE} of {wanted.messages:,} messages",
        [[_get(side, page_path(side.filled))] for side in sides],
        scratch.size(100, 8),
        6,
    )
    # More than kedge keeps as they were sent.
    yield _Question(
        f"pages of {PAGE} of {wanted.messages:,} messages by turns",
        [[_get(side, path) for path in side.filled.pages] for side in sides],
        scratch.size(100, 8),
        None,
    )
    new = {"title": "Measured"}
    yield _Question(
        "POST session",
        [[request(side.port, HTTPMethod.POST, "/session", new)] for side in sides],
        scratch.size(100, 8),
        None,
    )


def _get(side: Side, path: str) -> bytes:
    return request(side.port, HTTPMethod.GET, path)


def _figures(
    question: _Question, sides: Sequence[Side], answers: Sequence[Sequence[Loaded]]
) -> Iterator[Figure]:
    details = {
        f"{side.name} us of a processor": statistics.mean(each.processor for each in found) * 1e6
        for side, found in zip(sides, answers, strict=True)
    }
    seconds = [[each.seconds for each in found] for found in answers]
    yield from compared_rates(
        f"server, {question.name}", seconds, least=question.least, details=details
    )


async def _most(scratch: Scratch, sizes: Sequence[tuple[_Question, int]]) -> AsyncIterator[Figure]:
    """What the load could ask if answers of these sizes cost nothing."""
    async with stub() as (port, asking):
        for question, size in sizes:
            asked = [request(port, HTTPMethod.GET, f"/{size}")]
            rounds = [await asking.ask(asked, question.count) for _ in range(scratch.size(5, 2))]
            rates = [1 / each.seconds for each in rounds]
            name = f"server, {question.name}: asked at most"
            yield figure_of(name, rates, "/s", details={"B": float(size)})
