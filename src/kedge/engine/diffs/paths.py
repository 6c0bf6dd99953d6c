"""Paths as clients write them, found in a worktree without asking the disk."""

import os

from kedge.domain.errors import InvalidInput, PathRefused


def find_path(path: object, *, directory: str, root: str) -> bytes:
    """A path in a worktree as seen from its root; empty for the root itself.

    It is given as text, bytes or a `Path`, absolute or from the session's directory.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        raise InvalidInput("path must be a string, bytes or a Path", field="path")
    try:
        given = os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidInput("path holds half a character", field="path") from None
    if b"\0" in given:
        raise InvalidInput("path cannot hold a NUL character", field="path")
    # A path with two slashes in front is left as it is by `normpath`.
    whole = b"/" + os.path.normpath(os.path.join(os.fsencode(directory), given)).lstrip(b"/")
    top = os.fsencode(root).rstrip(b"/")
    if whole != (top or b"/") and not whole.startswith(top + b"/"):
        raise PathRefused(f"{given.decode(errors='replace')} is outside of {root}", field="path")
    return whole[len(top) :].lstrip(b"/")
