"""kedge and OpenCode on one worktree, so that both are timed with exactly the same change in it."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.opencode_git import OpenCode
from bench.rounds import Candidate, Work
from bench.scratch import Scratch
from bench.trees import Tree
from kedge.snapshot import Snapshots, SnapshotSettings

PROJECT = "prj_bench"
_SETTINGS = SnapshotSettings(budget=3600)
"""As shipped, but that a snapshot may take as long as it takes: it is to be timed, not refused."""


@dataclass(frozen=True, slots=True)
class Sides:
    """A tree with everybody who takes snapshots of it."""

    tree: Tree
    kedge: Snapshots
    scan: Snapshots
    """kedge as it works where it cannot watch."""
    opencode: OpenCode


@contextmanager
def both_sides(scratch: Scratch, tree: Tree) -> Iterator[Sides]:
    """All of them, each with a store of its own that holds the tree already."""
    with ExitStack() as stack:
        yield Sides(
            tree,
            stack.enter_context(opened(scratch, tree)),
            stack.enter_context(opened(scratch, tree, way="scan")),
            begun(scratch, tree),
        )


@contextmanager
def opened(scratch: Scratch, tree: Tree, *, way: str | None = None) -> Iterator[Snapshots]:
    """kedge on a tree, after its first snapshot and all that follows from that."""
    with open_snapshots(tree.root, scratch.path("kedge"), way=way) as snapshots:
        snapshots.track()
        wait_until_independent(snapshots)
        with left_out_of_collections():
            yield snapshots


def open_snapshots(root: Path, data: Path, *, way: str | None = None) -> Snapshots:
    """kedge on a folder, before it has looked at it."""
    return Snapshots.open(root, data=data, project=PROJECT, settings=_SETTINGS, way=way)


def wait_until_independent(snapshots: Snapshots) -> None:
    """Return when all of a snapshot is in kedge's own store; up to 0.1 that was done afterwards."""
    while getattr(status := snapshots.status(), "borrowed", 0):
        if status.trouble:
            raise RuntimeError(status.trouble)
        time.sleep(0.002)


def begun(scratch: Scratch, tree: Tree) -> OpenCode:
    """OpenCode on a tree, after its first snapshot."""
    opencode = OpenCode(tree.root, scratch.path("opencode"))
    opencode.begin()
    opencode.track()
    return opencode


def after(happen: Callable[[], object], *calls: Callable[[], object]) -> list[Candidate]:
    """Candidates of which the first makes something happen, untimed, that all of them then see."""
    first, *others = calls
    return [prepared(happen, first), *(prepared(lambda: None, each) for each in others)]


def prepared(prepare: Callable[[], object], call: Callable[[], object]) -> Candidate:
    """A candidate whose preparation and work are plain calls."""

    async def work() -> None:
        call()

    async def ready() -> Work:
        prepare()
        return work

    return Candidate(ready)


@contextmanager
def left_out_of_collections() -> Iterator[None]:
    """There is a collection before each timing; it need not visit large trees again and again."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
