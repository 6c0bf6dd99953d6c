"""Composes the changes of a session, path by path: its own lines, as far as they can be separated
from those of others.

Does no I/O except through the function that reads blobs, and that only where others changed a path
between two changes of the session.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from kedge.domain.errors import SnapshotError
from kedge.domain.file_states import Known
from kedge.engine.revert.merge import Conflict, Contents, Segment, Source, composed, without
from kedge.snapshot.files.reader import is_same
from kedge.snapshot.values import Change
from kedge.store.queries.changes import StoredChange

Net: TypeAlias = tuple[Known, Known]
"""What a path would hold without the session's changes, and with them."""


def net_changes(changes: Iterable[StoredChange], root: str, contents: Contents) -> list[Change]:
    """The net effect of a session's own changes, sorted by path relative to the root.

    A path without a net effect is left out. A path occurs more than once where others changed it
    between two changes of the session that cannot be composed.
    """
    return [
        Change(path, before, after)
        for path, segments in sorted(segments_by_path(changes, root).items())
        for before, after in net_of(segments, contents)
    ]


def segments_by_path(changes: Iterable[StoredChange], root: str) -> dict[bytes, list[Segment]]:
    """The segments of each path, oldest first; folders and states that were not inspected are left
    out."""
    found: defaultdict[bytes, list[Segment]] = defaultdict(list)
    for change in sorted(changes, key=_age):
        if change.source not in ("folder", "uncovered"):
            segment = Segment(change.before, change.after, Source(change.source))
            found[_seen_from(root, change)].append(segment)
    return found


def net_of(segments: Sequence[Segment], contents: Contents) -> list[Net]:
    """The net effect at one path: usually one, none if nothing is left of it.

    Starting from the state that the session left last, its segments are taken out one by one, as an
    undo would: so lines of others are on both sides, and lines that the session deleted on one. At
    a conflict, the earlier segments become a net effect of their own.
    """
    nets: list[Net] = []
    for segment in reversed(composed(segments)):
        before = _taken_out(segment, nets[-1][0], contents) if nets else None
        if before is None:
            nets.append((segment.before, segment.after))
        else:
            nets[-1] = before, nets[-1][1]
    return [net for net in reversed(nets) if not is_same(*net)]


def _taken_out(segment: Segment, now: Known, contents: Contents) -> Known | None:
    try:
        return without(segment, now, contents)
    except (Conflict, SnapshotError):
        return None


def _age(change: StoredChange) -> tuple[int, int, str, int]:
    return change.timeline, change.pos, change.part_id, change.n


def _seen_from(root: str, change: StoredChange) -> bytes:
    """The path relative to the root; a subtask may work in another worktree than its session."""
    if change.worktree == root:
        return change.path
    absolute = os.path.join(os.fsencode(change.worktree), change.path)
    return os.path.relpath(absolute, os.fsencode(root))
