"""What changed between two snapshots, with patch texts, compared with OpenCode's git.

OpenCode makes its texts from git's output in JavaScript afterwards; that is not counted here.
"""

from collections.abc import AsyncIterator

from bench.figures import Figure, faster
from bench.rounds import side_by_side
from bench.scratch import Scratch
from bench.snapshots_sides import Sides, after, both_sides
from bench.trees import committed, sizes


async def snapshots_diffs(scratch: Scratch) -> AsyncIterator[Figure]:
    """One, a hundred and a thousand files of the three trees."""
    for size in sizes(scratch):
        tree = committed(scratch, size)
        with both_sides(scratch, tree) as sides:
            for number in (1, scratch.size(100, 5), scratch.size(1_000, 10)):
                scratch.say(f"comparing snapshots of {tree.size}: {number} changed")
                yield await _comparing(sides, number, scratch.size(10, 2))


async def _comparing(sides: Sides, number: int, rounds: int) -> Figure:
    before, theirs_before = sides.kedge.track(), sides.opencode.track()
    sides.tree.change(number)
    now, theirs_now = sides.kedge.track(), sides.opencode.track()
    assert len(sides.kedge.diff_full(before, now)) == number
    candidates = after(
        lambda: None,
        lambda: sides.kedge.diff_full(before.id, now.id),
        lambda: sides.opencode.diff_full(theirs_before, theirs_now),
    )
    ours, theirs = await side_by_side(candidates, rounds)
    return faster(f"diff, {number:,} changed of {sides.tree.size}", ours, theirs)
