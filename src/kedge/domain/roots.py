"""Worktrees that lie in one another: whether they do, and what a path of one is called in the
other. Nothing is looked up on disk."""

import os


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
