"""Taking a snapshot, by what changed and by how large the tree is, compared with OpenCode's git."""

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from bench.figures import Figure, faster, ratio
from bench.rounds import side_by_side
from bench.scratch import Scratch
from bench.snapshots_sides import Sides, after, both_sides, opened, prepared
from bench.trees import Tree, committed, sizes

_FLAT = 3.0
"""How many times as long as of the small tree a snapshot of the large one may take."""


@dataclass(frozen=True, slots=True)
class Case:
    """Something that happens to a tree before a snapshot of it is taken."""

    name: str
    happen: Callable[[Tree], None]
    watching: float | None = None
    """How many times as fast as OpenCode kedge must be at the large tree."""
    scanning: float | None = None
    """The same where it cannot watch."""


async def snapshots(scratch: Scratch) -> AsyncIterator[Figure]:
    """Snapshots and patches of the three trees."""
    small, middle, large = sizes(scratch)
    targeted = _cases(scratch)
    reported = [replace(case, watching=None, scanning=None) for case in targeted]
    for size, full, cases in (
        (small, 25, reported),
        (middle, 15, reported),
        (large, 12, targeted),
    ):
        tree, rounds = committed(scratch, size), scratch.size(full, 2)
        with both_sides(scratch, tree) as sides:
            for case in cases:
                scratch.say(f"taking snapshots of {tree.size}: {case.name}")
                for figure in await _tracking(sides, case, rounds):
                    yield figure
            scratch.say(f"making patches of {tree.size}")
            yield await _patching(sides, rounds)
    scratch.say("taking snapshots of a small and of a large tree")
    yield await _growth(scratch, committed(scratch, small), committed(scratch, large))


def _cases(scratch: Scratch) -> list[Case]:
    many = scratch.size(100, 10)
    return [
        Case("none changed", lambda tree: None, watching=1_000, scanning=1),
        Case("1 changed", lambda tree: tree.change(1), watching=150, scanning=1),
        Case(f"{many} changed", lambda tree: tree.change(many), watching=8, scanning=1),
        Case("1 new", lambda tree: tree.add()),
    ]


async def _tracking(sides: Sides, case: Case, rounds: int) -> tuple[Figure, Figure]:
    name = f"{case.name} of {sides.tree.size}"
    candidates = after(
        lambda: case.happen(sides.tree),
        sides.kedge.track,
        sides.scan.track,
        sides.opencode.track,
    )
    watched, scanned, theirs = await side_by_side(candidates, rounds)
    return (
        faster(f"snapshot, {name}", watched, theirs, least=case.watching),
        faster(f"snapshot by scan, {name}", scanned, theirs, least=case.scanning),
    )


async def _patching(sides: Sides, rounds: int) -> Figure:
    since = {"kedge": "", "opencode": ""}

    def happen() -> None:
        since["kedge"], since["opencode"] = sides.kedge.track().id, sides.opencode.track()
        sides.tree.change(1)

    candidates = after(
        happen,
        lambda: sides.kedge.patch(since["kedge"]),
        lambda: sides.opencode.patch(since["opencode"]),
    )
    ours, theirs = await side_by_side(candidates, rounds)
    return faster(f"patch, 1 changed of {sides.tree.size}", ours, theirs)


async def _growth(scratch: Scratch, small: Tree, large: Tree) -> Figure:
    with ExitStack() as stack:
        candidates = [
            prepared(partial(tree.change, 1), stack.enter_context(opened(scratch, tree)).track)
            for tree in (large, small)
        ]
        samples = await side_by_side(candidates, scratch.size(50, 2))
    name = f"snapshot, 1 changed: of {large.size} / of {small.size}"
    return ratio(name, *samples, target=_FLAT)
