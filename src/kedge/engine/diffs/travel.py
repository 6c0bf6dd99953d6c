"""The files of a worktree as a snapshot holds them; the disk is not asked."""

import base64
import os
from functools import lru_cache
from typing import Literal

from kedge.domain.errors import InvalidInput, PathNotFound, PathUncovered
from kedge.domain.trees import TreeEntry
from kedge.snapshot import kept
from kedge.snapshot.history import View
from kedge.snapshot.objects.formats import FOLDER_MODE, Entry, parse_tree
from kedge.snapshot.objects.store import ObjectStore
from kedge.snapshot.values import Present, State, Uncovered

_TYPES: dict[int, Literal["file", "directory", "symlink"]] = {
    FOLDER_MODE: "directory",
    0o120000: "symlink",
}
_EXECUTABLE = 0o100


class Past:
    """A worktree as one snapshot holds it. Paths are relative to its root; none is followed."""

    def __init__(self, store: ObjectStore, snapshot: str) -> None:
        self._store = store
        self._view = View(self._read, kept.find(store, snapshot))
        self._entries = lru_cache(self._parsed)

    def tree(self, folder: bytes, *, seen_from: bytes) -> list[TreeEntry]:
        """What lay directly in a folder, sorted by name; with paths as seen from another folder."""
        tree = self._folder(folder)
        if tree is None:
            if isinstance(self._known(folder), Present):
                raise InvalidInput(f"{_shown(folder)} was not a folder", field="path")
            raise PathNotFound(_shown(folder))
        above = os.path.relpath(b"/" + folder, b"/" + seen_from)
        return [self._entry(above, entry) for entry in sorted(self._entries(tree).values())]

    def file(self, path: bytes) -> bytes:
        """What a file held; of a symlink, its target."""
        if self._folder(path) is not None:
            raise InvalidInput(f"{_shown(path) or '.'} was a folder", field="path")
        state = self._known(path)
        if not isinstance(state, Present):
            raise PathNotFound(_shown(path))
        return self._read(bytes.fromhex(state.blob))

    def _known(self, path: bytes) -> State:
        state = self._view.state(path)
        if isinstance(state, Uncovered):
            raise PathUncovered(_shown(path), state.reason)
        return state

    def _folder(self, path: bytes) -> bytes | None:
        """The git tree of a folder, if it was one; git knows none that was empty."""
        tree = self._view.files
        for name in filter(None, path.split(b"/")):
            _, mode, id = self._entries(tree).get(name, (name, 0, b""))
            if mode != FOLDER_MODE:
                return None
            tree = id
        return tree

    def _parsed(self, tree: bytes) -> dict[bytes, Entry]:
        return {entry[0]: entry for entry in parse_tree(self._read(tree))}

    def _entry(self, above: bytes, entry: Entry) -> TreeEntry:
        name, mode, id = entry
        path = os.path.normpath(os.path.join(above, name))
        type = _TYPES.get(mode, "file")
        return TreeEntry(
            name=_shown(name),
            path=_shown(path),
            pathBase64=_base64(path),
            type=type,
            size=None if type == "directory" else len(self._read(id)),
            executable=bool(mode & _EXECUTABLE) if type == "file" else None,
        )

    def _read(self, id: bytes) -> bytes:
        return self._store.read(id)[1]


def _shown(path: bytes) -> str:
    return path.decode(errors="replace")


def _base64(path: bytes) -> str | None:
    try:
        path.decode()
    except UnicodeDecodeError:
        return base64.b64encode(path).decode()
    return None
