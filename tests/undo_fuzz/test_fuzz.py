"""Sessions and a person change files in any order, and undo: nobody loses a byte, and receipts, dry
runs and diffs are true. Random programs, from seeds, on two levels."""

import sys
from collections import Counter

import pytest

from tests.undo_fuzz.campaign import Level, fuzz, program_of, report, violation_of
from tests.undo_fuzz.mutations import MUTATIONS, Mutation

PLANNER_ROUNDS, DISK_ROUNDS, CALLS_ROUNDS, PIECES = 2_000, 20, 6, 4
LONG = 100
"""How many times as many planner rounds the long test has; on disk it is half of that."""
MOST_NEEDLESS = 0.01
"""Share of steps that may be withheld though nobody would have lost anything."""
ROUNDS_TO_NOTICE: dict[Level, int] = {"planner": 500, "disk": 40, "calls": 40}


@pytest.mark.parametrize("piece", range(PIECES))
def test_plans_lose_nothing(piece: int) -> None:
    """What the planner makes of random histories is what the oracle demands."""
    _fuzz("planner", PLANNER_ROUNDS // PIECES, piece * PLANNER_ROUNDS // PIECES)


@pytest.mark.parametrize("piece", range(PIECES))
def test_undo_on_disk_loses_nothing(piece: int) -> None:
    """The same holds for a real engine on real files, with processes that are killed."""
    _fuzz("disk", DISK_ROUNDS // PIECES, piece * DISK_ROUNDS // PIECES)


def test_undo_of_calls_on_disk_loses_nothing() -> None:
    """The same with undos and redos of single calls among the reverts."""
    figures = _fuzz("calls", CALLS_ROUNDS, 0)
    assert figures["undos of calls"] > 0


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("piece", range(PIECES))
def test_very_many_plans_lose_nothing(piece: int) -> None:
    """The same over 200,000 histories."""
    rounds = PLANNER_ROUNDS * LONG // PIECES
    _fuzz("planner", rounds, 1_000_000 + piece * rounds)


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("piece", range(PIECES))
def test_many_undos_on_disk_lose_nothing(piece: int) -> None:
    """The same over 1,000 programs on disk."""
    rounds = DISK_ROUNDS * LONG // 2 // PIECES
    _fuzz("disk", rounds, 1_000_000 + piece * rounds)


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("piece", range(PIECES))
def test_many_undos_of_calls_on_disk_lose_nothing(piece: int) -> None:
    """The same over 600 programs."""
    rounds = CALLS_ROUNDS * LONG // PIECES
    _fuzz("calls", rounds, 1_000_000 + piece * rounds)


def _fuzz(level: Level, rounds: int, seed: int) -> Counter[str]:
    figures: Counter[str] = Counter()
    fuzz(level, rounds, seed, figures=figures)
    sys.stdout.write(f"\n{level}, seeds {seed} to {seed + rounds - 1}:\n{report(figures)}\n")
    assert figures["rounds"] == rounds
    assert figures["undos"] > rounds / 2
    assert figures["losses"] == 0
    if figures["steps"] >= 1 / MOST_NEEDLESS:
        assert figures["needless"] <= MOST_NEEDLESS * figures["steps"]
    return figures


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_broken_kedge_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program fails with the mutation, and passes without it."""
    level = mutation.level
    for seed in range(mutation.seed, mutation.seed + ROUNDS_TO_NOTICE[level]):
        program = program_of(level, seed)
        with monkeypatch.context() as patch:
            mutation.apply(patch)
            noticed = violation_of(level, seed, program)
        if noticed is not None and violation_of(level, seed, program) is None:
            sys.stdout.write(f"\nseed {seed}: {noticed}\n")
            return
    pytest.fail(f"not noticed in {ROUNDS_TO_NOTICE[level]} rounds")
