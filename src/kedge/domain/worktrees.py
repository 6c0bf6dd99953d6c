"""Worktrees that contain one another, and the entries of a folder as clients get them."""

import os
from typing import Literal

from kedge.domain.values import Value


def are_related(one: str, other: str) -> bool:
    """Whether one worktree is the other, contains it or lies in it."""
    first, second = _top(one), _top(other)
    return first.startswith(second) or second.startswith(first)


def path_in(root: str, worktree: str, path: bytes) -> bytes | None:
    """A path of a worktree relative to another root; None if it is outside of that root."""
    if worktree == root:
        return path
    # Joining leaves an absolute path unchanged.
    whole, top = os.path.join(os.fsencode(worktree), path), _top(root)
    return whole.removeprefix(top) if whole.startswith(top) else None


def _top(root: str) -> bytes:
    return os.fsencode(root).rstrip(b"/") + b"/"


class TreeEntry(Value, frozen=True, kw_only=True):
    """A file, folder or symlink of the past."""

    name: str
    path: str
    """Relative to the session's directory, as a request takes it; bytes that are not UTF-8 become
    U+FFFD."""
    pathBase64: str | None = None
    """The bytes of the path, if it is not UTF-8."""
    type: Literal["file", "directory", "symlink"]
    size: int | None = None
    """Bytes of a file's content or of a symlink's target."""
    executable: bool | None = None
    """Of a file: whether its owner could run it."""
