"""The files of a worktree as a snapshot holds them, read from the object store alone."""

import base64
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

from kedge.domain.errors import (
    EngineClosed,
    InvalidInput,
    ObjectMissing,
    PathNotFound,
    PathUncovered,
    SnapshotError,
)
from kedge.domain.file_states import Present, State, Uncovered
from kedge.domain.worktrees import TreeEntry
from kedge.snapshot import take
from kedge.snapshot.history import View
from kedge.snapshot.objects.formats import FOLDER_MODE, Entry, parse_tree
from kedge.snapshot.objects.store import ObjectStore

_TYPES: dict[int, Literal["file", "directory", "symlink"]] = {
    FOLDER_MODE: "directory",
    0o120000: "symlink",
}
_EXECUTABLE = 0o100


class Past:
    """A worktree as one snapshot holds it. Paths are relative to its root; symlinks are not
    followed."""

    def __init__(self, store: ObjectStore, snapshot: str) -> None:
        self._store = store
        self._view = View(self._read, take.find(store, snapshot))
        self._entries = lru_cache(self._parsed)

    def tree(self, folder: bytes, *, seen_from: bytes) -> list[TreeEntry]:
        """The entries of a folder, sorted by name; their paths are relative to another folder."""
        tree = self._folder(folder)
        if tree is None:
            if isinstance(self._known(folder), Present):
                raise InvalidInput(f"{_shown(folder)} was not a folder", field="path")
            raise PathNotFound(_shown(folder))
        above = os.path.relpath(b"/" + folder, b"/" + seen_from)
        return [self._entry(above, entry) for entry in sorted(self._entries(tree).values())]

    def file(self, path: bytes) -> bytes:
        """The content of a file; of a symlink, its target."""
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
        """The git tree of a folder, if it was one; git has no trees of empty folders."""
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


MOST_OPEN = 8
"""Unused stores are closed when more than this many are open."""


@dataclass(slots=True)
class _Open:
    store: ObjectStore
    users: int = 0


class Archives:
    """The object stores in a data folder; thread-safe."""

    def __init__(self, data: Path) -> None:
        self._folder = data / "snapshots"
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._lock = threading.Lock()
        self._most = MOST_OPEN

    @contextmanager
    def opened(self, project: str) -> Iterator[ObjectStore]:
        """The store of a project, open while it is being read."""
        with self._lock:
            found = self._take(project)
        try:
            yield found.store
        finally:
            with self._lock:
                found.users -= 1
            self._close_unused()

    @contextmanager
    def reading(self, projects: Sequence[str]) -> Iterator[Callable[[str], bytes]]:
        """A function that reads blobs, each from the first of the projects that has it."""
        with ExitStack() as stack:
            stores = [stack.enter_context(self.opened(project)) for project in projects]
            yield partial(_read, stores)

    def close(self) -> None:
        """Close all stores; one that is still being read is closed by its last reader."""
        with self._lock:
            self._most = 0
        self._close_unused()

    def _take(self, project: str) -> _Open:
        if self._most == 0:
            raise EngineClosed
        found = self._open.get(project)
        if found is None:
            found = self._open[project] = _Open(ObjectStore(self._folder / project))
        self._open.move_to_end(project)
        found.users += 1
        return found

    def _close_unused(self) -> None:
        with self._lock:
            unused = [name for name, found in self._open.items() if not found.users]
            too_many = max(0, len(self._open) - self._most)
            closing = [self._open.pop(name) for name in unused[:too_many]]
        for found in closing:
            # It wrote nothing of its own: what it could not clean up is left for the next process.
            with suppress(SnapshotError):
                found.store.close()


def _read(stores: Sequence[ObjectStore], blob: str) -> bytes:
    for store in stores:
        with suppress(ObjectMissing):
            return store.read(bytes.fromhex(blob))[1]
    raise ObjectMissing(blob)
