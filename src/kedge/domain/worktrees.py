"""Worktrees that lie in one another, and the entries of a folder as clients get them."""

import os
from typing import Literal

from kedge.domain.values import Value


def are_related(one: str, other: str) -> bool:
    """Whether one worktree is the other, holds it or lies in it."""
    first, second = _top(one), _top(other)
    return first.startswith(second) or second.startswith(first)


def path_in(root: str, worktree: str, path: bytes) -> bytes | None:
    """What a path of a worktree is called from another root; None if it is outside of that."""
    if worktree == root:
        return path
    # A path that is absolute already stays what it is.
    whole, top = os.path.join(os.fsencode(worktree), path), _top(root)
    return whole.removeprefix(top) if whole.startswith(top) else None


def _top(root: str) -> bytes:
    return os.fsencode(root).rstrip(b"/") + b"/"


class TreeEntry(Value, frozen=True, kw_only=True):
    """A file, a folder or a symlink that was there."""

    name: str
    path: str
    """As it can be asked for again: from the session's directory. What is not UTF-8 is U+FFFD."""
    pathBase64: str | None = None
    """The bytes of the path, if it is not UTF-8."""
    type: Literal["file", "directory", "symlink"]
    size: int | None = None
    """Bytes of a file's content or of a symlink's target."""
    executable: bool | None = None
    """Of a file: whether its owner could run it."""
