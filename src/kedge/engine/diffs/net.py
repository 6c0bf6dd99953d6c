"""What a session's changes come to, path by path: its own lines, as far as they can be told apart.

No I/O but the reading of blobs that is handed in, and that only where others changed a path between
two changes of the session.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from kedge.engine.undo.merging import Conflict, Contents, without
from kedge.engine.undo.segments import Known, Segment, Source, composed
from kedge.snapshot.files.looking import is_same
from kedge.snapshot.values import Absent, Change, Present
from kedge.store.verbs.changes import StoredChange, StoredState

Net: TypeAlias = tuple[Known, Known]
"""What there would be at a path without the session's changes, and with them."""


def net_changes(changes: Iterable[StoredChange], root: str, contents: Contents) -> list[Change]:
    """The net effect of a session's own changes, sorted by path as seen from the root.

    A path at which nothing is left of them is not there; one is there more than once where what the
    session did before others changed it cannot be put together with what it did afterwards.
    """
    return [
        Change(path, before, after)
        for path, segments in sorted(segments_by_path(changes, root).items())
        for before, after in net_of(segments, contents)
    ]


def segments_by_path(changes: Iterable[StoredChange], root: str) -> dict[bytes, list[Segment]]:
    """What is known of each path, oldest first; folders and what was not looked at left out."""
    found: defaultdict[bytes, list[Segment]] = defaultdict(list)
    for change in sorted(changes, key=_age):
        if change.source not in ("folder", "uncovered"):
            segment = Segment(_state(change.before), _state(change.after), Source(change.source))
            found[_seen_from(root, change)].append(segment)
    return found


def net_of(segments: Sequence[Segment], contents: Contents) -> list[Net]:
    """The net effect at one path: usually one, none if nothing is left of it.

    Each segment is done again, by a merge, to what the ones before it came to: so lines that others
    changed in between are on neither side. Where that is a conflict, the segment stands for itself.
    """
    nets: list[Net] = []
    for segment in composed(segments):
        again = _again(nets[-1], segment, contents) if nets else None
        if again is None:
            nets.append((segment.before, segment.after))
        else:
            nets[-1] = again
    return [net for net in nets if not is_same(*net)]


def _again(net: Net, segment: Segment, contents: Contents) -> Net | None:
    before, now = net
    if isinstance(segment.after, Absent):
        # Whatever was there, the session deleted it.
        return before, segment.after
    backwards = Segment(segment.after, segment.before, segment.source)
    try:
        return before, without(backwards, now, contents)
    except Conflict:
        return None


def _age(change: StoredChange) -> tuple[int, int, str, int]:
    return change.timeline, change.pos, change.part_id, change.n


def _state(state: StoredState) -> Known:
    return Absent() if state is None else Present(*state)


def _seen_from(root: str, change: StoredChange) -> bytes:
    """The path from the root; a subtask may work in another worktree than its session."""
    if change.worktree == root:
        return change.path
    absolute = os.path.join(os.fsencode(change.worktree), change.path)
    return os.path.relpath(absolute, os.fsencode(root))
