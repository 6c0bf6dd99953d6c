"""Putting files back, compared with OpenCode's git, whose `restore` writes every file there is."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from bench.figures import Figure, faster
from bench.opencode_git import OpenCode
from bench.rounds import Candidate, side_by_side
from bench.scratch import Scratch
from bench.snapshots_sides import begun, opened, prepared
from bench.trees import Tree, committed, sizes
from kedge.snapshot import Patch, Snapshot, Snapshots


async def snapshots_restores(scratch: Scratch) -> AsyncIterator[Figure]:
    """One, a hundred and thousands of files of the three trees, by their names and by snapshot."""
    small, middle, large = sizes(scratch)
    numbers = (1, scratch.size(100, 5), scratch.size(5_000, 100))
    for size, full in ((small, 10), (middle, 3), (large, 2)):
        tree, rounds = committed(scratch, size), scratch.size(full, 2)
        fitting = [number for number in numbers if number <= size.files]
        with opened(scratch, tree) as kedge:
            undo = Undo(tree, kedge, begun(scratch, tree))
            for number in fitting:
                scratch.say(f"reverting {number:,} of {tree.size}")
                yield await undo.reverting(number, rounds)
            # Last, because all files look changed once OpenCode has written them all.
            for number in fitting:
                scratch.say(f"restoring {number:,} of {tree.size}")
                yield await undo.restoring(number, rounds)


@dataclass(slots=True)
class Undo:
    """Both sides on a tree, which each of them brings back to the state it is in now."""

    tree: Tree
    kedge: Snapshots
    opencode: OpenCode
    ours: Snapshot = field(init=False)
    theirs: str = field(init=False)
    patch: Patch = field(init=False)
    files: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.ours, self.theirs = self.kedge.track(), self.opencode.track()

    async def reverting(self, number: int, rounds: int) -> Figure:
        """Undo of files that a patch names."""

        def before_ours() -> None:
            self._change(number)
            self.patch = self.kedge.patch(self.ours.id)

        def before_theirs() -> None:
            self._change(number)
            self.files = self.opencode.patch(self.theirs)

        candidates = [
            prepared(before_ours, lambda: self.kedge.revert([self.patch])),
            prepared(before_theirs, lambda: self.opencode.revert(self.theirs, self.files)),
        ]
        return await self._timed(candidates, f"revert {number:,} changed", rounds)

    async def restoring(self, number: int, rounds: int) -> Figure:
        """Undo of whatever differs from a snapshot."""
        candidates = [
            prepared(lambda: self._change(number), lambda: self.kedge.restore(self.ours)),
            prepared(lambda: self._change(number), lambda: self.opencode.restore(self.theirs)),
        ]
        return await self._timed(candidates, f"restore, {number:,} changed", rounds)

    def _change(self, number: int) -> None:
        assert self.kedge.track().id == self.ours.id, "the tree was not brought back"
        self.tree.change(number)

    async def _timed(self, candidates: list[Candidate], name: str, rounds: int) -> Figure:
        ours, theirs = await side_by_side(candidates, rounds, warm_up=0)
        return faster(f"{name} of {self.tree.size}", ours, theirs)
