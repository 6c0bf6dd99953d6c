"""One segment taken out of a path's state, what others changed since kept, or a conflict."""

import stat
from collections.abc import Callable
from typing import TypeVar

from kedge.engine.undo.lines import are_mergeable, is_text, merge_lines
from kedge.engine.undo.segments import Known, Segment
from kedge.snapshot.files.looking import is_same
from kedge.snapshot.objects.formats import blob_id
from kedge.snapshot.values import Absent, Present

T = TypeVar("T")


class Conflict(Exception):
    """The path cannot be undone without losing somebody's work; the message says why."""


class Contents:
    """The bytes of blobs: those that can be read, and those that merging made."""

    def __init__(self, read: Callable[[str], bytes]) -> None:
        self.made: dict[str, bytes] = {}
        self._read = read

    def get(self, blob: str) -> bytes:
        """The bytes of a blob."""
        made = self.made.get(blob)
        return self._read(blob) if made is None else made

    def put(self, content: bytes) -> str:
        """Keep the bytes that a merge came to; their id."""
        blob = blob_id(content).hex()
        self.made[blob] = content
        return blob


def without(segment: Segment, now: Known, contents: Contents) -> Known:
    """What the path would hold now if the segment had not happened."""
    if is_same(now, segment.after):
        return segment.before
    if is_same(now, segment.before):
        return now
    before, after = segment.before, segment.after
    if isinstance(now, Absent):
        raise Conflict("it does not exist any more")
    if isinstance(after, Absent):
        raise Conflict("it exists already")
    if isinstance(before, Absent):
        raise Conflict("it was changed since")
    if not all(stat.S_ISREG(each.mode) for each in (before, after, now)):
        raise Conflict("it was changed since, and a symlink cannot be merged")
    mode = _chosen(before.mode, after.mode, now.mode)
    if mode is None:
        raise Conflict("its permissions were changed since")
    return Present(_merged(before.blob, after.blob, now.blob, contents), mode)


def _merged(before: str, after: str, now: str, contents: Contents) -> str:
    """The blob of a regular file without what the session changed in it."""
    chosen = _chosen(before, after, now)
    if chosen is not None:
        return chosen
    base, theirs, ours = (contents.get(blob) for blob in (after, before, now))
    if not are_mergeable(base, theirs, ours):
        is_long = all(map(is_text, (base, theirs, ours)))
        what = "is too long to be merged" if is_long else "is not text"
        raise Conflict(f"it was changed since, and it {what}")
    merged = merge_lines(base, theirs, ours)
    if merged is None:
        raise Conflict("it was changed since, in the same lines")
    return contents.put(merged)


def _chosen(before: T, after: T, now: T) -> T | None:
    """What is right without a merge; None if all three differ."""
    if now == after:
        return before
    return now if now == before or before == after else None
