"""Snapshots against the fuzzer for a thousand rounds in each way; `test_fuzz` has the short run."""

import sys
from pathlib import Path

import pytest

from tests.snapshot_fuzz import Fuzz, Kind, Way, open_limited

pytestmark = [pytest.mark.torture, pytest.mark.timeout(1800)]

ROUNDS = 1_000


@pytest.mark.parametrize(
    ("way", "kind", "seed"),
    [("inotify", "git", 101), ("scan", "git", 102), ("inotify", "plain", 103)],
)
def test_a_thousand_rounds(way: Way, kind: Kind, seed: int, tmp_path: Path) -> None:
    """No snapshot differs from an independent full read, whatever was done beside it."""
    fuzz = Fuzz(folder=tmp_path, seed=seed, way=way, kind=kind, opener=open_limited)
    with fuzz.running():
        for _ in range(ROUNDS):
            fuzz.round()
    sys.stdout.write(f"\n{way}, {kind}, seed {seed}: {fuzz.counts.line()}\n")
