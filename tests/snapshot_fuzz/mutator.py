"""What changes a worktree, a burst of operations at a time, and the handle of its process.

It takes no snapshots; `tests.snapshot_fuzz.mutator` starts it.
"""

import os
import select
import shutil
import subprocess
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import msgspec

from tests.snapshot_fuzz.git import GitFailed
from tests.snapshot_fuzz.operations import AFTER_FLOOD, FLOODS, OPERATIONS, Operation
from tests.snapshot_fuzz.world import World

_DICE = list(OPERATIONS)
_WEIGHTS = list(OPERATIONS.values())


class Burst(msgspec.Struct, frozen=True, kw_only=True):
    """What the mutator is told: change the worktree so often, then pause."""

    seed: str
    operations: int
    floods: bool = False


class Paused(msgspec.Struct, frozen=True, kw_only=True):
    """What the mutator says: nothing changes until the next burst."""

    log: list[str]
    links: dict[int, int] = {}
    """The most names that files had in this round, by inode."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """The folders that the mutator may change, and the size that it makes files grow beyond."""

    root: bytes
    outside: bytes
    limit: int


class Mutator:
    """The other process; it ends with the block that it was opened for."""

    def __init__(self, places: Places) -> None:
        words = [places.root, places.outside, b"%d" % places.limit]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.snapshot_fuzz.mutator", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for the process that people see; it ends this one.
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def start(self, burst: Burst) -> None:
        """Let it change things from now on."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(burst) + b"\n")
        self._process.stdin.flush()

    def has_paused(self) -> bool:
        """Whether it has finished its burst; does not wait."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 0)
        return bool(ready)

    def wait(self) -> Paused:
        """What it did, once it has finished."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the mutator ended with {self._process.wait()}")
        return msgspec.json.decode(line, type=Paused)


def mutate(world: World, burst: Burst) -> Paused:
    """Change the worktree; what the system or git refuses is part of the game."""
    world.begin(burst.seed)
    chosen: list[Operation] = [AFTER_FLOOD]
    chosen += world.random.choices(_DICE, _WEIGHTS, k=burst.operations)
    if burst.floods:
        chosen.append(world.random.choice(FLOODS))
    log = [_attempt(each, world) for each in chosen]
    return Paused(log=log, links=world.links)


def _attempt(operation: Operation, world: World) -> str:
    try:
        return operation(world)
    except (OSError, ValueError, LookupError, GitFailed, shutil.Error) as error:
        return f"{getattr(operation, '__name__', '')}: refused: {error!r}"[:300]


def main(arguments: list[str]) -> None:
    """Read bursts from standard input until it ends."""
    root, outside, limit = arguments
    world = World(root=os.fsencode(root), outside=os.fsencode(outside), limit=int(limit))
    for line in sys.stdin.buffer:
        paused = mutate(world, msgspec.json.decode(line, type=Burst))
        sys.stdout.buffer.write(msgspec.json.encode(paused) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
