"""The space that many snapshots take, compared with OpenCode's store for the same ones."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figure, figure_of
from bench.scratch import Scratch
from bench.snapshots_sides import PROJECT, begun, open_snapshots, wait_until_independent
from bench.trees import committed, sizes
from kedge.snapshot.objects.store import ObjectStore

_MEGABYTE = 1_000_000
_BLOCK = 512
_WEEK = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Space:
    """What a folder takes on the disk, in megabytes."""

    blocks: float
    bytes: float


async def snapshots_disk(scratch: Scratch) -> AsyncIterator[Figure]:
    """Snapshots of the middle tree with one changed file each, all of them kept for a session."""
    tree, number = committed(scratch, sizes(scratch)[1]), scratch.size(1_000, 5)
    scratch.say(f"taking {number:,} snapshots of {tree.size}")
    opencode, data = begun(scratch, tree), scratch.path("kedge")
    with open_snapshots(tree.root, data) as kedge:
        kedge.track(session="ses_bench")
        wait_until_independent(kedge)
        name = f"disk, first snapshot of {tree.size}"
        for figure in _compared(name, _space(data), _space(opencode.store)):
            yield figure
        for _ in range(number):
            tree.change(1)
            kedge.track(session="ses_bench")
            opencode.track()
        name = f"disk, {number:,} snapshots of {tree.size}"
        for figure in _compared(name, _space(data), _space(opencode.store)):
            yield figure
    scratch.say("collecting garbage")
    with ObjectStore(data / "snapshots" / PROJECT) as store:
        store.collect(keep_taken_for=_WEEK)
    opencode.collect()
    for figure in _compared(f"{name}, collected", _space(data), _space(opencode.store)):
        yield figure


def _compared(name: str, ours: Space, theirs: Space) -> Iterator[Figure]:
    """How many times as much OpenCode needs."""
    for what in ("blocks", "bytes"):
        a, b = getattr(ours, what), getattr(theirs, what)
        yield figure_of(
            f"{name}, in {what}", [b / a], "x", details={"kedge MB": a, "OpenCode MB": b}
        )


def _space(folder: Path) -> Space:
    found = [each.lstat() for each in folder.rglob("*")]
    return Space(
        blocks=sum(each.st_blocks for each in found) * _BLOCK / _MEGABYTE,
        bytes=sum(each.st_size for each in found) / _MEGABYTE,
    )
