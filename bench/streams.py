"""Text that is stored while it is spoken, compared with another version of kedge."""

from collections.abc import AsyncIterator

from bench.before import compared
from bench.figures import Figure
from bench.scratch import Scratch

MOST = 1.1
"""How many times as long it may take."""


async def streams_compared(scratch: Scratch) -> AsyncIterator[Figure]:
    """As fast as can be until all is idle, and what a processor works at the pace of models."""
    many = scratch.size(100, 5)
    for case, streams, tokens, what, most in (
        ("speaking", 1, scratch.size(2_000, 50), "until idle", MOST),
        ("speaking", many, 100, "until idle", MOST),
        ("speaking_slowly", many, scratch.size(40, 2), "20 a second each, processor time", None),
    ):
        name = f"{streams:,} streams of {tokens:,} tokens, {what}"
        scratch.say(f"comparing: {name}")
        given, rounds = f"{streams}x{tokens}", scratch.size(15, 2)
        for figure in await compared(scratch, case, given, rounds=rounds, names=[name], most=most):
            yield figure
