"""Before snapshots are quick: the first one, the first of a new process, the memory it takes."""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path

from bench.before import compared
from bench.figures import Figure, faster, figure_of
from bench.opencode_git import OpenCode
from bench.rounds import side_by_side
from bench.scratch import Scratch
from bench.snapshots_sides import (
    begun,
    open_snapshots,
    prepared,
    wait_until_independent,
)
from bench.trees import Tree, committed, loosened, sizes, uncommitted
from kedge.snapshot import Snapshots

_MEGABYTE = 1_000_000


async def snapshots_first(scratch: Scratch) -> AsyncIterator[Figure]:
    """First snapshots of the three trees."""
    small, middle, large = sizes(scratch)
    for size, full in ((small, 15), (middle, 10), (large, 5)):
        tree, rounds = committed(scratch, size), scratch.size(full, 2)
        scratch.say(f"taking first snapshots of {tree.size}")
        yield await _seeded(scratch, tree, rounds, least=1.0 if size is large else None)
        yield await _command(scratch, tree, rounds, "packed")
        yield await _command(scratch, loosened(scratch, size), rounds, "loose")
        scratch.say(f"starting again on {tree.size}")
        yield await _again(scratch, tree, rounds)
        scratch.say(f"weighing snapshots of {tree.size}")
        yield _memory(scratch, tree)
        scratch.say(f"taking first snapshots of {tree.size} without git")
        yield await _unseeded(scratch, tree, uncommitted(scratch, size))


async def _seeded(scratch: Scratch, tree: Tree, rounds: int, *, least: float | None) -> Figure:
    def theirs() -> None:
        opencode = OpenCode(tree.root, scratch.path("opencode"))
        opencode.begin()
        opencode.track()

    with ExitStack() as stack:
        candidates = [
            prepared(stack.close, _first(stack, lambda: _fresh(scratch, tree.root))),
            # What kedge does in the background must be over before OpenCode is timed.
            prepared(stack.close, theirs),
        ]
        ours, baseline = await side_by_side(candidates, rounds)
    return faster(f"first snapshot of {tree.size}", ours, baseline, least=least)


async def _command(scratch: Scratch, tree: Tree, rounds: int, kind: str) -> Figure:
    """From opening the worktree to the snapshot after a first command that writes one file."""
    written = tree.root / "written by a command"
    with ExitStack() as stack:
        first = _first(stack, lambda: _fresh(scratch, tree.root))

        def command() -> None:
            snapshots = first()
            written.write_text("as short as can be\n")
            snapshots.track()

        def end() -> None:
            stack.close()
            written.unlink(missing_ok=True)

        [samples] = await side_by_side([prepared(end, command)], rounds)
        end()
    name = f"first command in {tree.size}, {kind}"
    return figure_of(name, [each * 1e3 for each in samples], "ms")


async def snapshots_first_compared(scratch: Scratch) -> AsyncIterator[Figure]:
    """First commands, packed and loose, compared with another version of kedge."""
    for size, full in zip(sizes(scratch), (20, 12, 8), strict=True):
        for tree, kind in (
            (committed(scratch, size), "packed"),
            (loosened(scratch, size), "loose"),
        ):
            name = f"first command in {tree.size}, {kind}"
            scratch.say(f"comparing: {name}")
            rounds, names = scratch.size(full, 2), [name, f"{name}, until all is kept"]
            root = str(tree.root)
            for figure in await compared(
                scratch, "first_command", root, rounds=rounds, names=names
            ):
                yield figure


async def _again(scratch: Scratch, tree: Tree, rounds: int) -> Figure:
    """A new process finds the snapshots of the one before."""
    data, opencode = scratch.path("kedge"), begun(scratch, tree)
    with open_snapshots(tree.root, data) as snapshots:
        snapshots.track()
        wait_until_independent(snapshots)
    with ExitStack() as stack:
        candidates = [
            prepared(stack.close, _first(stack, lambda: open_snapshots(tree.root, data))),
            prepared(stack.close, opencode.track),
        ]
        ours, theirs = await side_by_side(candidates, rounds)
    return faster(f"start and snapshot, none changed of {tree.size}", ours, theirs)


async def _unseeded(scratch: Scratch, tree: Tree, folder: Path) -> Figure:
    """OpenCode takes no snapshots there at all."""
    with ExitStack() as stack:
        first = _first(stack, lambda: _fresh(scratch, folder))
        [samples] = await side_by_side([prepared(stack.close, first)], 2, warm_up=0)
    name = f"first snapshot of {tree.size} without git"
    return figure_of(name, [each * 1e3 for each in samples], "ms")


def _memory(scratch: Scratch, tree: Tree) -> Figure:
    grown, peaks = [], []
    for _ in range(2):
        given = [sys.executable, "-m", "bench.snapshots_memory"]
        root, data = str(tree.root), str(scratch.path("kedge"))
        where = Path(__file__).parents[1]
        done = subprocess.run([*given, root, data], cwd=where, stdout=subprocess.PIPE, check=True)
        growth, peak = map(int, done.stdout.split())
        grown.append(growth / _MEGABYTE)
        peaks.append(peak / _MEGABYTE)
    name = f"memory of a process that watches {tree.size}"
    return figure_of(name, grown, "MB", details={"peak MB": max(peaks)})


def _first(stack: ExitStack, make: Callable[[], Snapshots]) -> Callable[[], Snapshots]:
    """Open snapshots and take one; closing is left to the stack, as it is not to be timed."""

    def first() -> Snapshots:
        snapshots = stack.enter_context(make())
        snapshots.track()
        return snapshots

    return first


def _fresh(scratch: Scratch, root: Path) -> Snapshots:
    return open_snapshots(root, scratch.path("kedge"))
