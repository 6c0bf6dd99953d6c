"""Reverts and unreverts of a session, compared with OpenCode's git for the same.

kedge is timed from the call to the receipt: database, journal, files and folders synced. Git syncs
nothing of what it writes into a worktree, and what OpenCode does besides is not counted.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import kedge
from bench.before import compared
from bench.engines import changed_by, protecting
from bench.figures import Figure, faster
from bench.opencode_git import OpenCode
from bench.rounds import Candidate, Work, side_by_side
from bench.scratch import Scratch
from bench.snapshots_sides import begun
from bench.trees import Tree, committed, sizes
from kedge.values import Receipt


async def reverts(scratch: Scratch) -> AsyncIterator[Figure]:
    """One, a hundred and thousands of files, in a small tree as far as it has them."""
    small, middle, _ = sizes(scratch)
    numbers = (1, scratch.size(100, 5), scratch.size(5_000, 100))
    for size, full in ((small, 10), (middle, 5)):
        tree, rounds = committed(scratch, size), scratch.size(full, 2)
        async with protecting(scratch, tree) as engine:
            undo = Undo(scratch, tree, engine, begun(scratch, tree))
            for number in (each for each in numbers if each <= size.files):
                scratch.say(f"reverting a session: {number:,} of {tree.size}")
                for figure in await undo.timed(number, rounds):
                    yield figure


async def reverts_compared(scratch: Scratch) -> AsyncIterator[Figure]:
    """The same in the middle tree, compared with another version of kedge."""
    _, middle, _ = sizes(scratch)
    for number, full in ((1, 15), (scratch.size(100, 5), 10), (scratch.size(5_000, 100), 5)):
        name = f"session's revert, {number:,} changed of {middle.files:,} files"
        scratch.say(f"comparing: {name}")
        rounds = scratch.size(full, 2)
        for figure in await compared(scratch, "revert", str(number), rounds=rounds, names=[name]):
            yield figure


@dataclass(frozen=True, slots=True)
class Step:
    """A change as OpenCode knows it."""

    before: str
    after: str
    files: Sequence[str]


@dataclass(frozen=True, slots=True)
class Undo:
    """Both sides on a tree; each undoes a change of its own, of as many files."""

    scratch: Scratch
    tree: Tree
    engine: kedge.Engine
    opencode: OpenCode

    async def timed(self, number: int, rounds: int) -> tuple[Figure, Figure]:
        """Reverts, then unreverts, for which OpenCode writes every file there is."""
        name = f"{number:,} changed of {self.tree.size}"
        revert = [self._revert(number), self._revert_by_git(number)]
        reverted = await side_by_side(revert, rounds, warm_up=1)
        unrevert = [self._unrevert(number), self._unrevert_by_git(number)]
        unreverted = await side_by_side(unrevert, rounds, warm_up=1)
        return (
            faster(f"session's revert, {name}", *reverted, least=1),
            faster(f"session's unrevert, {name}", *unreverted),
        )

    def _revert(self, number: int) -> Candidate:
        async def prepare() -> Work:
            session, prompt = await self._session(number)
            return lambda: _whole(session.revert(prompt), number)

        return self._settled(prepare)

    def _unrevert(self, number: int) -> Candidate:
        async def prepare() -> Work:
            session, prompt = await self._session(number)
            await session.revert(prompt)
            return lambda: _whole(session.unrevert(), number)

        return self._settled(prepare)

    def _revert_by_git(self, number: int) -> Candidate:
        async def prepare() -> Work:
            step = self._step(number)

            async def work() -> None:
                self.opencode.undo(step.before, step.after, step.files)

            return work

        return self._settled(prepare)

    def _unrevert_by_git(self, number: int) -> Candidate:
        async def prepare() -> Work:
            step = self._step(number)
            self.opencode.undo(step.before, step.after, step.files)

            async def work() -> None:
                self.opencode.restore(step.after)

            return work

        return self._settled(prepare)

    async def _session(self, number: int) -> tuple[kedge.Session, str]:
        return await changed_by(self.engine, lambda: self.tree.change(number))

    def _step(self, number: int) -> Step:
        before = self.opencode.track()
        self.tree.change(number)
        return Step(before, self.opencode.track(), self.opencode.patch(before))

    def _settled(self, prepare: Callable[[], Awaitable[Work]]) -> Candidate:
        """What others left to be written must not be paid for by whoever syncs first."""

        async def settle() -> Work:
            work = await prepare()
            if not self.scratch.quick:
                os.sync()
            return work

        return Candidate(settle)


async def _whole(undone: Awaitable[Receipt], number: int) -> None:
    receipt = await undone
    assert [each.outcome for each in receipt.files] == ["restored"] * number
