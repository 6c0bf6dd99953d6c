"""Paths of a worktree, from the forms that callers use."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from kedge.domain.errors import InvalidInput, PathRefused


def find_path(path: object, *, directory: str, root: str) -> bytes:
    """A path in a worktree, relative to its root; empty for the root itself.

    The argument is text, bytes or a `Path`, absolute or relative to the session's directory.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        raise InvalidInput("path must be a string, bytes or a Path", field="path")
    try:
        given = os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidInput("path holds half a character", field="path") from None
    if b"\0" in given:
        raise InvalidInput("path cannot hold a NUL character", field="path")
    # `normpath` keeps two slashes at the beginning.
    whole = b"/" + os.path.normpath(os.path.join(os.fsencode(directory), given)).lstrip(b"/")
    top = os.fsencode(root).rstrip(b"/")
    if whole != (top or b"/") and not whole.startswith(top + b"/"):
        raise PathRefused(f"{given.decode(errors='replace')} is outside of {root}", field="path")
    return whole[len(top) :].lstrip(b"/")


AnyPath: TypeAlias = str | bytes | os.PathLike[str]
"""A path as callers may give it."""


@dataclass(frozen=True, slots=True)
class NamedPaths:
    """The paths that a call declares to read or write."""

    inside: tuple[bytes, ...]
    """Paths in the worktree, relative to its root."""
    outside: tuple[bytes, ...]
    """Real paths that are not in it: nothing is recorded for them."""
    real: tuple[bytes, ...]
    """All of them, from the file system's root on: these are locked."""


def named_paths(
    paths: Iterable[object], *, directory: str, worktree: str, field: str
) -> NamedPaths:
    """Sort paths that are relative to a session's directory.

    A symlink is two paths, since a tool may write through it or replace it: the link's own, and its
    target.
    """
    root = os.fsencode(worktree).rstrip(b"/") + b"/"
    inside: dict[bytes, None] = {}
    outside: dict[bytes, None] = {}
    for given in paths:
        for real in _real_paths(given, directory, field):
            if real.startswith(root):
                inside[real.removeprefix(root)] = None
            else:
                outside[real] = None
    real_inside = tuple(root + path for path in inside)
    return NamedPaths(tuple(inside), tuple(outside), real_inside + tuple(outside))


def _real_paths(given: object, directory: str, field: str) -> list[bytes]:
    if not isinstance(given, str | bytes | os.PathLike):
        raise InvalidInput(f"{field} must be a list of paths", field=field)
    path = os.fsencode(given)
    if not path or b"\0" in path:
        raise InvalidInput(f"{field} contains an impossible path: {given!r}", field=field)
    whole = os.path.normpath(os.path.join(os.fsencode(directory), path))
    folder, name = os.path.split(whole)
    own = os.path.join(os.path.realpath(folder), name)
    return list(dict.fromkeys((own, os.path.realpath(own))))


def missing_folders(paths: Iterable[bytes], is_there: Callable[[bytes], bool]) -> tuple[bytes, ...]:
    """The folders above paths that are not there, parents first."""
    missing: set[bytes] = set()
    for path in paths:
        folder = os.path.dirname(path)
        while folder and folder not in missing and not is_there(folder):
            missing.add(folder)
            folder = os.path.dirname(folder)
    return tuple(sorted(missing))
