"""Reads one name of an open folder so that the result was the file's state at one moment."""

import ctypes
import errno
import os
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from hashlib import sha1
from operator import attrgetter
from typing import TypeVar

from kedge.domain.file_states import Absent, Outcome, Present, State
from kedge.snapshot.objects.formats import blob_id

Stamp = tuple[int, int, int, int, int]
"""`(st_mode, st_size, st_mtime_ns, st_ctime_ns, st_ino)`."""

stamp_of: "attrgetter[Stamp]" = attrgetter(
    "st_mode", "st_size", "st_mtime_ns", "st_ctime_ns", "st_ino"
)
"""The fields of a stat result that distinguish states of a file; mapped over whole trees."""

# Time stamps come from a coarse clock: a second write soon after the first may not change them.
RACY_WINDOW_NS = 20_000_000

_ATTEMPTS = 3
_CHUNK = 1 << 20
# Non-blocking: a pipe, or a file under a lease, would hang the reader.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

_T = TypeVar("_T")


class ReadFailure(Enum):
    """Why there is no content."""

    ABSENT = auto()
    FOLDER = auto()
    SPECIAL = auto()
    """A socket, a pipe or a device; it was not opened."""
    TOO_LARGE = auto()
    UNREADABLE = auto()
    UNSTABLE = auto()
    """It changed during every attempt, or its size is not the number of its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A file or a symlink as it was at one moment during the read."""

    data: bytes
    """For a symlink, its target."""
    stamp: Stamp
    links: int
    """How many names the file has."""
    racy: bool
    """Whether it is so new that a later change may keep the same stamp: then read it again."""

    @property
    def mode(self) -> int:
        """Type and permission bits."""
        return self.stamp[0]


_BY_ERRNO = {
    errno.ENOENT: ReadFailure.ABSENT,
    # Nothing can exist under a name that the file system cannot hold.
    errno.ENAMETOOLONG: ReadFailure.ABSENT,
    errno.EILSEQ: ReadFailure.ABSENT,
    errno.EACCES: ReadFailure.UNREADABLE,
    errno.EPERM: ReadFailure.UNREADABLE,
    errno.EIO: ReadFailure.UNREADABLE,
    # `lstat` saw a file; now it is a symlink, a pipe or another file, or under a lease.
    errno.ELOOP: ReadFailure.UNSTABLE,
    errno.EMLINK: ReadFailure.UNSTABLE,
    errno.ENXIO: ReadFailure.UNSTABLE,
    errno.EINVAL: ReadFailure.UNSTABLE,
    errno.ESTALE: ReadFailure.UNSTABLE,
    errno.EAGAIN: ReadFailure.UNSTABLE,
}


def read_file(
    dir_fd: int, name: bytes, limit: int, *, window_ns: int = RACY_WINDOW_NS
) -> Content | ReadFailure:
    """The content at a name (a single component) in a folder, unless it is over `limit` bytes.

    An `OSError` means that the machine has a problem (no descriptors, no memory), not the file.
    """
    racy_after = time.time_ns() - window_ns
    found = _steady(dir_fd, name, limit, _read_all, bytes)
    if isinstance(found, ReadFailure):
        return found
    status, data = found
    # Every change updates this time, and no program can set it.
    newest = status.st_ctime_ns
    return Content(
        data=data, stamp=stamp_of(status), links=status.st_nlink, racy=newest >= racy_after
    )


def hash_file(dir_fd: int, name: bytes) -> tuple[int, bytes] | ReadFailure:
    """The mode and the blob id of a file of any size, without keeping its content."""
    found = _steady(dir_fd, name, sys.maxsize, _hash_all, blob_id)
    return found if isinstance(found, ReadFailure) else (found[0].st_mode, found[1])


def _steady(
    dir_fd: int,
    name: bytes,
    limit: int,
    take: Callable[[int, int], _T | None],
    take_target: Callable[[bytes], _T],
) -> tuple[os.stat_result, _T] | ReadFailure:
    """The result of `take` for the file, with the stat result that applied during it."""
    for _ in range(_ATTEMPTS):
        try:
            found = _attempt(dir_fd, name, limit, take, take_target)
        except OSError as error:
            if error.errno not in _BY_ERRNO:
                raise
            found = _BY_ERRNO[error.errno]
        if found is not ReadFailure.UNSTABLE:
            return found
    return ReadFailure.UNSTABLE


def _attempt(
    dir_fd: int,
    name: bytes,
    limit: int,
    take: Callable[[int, int], _T | None],
    take_target: Callable[[bytes], _T],
) -> tuple[os.stat_result, _T] | ReadFailure:
    status = os.lstat(name, dir_fd=dir_fd)
    kind = stat.S_IFMT(status.st_mode)
    stamp = stamp_of(status)
    taken: _T | None
    if kind == stat.S_IFREG:
        if status.st_size > limit:
            return ReadFailure.TOO_LARGE
        taken = _take_regular(dir_fd, name, stamp, take)
    elif kind == stat.S_IFLNK:
        taken = take_target(os.readlink(name, dir_fd=dir_fd))
    else:
        return ReadFailure.FOLDER if kind == stat.S_IFDIR else ReadFailure.SPECIAL
    if taken is None or stamp_of(os.lstat(name, dir_fd=dir_fd)) != stamp:
        return ReadFailure.UNSTABLE
    return status, taken


