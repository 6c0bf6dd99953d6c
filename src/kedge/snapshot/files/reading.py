"""One name of an open folder, read so that what is returned was the file's state at one moment;
what to do about a file that cannot be read is the caller's concern."""

import errno
import os
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import sha1
from operator import attrgetter
from typing import TypeVar

from kedge.snapshot.objects.formats import blob_id

Stamp = tuple[int, int, int, int, int]
"""`(st_mode, st_size, st_mtime_ns, st_ctime_ns, st_ino)`."""

stamp_of: "attrgetter[Stamp]" = attrgetter(
    "st_mode", "st_size", "st_mtime_ns", "st_ctime_ns", "st_ino"
)
"""What of a stat result tells one state of a file from another; mapped over whole trees."""

# Time stamps come from a coarse clock: a write this soon after another may leave no trace in them.
RACY_WINDOW_NS = 20_000_000

_ATTEMPTS = 3
_CHUNK = 1 << 20
# Never waiting: a pipe, or a file under a lease, would hang the reader.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

_T = TypeVar("_T")


class Failure(Enum):
    """Why there is no content."""

    ABSENT = auto()
    FOLDER = auto()
    SPECIAL = auto()
    """A socket, a pipe or a device; it was not opened."""
    TOO_LARGE = auto()
    UNREADABLE = auto()
    UNSTABLE = auto()
    """It changed during every attempt, or its size is not the number of bytes in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A file or a symlink as it was at one moment during the read."""

    data: bytes
    """For a symlink, where it leads."""
    stamp: Stamp
    links: int
    """How many names the file has."""
    racy: bool
    """So young that a later change may leave the same stamp: look again before trusting it."""

    @property
    def mode(self) -> int:
        """Type and permission bits."""
        return self.stamp[0]


_BY_ERRNO = {
    errno.ENOENT: Failure.ABSENT,
    # Nothing can be there under a name that the file system cannot hold.
    errno.ENAMETOOLONG: Failure.ABSENT,
    errno.EILSEQ: Failure.ABSENT,
    errno.EACCES: Failure.UNREADABLE,
    errno.EPERM: Failure.UNREADABLE,
    errno.EIO: Failure.UNREADABLE,
    # It was a file for `lstat` and is a symlink, a pipe or another file now, or under a lease.
    errno.ELOOP: Failure.UNSTABLE,
    errno.EMLINK: Failure.UNSTABLE,
    errno.ENXIO: Failure.UNSTABLE,
    errno.EINVAL: Failure.UNSTABLE,
    errno.ESTALE: Failure.UNSTABLE,
    errno.EAGAIN: Failure.UNSTABLE,
}


def read_file(
    dir_fd: int, name: bytes, limit: int, *, window_ns: int = RACY_WINDOW_NS
) -> Content | Failure:
    """What is at a name (a single component) in a folder, unless it is over `limit` bytes.

    An `OSError` means that the machine is in trouble (no descriptors, no memory), not the file.
    """
    racy_after = time.time_ns() - window_ns
    found = _steady(dir_fd, name, limit, _read_all, bytes)
    if isinstance(found, Failure):
        return found
    status, data = found
    # Every change sets this one, and nobody can set it to another time.
    newest = status.st_ctime_ns
    return Content(
        data=data, stamp=stamp_of(status), links=status.st_nlink, racy=newest >= racy_after
    )


def hash_file(dir_fd: int, name: bytes) -> tuple[int, bytes] | Failure:
    """The mode and the blob id of what is at a name, whatever its size, without keeping it."""
    found = _steady(dir_fd, name, sys.maxsize, _hash_all, blob_id)
    return found if isinstance(found, Failure) else (found[0].st_mode, found[1])


def _steady(
    dir_fd: int,
    name: bytes,
    limit: int,
    take: Callable[[int, int], _T | None],
    take_target: Callable[[bytes], _T],
) -> tuple[os.stat_result, _T] | Failure:
    """What `take` makes of the file, together with the stat result that held meanwhile."""
    for _ in range(_ATTEMPTS):
        try:
            found = _attempt(dir_fd, name, limit, take, take_target)
        except OSError as error:
            if error.errno not in _BY_ERRNO:
                raise
            found = _BY_ERRNO[error.errno]
        if found is not Failure.UNSTABLE:
            return found
    return Failure.UNSTABLE


def _attempt(
    dir_fd: int,
    name: bytes,
    limit: int,
    take: Callable[[int, int], _T | None],
    take_target: Callable[[bytes], _T],
) -> tuple[os.stat_result, _T] | Failure:
    status = os.lstat(name, dir_fd=dir_fd)
    kind = stat.S_IFMT(status.st_mode)
    stamp = stamp_of(status)
    taken: _T | None
    if kind == stat.S_IFREG:
        if status.st_size > limit:
            return Failure.TOO_LARGE
        taken = _take_regular(dir_fd, name, stamp, take)
    elif kind == stat.S_IFLNK:
        taken = take_target(os.readlink(name, dir_fd=dir_fd))
    else:
        return Failure.FOLDER if kind == stat.S_IFDIR else Failure.SPECIAL
    if taken is None or stamp_of(os.lstat(name, dir_fd=dir_fd)) != stamp:
        return Failure.UNSTABLE
    return status, taken


def _take_regular(
    dir_fd: int, name: bytes, stamp: Stamp, take: Callable[[int, int], _T | None]
) -> _T | None:
    """What `take` makes of the file with that stamp; None if it is, or becomes, another one."""
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
    # One byte more than there should be, so that a longer file shows.
    data = os.read(fd, size + 1)
    if 0 < len(data) < size:
        # A file system that answers in pieces, or a read over 2 GiB.
        pieces = [data]
        while data and size >= (have := sum(map(len, pieces))):
            pieces.append(data := os.read(fd, size + 1 - have))
        data = b"".join(pieces)
    return data if len(data) == size else None


def _hash_all(fd: int, size: int) -> bytes | None:
    """The blob id of a file; None if there are not `size` bytes in it."""
    digest = sha1(b"blob %d\0" % size, usedforsecurity=False)
    left = size
    while data := os.read(fd, min(_CHUNK, left + 1)):
        digest.update(data)
        left -= len(data)
        if left < 0:
            return None
    return digest.digest() if left == 0 else None
