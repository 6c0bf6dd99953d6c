"""Blame against what the lines say themselves, over random histories of three sessions and a person
who edit, move, delete, revert and undo."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kedge.engine.blame import blame, lines, versions
from kedge.store.queries import history
from tests.engine.blame.histories import WrongBlame, run

ACTIONS = 25
ROUNDS, PIECES = 6, 2
LONG = 50
"""How many times as many rounds the long test has."""


@pytest.mark.parametrize("piece", range(PIECES))
def test_every_line_is_its_authors(piece: int, tmp_path: Path) -> None:
    """Through edits, moves, reverts, unreverts and merges, with and without the cache."""
    rounds = ROUNDS // PIECES
    _fuzz(tmp_path, rounds, piece * rounds)


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_every_line_is_its_authors_in_many_histories(tmp_path: Path) -> None:
    """The same over 300 histories."""
    seen = _fuzz(tmp_path, ROUNDS * LONG, 1_000_000)
    assert min(seen[kind] for kind in ("before", "session", "outside", "shared")) > 1000


def _fuzz(folder: Path, rounds: int, seed: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    for number in range(seed, seed + rounds):
        done = run(folder, number, ACTIONS)
        seen += done.seen
        outcomes += done.outcomes
    sys.stdout.write(f"\nseeds {seed} to {seed + rounds - 1}: {dict(seen)}, {dict(outcomes)}\n")
    assert seen.total() > 100 * rounds
    return seen


def _nothing(*arguments: object) -> tuple[()]:
    return ()


def _as_the_sessions(write: history.Write) -> versions.Writer:
    return versions.Writer(
        "session", write.time, write.session_id, write.message_id, write.pos, write.part_id
    )


MUTATIONS: dict[str, tuple[object, str, Callable[..., object], int]] = {
    "restored lines come from nowhere": (lines._Walk, "_restored", _nothing, 2),
    "a moved file is a new one": (lines._Walk, "_take_moved", lambda self, left, *_: left, 0),
    "what is shared is the session's": (versions, "_writer", _as_the_sessions, 2),
    "nothing is known of the beginning": (blame, "_files", lambda *_: None, 0),
}
"""Where something is broken, how, and the first of the seeds that are tried."""


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_blame_is_noticed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Histories that pass fail if a rule of blame is broken."""
    place, attribute, broken, seed = MUTATIONS[name]
    monkeypatch.setattr(place, attribute, broken)
    with pytest.raises(WrongBlame):
        _fuzz(tmp_path, 40, seed)