def _take_regular(
    dir_fd: int, name: bytes, stamp: Stamp, take: Callable[[int, int], _T | None]
) -> _T | None:
    """The result of `take` for the file with that stamp; None if it is, or becomes, another one."""
    fd = os.open(name, _OPEN, dir_fd=dir_fd)
    try:
        if stamp_of(os.fstat(fd)) != stamp:
            return None
        taken = take(fd, stamp[1])
        return taken if stamp_of(os.fstat(fd)) == stamp else None
    finally:
        os.close(fd)


def _read_all(fd: int, size: int) -> bytes | None:
    """All bytes of a file; None if there are not `size` of them."""
    # One byte more than expected, to notice a longer file.
    data = os.read(fd, size + 1)
    if 0 < len(data) < size:
        # A file system that returns pieces, or a read over 2 GiB.
        pieces = [data]
        while data and size >= (have := sum(map(len, pieces))):
            pieces.append(data := os.read(fd, size + 1 - have))
        data = b"".join(pieces)
    return data if len(data) == size else None


def _hash_all(fd: int, size: int) -> bytes | None:
    """The blob id of a file; None if it does not have `size` bytes."""
    digest = sha1(b"blob %d\0" % size, usedforsecurity=False)
    left = size
    while data := os.read(fd, min(_CHUNK, left + 1)):
        digest.update(data)
        left -= len(data)
        if left < 0:
            return None
    return digest.digest() if left == 0 else None


@dataclass(frozen=True, slots=True)
class Folder:
    """There is a folder at the path."""

    entries: frozenset[bytes]
    """The files in it at any depth, as paths from the root."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Nothing can be at the path: a parent is a file or a symlink, not a folder."""

    by: bytes
    """The path of that parent."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that no snapshot holds, and the outcome for a path that was to be written."""

    outcome: Outcome
    """`CONFLICT` or `SKIPPED`."""
    reason: str


Disk = Present | Absent | Folder | Blocked | Obstacle


OBSTACLES = {
    ReadFailure.FOLDER: Obstacle(Outcome.CONFLICT, "there is a folder"),
    ReadFailure.SPECIAL: Obstacle(Outcome.CONFLICT, "there is a socket, a pipe or a device"),
    ReadFailure.UNSTABLE: Obstacle(Outcome.CONFLICT, "it keeps changing"),
    ReadFailure.UNREADABLE: Obstacle(Outcome.SKIPPED, "it cannot be read"),
}


def look_at(dir_fd: int, name: bytes) -> Present | Absent | Obstacle:
    """The state of a name in an open folder."""
    found = hash_file(dir_fd, name)
    if found is ReadFailure.ABSENT:
        return Absent()
    if isinstance(found, ReadFailure):
        return OBSTACLES[found]
    mode, blob = found
    return Present(blob.hex(), mode)


def is_same(disk: Present | Absent | Obstacle, state: State) -> bool:
    """Whether type, permission bits and content are those of the state."""
    if isinstance(disk, Present) and isinstance(state, Present) and disk.is_link and state.is_link:
        # A symlink's own permission bits mean nothing and differ between systems.
        return disk.blob == state.blob
    return disk == state


_Statx = Callable[[int, bytes, int, int, "ctypes._CArgObject"], int]

_IS_LINUX = sys.platform.startswith("linux")
_NO_FOLLOW = 0x100
_BIRTH = 0x800
_COARSE_CLOCK = 5
"""Linux's `CLOCK_REALTIME_COARSE`, for which Python has no name."""
_TICK = 20_000_000
"""Nanoseconds by which a file system's clock may lag if it cannot be read directly."""


class _Result(ctypes.Structure):
    """The used fields of the kernel's `struct statx`; the rest is padding."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("_before", ctypes.c_byte * 76),
        ("seconds", ctypes.c_int64),
        ("nanoseconds", ctypes.c_uint32),
        ("_after", ctypes.c_byte * 164),
    )


def file_clock() -> int:
    """The time with which file systems stamp writes from now on, or slightly earlier."""
    return time.clock_gettime_ns(_COARSE_CLOCK) if _IS_LINUX else time.time_ns() - _TICK


def born(dir_fd: int, name: bytes) -> int | None:
    """When the file or symlink at a name was created, in nanoseconds; None if unknown."""
    if not _IS_LINUX:
        seconds = getattr(os.lstat(name, dir_fd=dir_fd), "st_birthtime", None)
        return None if seconds is None else int(seconds * 1e9)
    statx = _statx()
    result = _Result()
    if statx is None or statx(dir_fd, name, _NO_FOLLOW, _BIRTH, ctypes.byref(result)) != 0:
        return None
    if not result.mask & _BIRTH:
        return None
    return int(result.seconds) * 1_000_000_000 + int(result.nanoseconds)


@cache
def _statx() -> _Statx | None:
    call = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
    if call is None:
        return None
    call.argtypes = (
        ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_Result),
    )  # fmt: skip
    return lambda *arguments: int(call(*arguments))
