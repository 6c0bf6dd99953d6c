"""What the agent costs around the model: kedge's and the real OpenCode's, with the same model.

The model says all its words at once, so that nothing is waited for but the agent. kedge is embedded
in a program with its subscribers; OpenCode, which cannot be, serves its own over HTTP.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.agents_kedge import kedge_side
from bench.agents_model import Model, asking_for, model
from bench.agents_opencode import opencode_side
from bench.agents_sides import Side
from bench.figures import Figure, faster, figure_of
from bench.processes import processor_time
from bench.scratch import Scratch
from bench.trees import committed, sizes
from tests.support.opencode import Unavailable, install

_SUBSCRIBERS = 10
_WARM_UP = 3
_PATIENCE = 120
"""Seconds after which a turn is taken to have failed."""
_IN = {"ms": 1e3, "us": 1e6}
_SETTLES = 0.3
"""Seconds in which what an agent does after it said that it is idle still counts as the turn's."""


@dataclass(frozen=True, slots=True)
class _Sample:
    """What one turn cost, in seconds."""

    waited: float
    """From the model's last byte until a subscriber heard that the session is idle."""
    processor: float
    """Of a processor, for each token."""


async def agent(scratch: Scratch) -> AsyncIterator[Figure]:
    """Turns of both agents by turns; OpenCode's are left out where it cannot be had."""
    async with AsyncExitStack() as stack:
        talker = await stack.enter_async_context(model())
        sides = [await stack.enter_async_context(side) for side in await _sides(scratch, talker)]
        for tokens in (1, scratch.size(2_000, 200)):
            names = " and ".join(side.name for side in sides)
            scratch.say(f"turns of {_amount(tokens)}: {names}")
            rounds = [
                [await _measured(side, talker, tokens) for side in sides]
                for _ in range(_WARM_UP + scratch.size(15, 2))
            ]
            for figure in _figures(tokens, rounds[_WARM_UP:]):
                yield figure


async def _sides(scratch: Scratch, talker: Model) -> list[AbstractAsyncContextManager[Side]]:
    root = committed(scratch, sizes(scratch)[0]).root
    sides: list[AbstractAsyncContextManager[Side]] = [
        kedge_side(root, scratch.path("home"), talker.url, _SUBSCRIBERS)
    ]
    if (program := await _opencode(scratch)) is not None:
        home = scratch.path("home")
        sides.append(opencode_side(program, root, home, talker.url, _SUBSCRIBERS))
    return sides


async def _opencode(scratch: Scratch) -> Path | None:
    if scratch.quick:
        scratch.say("OpenCode's agent is left out: a quick run fetches nothing")
        return None
    try:
        return await asyncio.to_thread(install)
    except Unavailable as why:
        scratch.notice(f"OPENCODE'S AGENT IS NOT MEASURED: {why}")
        return None


async def _measured(side: Side, talker: Model, tokens: int) -> _Sample:
    before = processor_time(side.pid)
    async with asyncio.timeout(_PATIENCE):
        turn = await side.turn(asking_for(tokens))
        last_byte = await talker.last_byte()
    if turn.deltas < tokens:
        raise RuntimeError(f"{side.name} passed on {turn.deltas} of {tokens} tokens")
    await asyncio.sleep(_SETTLES)
    worked = processor_time(side.pid) - before
    return _Sample(waited=(turn.idle_at - last_byte) / 1e9, processor=worked / tokens)


def _figures(tokens: int, rounds: Sequence[Sequence[_Sample]]) -> Iterator[Figure]:
    sides = list(zip(*rounds, strict=True))
    of = _amount(tokens)
    waited = [[each.waited for each in side] for side in sides]
    yield from _compared(f"last byte of {of} until idle", waited, "ms")
    if tokens > 1:
        worked = [[each.processor for each in side] for side in sides]
        yield from _compared(f"processor time for each of {of}", worked, "us")


def _amount(tokens: int) -> str:
    return "1 token" if tokens == 1 else f"{tokens:,} tokens"


def _compared(name: str, sides: Sequence[Sequence[float]], unit: str) -> Iterator[Figure]:
    ours, *theirs = sides
    yield figure_of(name, [each * _IN[unit] for each in ours], unit)
    if theirs:
        yield faster(f"{name}: OpenCode / kedge", ours, theirs[0], least=1)
