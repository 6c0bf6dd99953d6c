"""A cache of an earlier process's knowledge of the files, so that not all must be read again.

The memory is only a hint: a file's blob counts if its stat data are exactly the same, and only
while the snapshot that the memory was written with is still kept in the object store.
"""

import os
from collections.abc import Mapping
from typing import Protocol

import msgspec

from kedge.snapshot.files.reader import Stamp
from kedge.snapshot.worktree.entries import FolderEntry

Found = Mapping[bytes, tuple[os.stat_result, Stamp]]
"""Names in a folder with their `lstat` results."""

_FORMAT = 1


class Memory(Protocol):
    """A source of blobs of files that this process has not read."""

    def blobs(self, folder: FolderEntry, found: Found) -> Mapping[bytes, bytes]:
        """The blobs of those files in a folder that are certainly unchanged."""
        ...


class Nothing:
    """An empty memory."""

    def blobs(self, folder: FolderEntry, found: Found) -> Mapping[bytes, bytes]:
        return {}


class _Saved(msgspec.Struct, array_like=True, frozen=True):
    format: int
    root: bytes
    snapshot: bytes
    folders: dict[bytes, dict[bytes, tuple[Stamp, bytes]]]


class Remembered:
    """The files of a worktree as an earlier process knew them."""

    def __init__(self, root: bytes, saved: _Saved) -> None:
        self._below = len(root) + 1
        self._saved = saved

    @property
    def snapshot(self) -> bytes:
        """The tree that holds all the blobs."""
        return self._saved.snapshot

    def blobs(self, folder: FolderEntry, found: Found) -> Mapping[bytes, bytes]:
        files = self._saved.folders.get(folder.path[self._below :], {})
        return {
            name: blob
            for name, (stamp, blob) in files.items()
            if (now := found.get(name)) is not None and now[1] == stamp
        }


def save(top: FolderEntry, snapshot: bytes) -> bytes:
    """The memory for a later process; `snapshot` is the tree of exactly these files."""
    below = len(top.path) + 1
    folders = {
        folder.path[below:]: {
            name: (file.stamp, file.blob)
            for name, file in folder.files.items()
            if not file.is_doubted
        }
        for folder in top.everything()
    }
    return msgspec.msgpack.encode(_Saved(_FORMAT, top.path, snapshot, folders))


def load(root: bytes, content: bytes) -> Remembered | None:
    """The memory, if it is of this root and in a known form."""
    try:
        saved = msgspec.msgpack.decode(content, type=_Saved)
    except msgspec.DecodeError:
        return None
    if saved.format != _FORMAT or saved.root != root:
        return None
    return Remembered(root, saved)
