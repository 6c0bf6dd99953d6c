"""Kills processes that keep snapshots in one store; all they said is durable must be there."""

import json
import random
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kedge.snapshot.objects.store import ObjectStore
from tests.snapshot.objects_git import check, read_files
from tests.torture.orders import Orders, deadline, start

WRITERS = 2
"""Processes that write to one store at once."""
ROUNDS_PER_STORE = 5
MOST_LINES = 60
"""A kill comes after at most this many lines of the first writer."""


@dataclass
class Ledger:
    """What the writers said."""

    held: dict[str, dict[bytes, dict[bytes, bytes]]] = field(default_factory=dict)
    acknowledged: int = 0

    def take(self, line: str) -> None:
        """Note a line; what is being released is not asked for any more."""
        match json.loads(line):
            case ["kept", session, tree, files]:
                content = {name.encode(): each.encode() for name, each in files.items()}
                self.held.setdefault(session, {})[bytes.fromhex(tree)] = content
                self.acknowledged += 1
            case ["releasing", session]:
                self.held.pop(session, None)


def write_and_kill(folder: Path, seed: int, ledger: Ledger) -> None:
    """Let some processes write, and kill them while they do."""
    chance = random.Random(seed)
    with ExitStack() as stack:
        processes = []
        for n in range(WRITERS):
            orders = Orders(
                role="keep", directory="", database=str(folder), seed=seed * WRITERS + n
            )
            process = stack.enter_context(start("snapshot_writer", orders))
            stack.enter_context(deadline(process))
            processes.append(process)
        outputs = [process.stdout for process in processes if process.stdout is not None]
        for _ in range(chance.randrange(MOST_LINES)):
            ledger.take(outputs[0].readline())
        for process in processes:
            process.kill()
        for output in outputs:
            for line in output:
                if line.endswith("\n"):
                    ledger.take(line)


def judge(folder: Path, ledger: Ledger) -> None:
    """Open the store again and hold it against the ledger; git looks at it too."""
    with ObjectStore(folder) as store:
        for session, trees in ledger.held.items():
            assert trees.keys() <= {keep.files for keep in store.chain(session)}
            for tree, files in trees.items():
                assert read_files(store, tree) == files
        store.settle()
        assert store.problems() == []
    with ObjectStore(folder) as store:
        assert store.collect(keep_taken_for=0).lacking == 0
        for trees in ledger.held.values():
            for tree, files in trees.items():
                assert read_files(store, tree) == files
    for left in (folder / "journals").glob("tmp_kedge_*"):
        left.unlink()  # a killed writer's; they go by themselves a day later
    for left in (folder / "objects/pack").glob("tmp_*"):
        left.unlink()
    check(folder)


@pytest.mark.parametrize(
    "kills", [6, pytest.param(200, marks=[pytest.mark.torture, pytest.mark.timeout(1800)])]
)
def test_the_snapshot_store_survives_kills(kills: int, tmp_path: Path) -> None:
    """Whatever a killed process said is kept is there, whole, and git finds nothing wrong."""
    acknowledged = 0
    for n in range(kills // WRITERS):
        if n % ROUNDS_PER_STORE == 0:
            folder, ledger = tmp_path / f"{n}", Ledger()
        before = ledger.acknowledged
        write_and_kill(folder, n, ledger)
        judge(folder, ledger)
        acknowledged += ledger.acknowledged - before
    assert acknowledged > 0
    figures = f"{kills} kills, {acknowledged} acknowledged snapshots, 0 lost"
    sys.stdout.write(f"\nsnapshot store kill test: {figures}\n")
