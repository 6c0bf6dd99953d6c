"""Which of a dead process's changes may be somebody else's: those made after it was last alive."""

import os
import stat
from collections.abc import Sequence
from dataclasses import replace

from kedge.store.verbs.changes import NewChange

_NS_PER_MS = 1_000_000


def doubted(changes: Sequence[NewChange], worktree: str, alive_until: int) -> list[NewChange]:
    """The changes, shared where they were made after a time in milliseconds, or may have been.

    What a process had started may go on after its death, and people work on as well: nobody can
    tell whose it is, so that nobody's undo may touch it.
    """
    root = os.fsencode(worktree)
    return [
        replace(change, source="shared")
        if change.source == "observed" and _time_of(root, change) > alive_until * _NS_PER_MS
        else change
        for change in changes
    ]


def _time_of(root: bytes, change: NewChange) -> float:
    """When a path became what it is; for one that is gone, when its folder did."""
    path = os.path.join(root, change.path)
    if change.after is None:
        path = os.path.dirname(path)
    while len(path) >= len(root):
        try:
            found = os.lstat(path)
        except OSError:
            path = os.path.dirname(path)
            continue
        # A symlink on the way says nothing of what lies behind it.
        return (
            float("inf")
            if stat.S_ISLNK(found.st_mode) and change.after is None
            else found.st_ctime_ns
        )
    return float("inf")
