"""A prompt that writes one file, and a page of messages, compared with another version of kedge."""

from collections.abc import AsyncIterator

from bench.before import compared
from bench.figures import Figure
from bench.scratch import Scratch

MOST = 1.1
"""How many times as long it may take."""


async def journeys_compared(scratch: Scratch) -> AsyncIterator[Figure]:
    """From an agent's prompt to its answer, and from a question for messages to the values."""
    prompts, pages = scratch.size(10, 1), scratch.size(20, 2)
    for case, amount, name in (
        ("prompts", prompts, f"{prompts} prompts that write one file each"),
        ("pages", pages, f"{pages} pages of 100 messages"),
    ):
        scratch.say(f"comparing: {name}")
        rounds = scratch.size(14, 2)
        for figure in await compared(
            scratch, case, str(amount), rounds=rounds, names=[name], most=MOST
        ):
            yield figure
