"""What the mutator can do to a worktree; each operation is a function that does one thing to a
`World` and gives a line for the log. The numbers say how often each is chosen."""

from collections.abc import Callable

from tests.snapshot_fuzz.operations import contents, names, rules, trees
from tests.snapshot_fuzz.world import World

Operation = Callable[[World], str]

OPERATIONS: dict[Operation, float] = {
    **contents.OPERATIONS,
    **names.OPERATIONS,
    **trees.OPERATIONS,
    **rules.OPERATIONS,
}

FLOODS: tuple[Operation, ...] = (trees.flood_with_files, trees.flood_with_touches)
AFTER_FLOOD: Operation = trees.clear_flood
