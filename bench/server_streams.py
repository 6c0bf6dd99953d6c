"""Many subscribers while several models speak: how late they hear it, and what it costs."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from bench.figures import Figure
from bench.processes import processor_time
from bench.scratch import Scratch
from bench.server_figures import compared_costs, compared_rates, compared_times
from bench.server_http import connected
from bench.server_listeners import listening
from bench.server_model import asking_for
from bench.server_sides import Side
from bench.server_turns import EVENTS, new_session, prompt

_SESSIONS = 5
_SETTLES = 1
"""Seconds in which what a server still does for the last round is over."""


@dataclass(frozen=True, slots=True)
class _Talk:
    """How much is said, and to how many."""

    subscribers: int
    a_second: int
    """Words of all sessions together."""
    seconds: int

    @property
    def words(self) -> int:
        """What each subscriber is to hear."""
        return self.a_second * self.seconds

    @property
    def name(self) -> str:
        """How figures call it."""
        return f"server, {self.a_second} events/s to {self.subscribers} subscribers"


@dataclass(frozen=True, slots=True)
class _Sample:
    usual: float
    worst: float
    processor: float
    """Seconds of a processor for each event that was heard."""
    between: float
    """Seconds for each event that was heard."""
    missing: int
    gone: int


async def streams(scratch: Scratch, sides: Sequence[Side]) -> AsyncIterator[Figure]:
    """The same talk through every server by turns."""
    talk = _Talk(scratch.size(200, 10), scratch.size(500, 100), scratch.size(4, 1))
    scratch.say(f"{talk.name}: {' and '.join(side.name for side in sides)}")
    settles = scratch.size(_SETTLES, 0)
    rounds = [
        [await _sample(side, talk, settles) for side in sides] for _ in range(scratch.size(3, 2))
    ]
    samples = list(zip(*rounds, strict=True))
    for side, found in zip(sides, samples, strict=True):
        if missing := sum(each.missing for each in found):
            scratch.notice(
                f"{side.name} did not deliver {missing:,} of"
                f" {talk.words * talk.subscribers * len(found):,} events and let"
                f" {sum(each.gone for each in found)} subscribers go"
            )
    usual = [[each.usual for each in side] for side in samples]
    worst = [[each.worst for each in side] for side in samples]
    between = [[each.between for each in side] for side in samples]
    costs = [[each.processor for each in side] for side in samples]
    for figure in (
        *compared_times(f"{talk.name}: late", usual),
        *compared_times(f"{talk.name}: one in 100 late", worst),
        *compared_rates(f"{talk.name}: delivered", between),
        *compared_costs(f"{talk.name}: processor time for each", costs),
    ):
        yield figure


async def _sample(side: Side, talk: _Talk, settles: int) -> _Sample:
    words = talk.words // _SESSIONS
    async with (
        listening(side.port, EVENTS, talk.subscribers, talk.words) as listeners,
        connected(side.port) as asking,
    ):
        sessions = [await new_session(asking) for _ in range(_SESSIONS)]
        before = processor_time(side.pid)
        for session in sessions:
            await prompt(asking, session, asking_for(words, talk.a_second // _SESSIONS))
        heard = await listeners.heard()
        worked = processor_time(side.pid) - before
    await asyncio.sleep(settles)
    return _Sample(
        usual=heard.usual,
        worst=heard.worst,
        processor=worked / heard.words,
        between=heard.seconds / heard.words,
        missing=talk.words * talk.subscribers - heard.words,
        gone=heard.gone,
    )
