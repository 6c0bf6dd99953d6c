"""Which of a dead process's changes may be somebody else's: those made after it was last alive."""

import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kedge.snapshot.worktree.filesystems import Mounts, has_own_clock
from kedge.store.verbs.changes import NewChange

# Time stamps that are whole hundredths of a second come from a file system that rounds them down,
# by up to two seconds.
_COARSE_NS = 10_000_000
_ROUNDED_NS = 2_000_000_000
_NOBODY_KNOWS = sys.maxsize


@dataclass(frozen=True, slots=True)
class Life:
    """When the process of a call is known to have lived, in nanoseconds on the clock of files."""

    since: int | None
    """Before the call did anything; None if that is not known."""
    until: int | None
    """Its last sign of life; None if there is none that can be compared with files."""


def doubted(changes: Sequence[NewChange], worktree: str, life: Life) -> list[NewChange]:
    """The changes, shared where they were made after the last sign of life, or may have been.

    What a process had started may go on after its death, and people work on as well: nobody can
    tell whose it is, so that nobody's undo may touch it.
    """
    root = os.fsencode(worktree)
    mounts = Mounts()
    return [
        replace(change, source="shared")
        if change.source == "observed" and _is_doubtful(root, change, life, mounts)
        else change
        for change in changes
    ]


def _is_doubtful(root: bytes, change: NewChange, life: Life, mounts: Mounts) -> bool:
    if life.since is None or life.until is None:
        return True
    if not has_own_clock(os.path.join(root, change.path), mounts):
        return True
    return _time_of(root, change, life.since) >= life.until


def _time_of(root: bytes, change: NewChange, since: int) -> int:
    """When a path became what it is, at the latest.

    A file's own time stamp tells that, and that of its folder for a file that is gone. One that is
    from before the call does not: the change came with a folder above that was moved or replaced.
    Nor does that of a file where nothing was: a folder that is renamed leaves it to what is inside.
    """
    is_new = change.before is None and change.after is not None
    found = 0
    path = os.path.join(root, change.path)
    if change.after is None:
        path = os.path.dirname(path)
    while len(path) >= len(root):
        try:
            status = os.lstat(path)
        except OSError:
            path = os.path.dirname(path)
            continue
        if stat.S_ISLNK(status.st_mode) and path != os.path.join(root, change.path):
            # A symlink on the way says nothing of what lies behind it.
            return _NOBODY_KNOWS
        # Of all time stamps the one that nobody can set: a copy may keep the others.
        found = max(found, _latest(status.st_ctime_ns))
        path = os.path.dirname(path)
        if found >= since and (not is_new or len(path) <= len(root)):
            return found
    return _NOBODY_KNOWS if found < since else found


def _latest(stamp: int) -> int:
    """The latest time for which a file system may have given this time stamp."""
    return stamp + _ROUNDED_NS if stamp % _COARSE_NS == 0 else stamp
