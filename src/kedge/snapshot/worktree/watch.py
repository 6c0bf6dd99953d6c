"""Watches: detect which folders to examine again, with the kernel's inotify if available.

A hint never says what happened, only where to look; in any doubt, a watch says "everything".

The queue is in the order of the changes and reading it is synchronous, so emptying it sees
everything that was written before. Events of a folder that is gone are dropped.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from kedge.snapshot.worktree.entries import FolderEntry


@dataclass(slots=True)
class Hints:
    """Where to look again."""

    everything: bool = False
    names: dict[FolderEntry, dict[bytes, "Hint"]] = field(default_factory=dict)


@dataclass(slots=True)
class Hint:
    """Why to examine a name whose stat data may not show the change."""

    written: bool = False
    """Its content may have changed with the same stat data."""
    replaced: bool = False
    """Another folder may have taken its place, even with the same inode number."""


class Watch(Protocol):
    """A way to detect changes."""

    way: str
    overflows: int
    """How often events were lost, so that everything had to be examined."""

    def add(self, folder: FolderEntry) -> None:
        """Start to watch a folder, before it is listed; raises `WatchesUsedUp`."""
        ...

    def remove(self, folder: FolderEntry) -> None:
        """Stop watching; the folder is gone or no longer covered."""
        ...

    def collect(self) -> Hints:
        """All hints since the last call, including everything that was written before this one."""
        ...

    def count(self) -> int:
        """The number of watched folders."""
        ...

    def close(self) -> None: ...


class WatchesUsedUp(Exception):
    """The system allows no more watches."""


class Rescan:
    """Detects nothing by itself: everything is compared by its stat data each time."""

    way = "scan"
    overflows = 0

    def add(self, folder: FolderEntry) -> None:
        """Nothing to arm."""

    def remove(self, folder: FolderEntry) -> None:
        """Nothing to disarm."""

    def collect(self) -> Hints:
        return Hints(everything=True)

    def count(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing to release."""


MODIFY, ATTRIB, CLOSE_WRITE = 0x002, 0x004, 0x008
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x040, 0x080, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED = 0x2000, 0x4000, 0x8000
ONLYDIR, DONT_FOLLOW, EXCL_UNLINK = 0x1000000, 0x2000000, 0x4000000
ISDIR = 0x40000000

_CONTENT = MODIFY | CLOSE_WRITE
_NAMES = MOVED_FROM | MOVED_TO | CREATE | DELETE
_MASK = _CONTENT | ATTRIB | _NAMES | ONLYDIR | DONT_FOLLOW | EXCL_UNLINK
_ROOT_MASK = _MASK | DELETE_SELF | MOVE_SELF

_HEADER = struct.Struct("iIII")
_READ_SIZE = 1 << 18
# More than a full queue can hold: a writer that never stops must not block a snapshot.
_MOST_READ = 1 << 23


def parsed(events: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The watch, the mask and the name of each event that was read."""
    at = 0
    while at < len(events):
        watch, mask, _, length = _HEADER.unpack_from(events, at)
        at += _HEADER.size
        yield watch, mask, events[at : at + length].rstrip(b"\0")
        at += length


class Inotify:
    """An inotify instance with a watch on every folder in the tree."""

    way = "inotify"

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            code = ctypes.get_errno()
            if code in (errno.EMFILE, errno.ENFILE):
                raise WatchesUsedUp(os.strerror(code))
            raise OSError(code, os.strerror(code))
        self._folders: dict[int, FolderEntry] = {}
        self.overflows = 0

    def add(self, folder: FolderEntry) -> None:
        mask = _MASK if folder.parent is not None else _ROOT_MASK
        watch = self._libc.inotify_add_watch(self._fd, folder.path, mask)
        if watch < 0:
            self._refuse(ctypes.get_errno(), folder)
        if watch != folder.watch:
            # Another folder has taken its place.
            self.remove(folder)
        # For an inode that is already watched, the kernel returns its old number: then the folder
        # has moved, and the number belongs to its new place.
        self._folders[watch] = folder
        folder.watch = watch

    def remove(self, folder: FolderEntry) -> None:
        watch, folder.watch = folder.watch, None
        if watch is not None and self._folders.get(watch) is folder:
            del self._folders[watch]
            # Fails if the kernel has removed it with the folder; either way it is gone.
            self._libc.inotify_rm_watch(self._fd, watch)

    def collect(self) -> Hints:
        hints = Hints()
        total = 0
        while total < _MOST_READ:
            try:
                events = os.read(self._fd, _READ_SIZE)
            except BlockingIOError:
                break
            total += len(events)
            self._note(events, hints)
        else:
            # The rest of the queue may be older than this call: examine everything.
            hints.everything = True
        return hints

    def _note(self, events: bytes, hints: Hints) -> None:
        for watch, mask, name in parsed(events):
            if mask & OVERFLOW:
                self.overflows += 1
                hints.everything = True
            elif folder := self._folders.get(watch):
                self._note_one(folder, mask, name, hints)

    def _note_one(self, folder: FolderEntry, mask: int, name: bytes, hints: Hints) -> None:
        if mask & (UNMOUNT | DELETE_SELF | MOVE_SELF):
            hints.everything = True
        if mask & IGNORED:
            # The kernel dropped the watch: the folder was deleted or its file system unmounted.
            if folder.watch is not None:
                self._folders.pop(folder.watch, None)
            folder.watch = None
            folder.signature = None
        if not name:
            return
        hint = hints.names.setdefault(folder, {}).setdefault(name, Hint())
        if mask & _CONTENT:
            hint.written = True
        if mask & ISDIR and mask & _NAMES:
            hint.replaced = True

    def _refuse(self, code: int, folder: FolderEntry) -> None:
        if code == errno.ENOSPC:
            raise WatchesUsedUp("fs.inotify.max_user_watches is used up")
        raise OSError(code, os.strerror(code), os.fsdecode(folder.path))

    def count(self) -> int:
        return len(self._folders)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._folders.clear()
