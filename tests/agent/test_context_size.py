"""How much a model can take in, and from when on a conversation is compacted."""

from typing import Any

import msgspec
import pytest

from kedge.agent.context_size import (
    ContextSize,
    context_size,
    is_automatic,
    prunes,
    tail_budget,
    total_of,
)
from kedge.config.values import CompactionConfig
from kedge.domain.providers import Limits, ModelInfo
from kedge.domain.sessions import CacheCount, TokenCount
from kedge.model.offline.commands import offline_info


def model(context: int, output: int, input: int | None = None) -> ModelInfo:
    """A model with these limits."""
    limits = Limits(context=context, output=output, input=input)
    return msgspec.structs.replace(offline_info(), limit=limits)


@pytest.mark.parametrize(
    ("limits", "config", "environ", "usable", "start"),
    [
        ((100_000, 10_000), {}, {}, 90_000, 90_000),
        # An answer has 32,000 tokens at most, whatever the list of models says.
        ((200_000, 64_000), {}, {}, 168_000, 168_000),
        ((200_000, 0), {}, {}, 168_000, 168_000),
        (
            (200_000, 64_000),
            {},
            {"OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX": "50000"},
            150_000,
            150_000,
        ),
        ((200_000, 64_000), {}, {"OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX": "x"}, 168_000, 168_000),
        # At least half of it is used.
        ((8_000, 8_000), {}, {}, 4_000, 4_000),
        # Of an input limit less is reserved, and `reserved` counts there alone.
        ((200_000, 64_000, 150_000), {}, {}, 130_000, 130_000),
        ((200_000, 4_000, 150_000), {}, {}, 146_000, 146_000),
        ((200_000, 64_000, 150_000), {"reserved": 50_000}, {}, 100_000, 100_000),
        ((200_000, 64_000, 150_000), {"reserved": 0}, {}, 150_000, 150_000),
        ((200_000, 64_000, 150_000), {"reserved": 149_000}, {}, 75_000, 75_000),
        ((100_000, 10_000), {"reserved": 50_000}, {}, 90_000, 90_000),
        # A threshold begins earlier, and never later than there is room.
        ((100_000, 10_000), {"threshold": 0.5}, {}, 90_000, 50_000),
        ((100_000, 10_000), {"threshold": 1.0}, {}, 90_000, 90_000),
        ((100_000, 10_000), {"threshold": 0.000001}, {}, 90_000, 1),
    ],
)
def test_how_much_fits(
    limits: tuple[int, ...],
    config: dict[str, Any],
    environ: dict[str, str],
    usable: int,
    start: int,
) -> None:
    """The context less the longest answer, or the input limit less what is reserved."""
    found = context_size(model(*limits), CompactionConfig(**config), environ)
    assert found == ContextSize(usable, start)


def test_an_unknown_limit() -> None:
    """Nothing is compacted before the provider complains."""
    assert context_size(model(0, 0), CompactionConfig(threshold=0.5), {}) is None


@pytest.mark.parametrize(
    ("usable", "config", "budget"),
    [
        (40_000, {}, 10_000),
        (4_000, {}, 2_000),
        (168_000, {}, 15_000),
        (None, {}, 2_000),
        (40_000, {"preserve_recent_tokens": 7}, 7),
        (40_000, {"preserve_recent_tokens": 0}, 0),
    ],
)
def test_how_much_is_kept(usable: int | None, config: dict[str, Any], budget: int) -> None:
    """A quarter of what fits, within bounds, or as it is configured."""
    size = None if usable is None else ContextSize(usable, usable)
    assert tail_budget(size, CompactionConfig(**config)) == budget


@pytest.mark.parametrize("value", ["1", "true", "TRUE"])
def test_what_turns_it_off(value: str) -> None:
    """The configuration or a variable."""
    on = CompactionConfig(prune=True)
    assert is_automatic(on, {"OPENCODE_DISABLE_AUTOCOMPACT": "0"})
    assert not is_automatic(on, {"OPENCODE_DISABLE_AUTOCOMPACT": value})
    assert not is_automatic(CompactionConfig(auto=False), {})
    assert prunes(on, {"OPENCODE_DISABLE_PRUNE": "no"})
    assert not prunes(on, {"OPENCODE_DISABLE_PRUNE": value})
    assert not prunes(CompactionConfig(), {})


def test_all_tokens_of_an_answer() -> None:
    """The total that the provider gives, else the sum; thoughts are in the output."""
    cache = CacheCount(read=3, write=4)
    tokens = TokenCount(input=1, output=2, reasoning=2, cache=cache)
    assert total_of(tokens) == 10
    assert total_of(msgspec.structs.replace(tokens, total=11)) == 11
