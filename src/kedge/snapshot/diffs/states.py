"""Changes that are known by the states of paths, in the form that texts are made from."""

import stat
from collections.abc import Iterable

from kedge.snapshot.diffs.trees import Node, TreeChange
from kedge.snapshot.values import Change, Present, State

_FILE, _PROGRAM, _LINK = 0o100644, 0o100755, 0o120000


def tree_changes(changes: Iterable[Change]) -> list[TreeChange]:
    """The changes by path, as git sees them: of permission bits it knows one.

    What git does not tell apart is left out, and so is what is not covered.
    """
    covered = [change for change in changes if change.is_covered]
    found = [
        TreeChange(change.path, _node(change.before), _node(change.after)) for change in covered
    ]
    return sorted((each for each in found if each.old != each.new), key=lambda each: each.path)


def _node(state: State) -> Node | None:
    if not isinstance(state, Present):
        return None
    is_program = state.mode & stat.S_IXUSR
    mode = _LINK if state.is_link else _PROGRAM if is_program else _FILE
    return mode, bytes.fromhex(state.blob)
