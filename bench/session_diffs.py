"""What a session changed, with patch texts, compared with OpenCode's git.

OpenCode makes its texts from git's output in JavaScript afterwards; that is not counted here.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import kedge
from bench.engines import changed_by, protecting
from bench.figures import Figure, faster
from bench.opencode_git import OpenCode
from bench.rounds import Candidate, Work, side_by_side
from bench.scratch import Scratch
from bench.snapshots_sides import begun
from bench.trees import Tree, committed, sizes


async def session_diffs(scratch: Scratch) -> AsyncIterator[Figure]:
    """One, a hundred and a thousand changed files of a tree."""
    _, middle, _ = sizes(scratch)
    tree = committed(scratch, middle)
    async with protecting(scratch, tree) as engine:
        for number in (1, scratch.size(100, 5), scratch.size(1_000, 10)):
            scratch.say(f"looking at what a session changed: {number:,} of {tree.size}")
            looking = Looking(tree, engine, begun(scratch, tree), number)
            for figure in await looking.timed(scratch.size(10, 2)):
                yield figure


@dataclass(slots=True)
class Looking:
    """A session that changed files, and the two snapshots that OpenCode took around that."""

    tree: Tree
    engine: kedge.Engine
    opencode: OpenCode
    number: int
    session: kedge.Session = field(init=False)
    before: str = field(init=False)
    after: str = field(init=False)

    async def timed(self, rounds: int) -> tuple[Figure, Figure]:
        """The first look at a session's diff, and the second, which need not be computed again."""
        candidates = [Candidate(self._new), Candidate(self._again), Candidate(self._theirs)]
        first, second, theirs = await side_by_side(candidates, rounds)
        name = f"{self.number:,} changed of {self.tree.size}"
        return (
            faster(f"session's diff, {name}", first, theirs, least=1),
            faster(f"session's diff again, {name}", second, theirs, least=1),
        )

    async def _new(self) -> Work:
        self.before = self.opencode.track()
        self.session, _ = await changed_by(self.engine, lambda: self.tree.edit(self.number))
        self.after = self.opencode.track()
        return self._look

    async def _again(self) -> Work:
        return self._look

    async def _theirs(self) -> Work:
        async def compare() -> None:
            self.opencode.diff_full(self.before, self.after)

        return compare

    async def _look(self) -> None:
        diffs = await self.session.diff()
        assert sum(diff.patch is not None for diff in diffs) == self.number
