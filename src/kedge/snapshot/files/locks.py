"""Locks on single files, between all tasks, threads and processes of a machine.

They leave nothing behind for a path. The kernel holds them, so they end with their process.
"""

import asyncio
import errno
import fcntl
import hashlib
import os
import struct
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from kedge.domain.errors import FileBusy, InvariantBroken
from kedge.snapshot.files.root import naps
from kedge.snapshot.objects.durable import PRIVATE_FILE, disk_errors, make_folder

_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_TAKEN = {errno.EAGAIN, errno.EACCES}
_STRIPES = 256


class Locker(Protocol):
    """The locks that one caller holds."""

    @staticmethod
    def number(path: bytes) -> int:
        """The number of the lock for a path."""

    def take(self, number: int) -> bool:
        """Take a lock; False if another caller has it."""

    def release(self) -> None:
        """Release all locks that were taken."""


class ByteLocker:
    """One file with a byte for each path; the file itself may be shorter."""

    # `struct flock` on Linux: type, whence, start, length, pid.
    _FORMAT = "hhqqi"

    def __init__(self, folder: Path) -> None:
        # The lock belongs to the open file description, so two tasks exclude each other too.
        self._fd = os.open(folder / "file-locks", _OPEN, PRIVATE_FILE)

    @staticmethod
    def number(path: bytes) -> int:
        # 62 bits: an offset is signed, and the byte's end must be an offset too.
        return int.from_bytes(hashlib.blake2b(path, digest_size=8).digest()) >> 2

    def take(self, number: int) -> bool:
        try:
            self._set(fcntl.F_WRLCK, number, 1)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            return False
        return True

    def release(self) -> None:
        try:
            # A child that was forked meanwhile may have inherited the description.
            self._set(fcntl.F_UNLCK, 0, 0)
        finally:
            os.close(self._fd)

    def _set(self, kind: int, start: int, length: int) -> None:
        fcntl.fcntl(
            self._fd,
            fcntl.F_OFD_SETLK,
            struct.pack(self._FORMAT, kind, os.SEEK_SET, start, length, 0),
        )


class StripeLocker:
    """For systems whose byte locks belong to the process: a few files, shared by all paths."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "file-locks.d"
        make_folder(self._folder)
        self._fds: dict[int, int] = {}

    @staticmethod
    def number(path: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(path, digest_size=8).digest()) % _STRIPES

    def take(self, number: int) -> bool:
        if number in self._fds:
            return True
        fd = os.open(self._folder / str(number), _OPEN, PRIVATE_FILE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        except BaseException:
            os.close(fd)
            raise
        self._fds[number] = fd
        return True

    def release(self) -> None:
        while self._fds:
            _, fd = self._fds.popitem()
            try:
                fcntl.flock(fd, fcntl.LOCK_UN)
            finally:
                os.close(fd)


class FileLocks:
    """Exclusive write access to files."""

    def __init__(self, data: Path) -> None:
        """`data` is a folder common to all processes that exclude each other."""
        self._data = data
        self._locker: type[ByteLocker] | type[StripeLocker] = ByteLocker
        self.reason = ""
        """Why unrelated files may exclude each other; empty if they do not."""
        if not hasattr(fcntl, "F_OFD_SETLK"):
            self._locker = StripeLocker
            self.reason = "this system has no locks that belong to an open file"

    @asynccontextmanager
    async def locked(self, paths: Collection[bytes], patience: float) -> AsyncIterator[None]:
        """Get exclusive write access to these files, given by their real absolute paths.

        Raises `FileBusy`, with the path, if one of them stays locked by another caller for
        `patience` seconds.
        """
        for path in paths:
            if not path.startswith(b"/"):
                raise InvariantBroken(f"not an absolute path: {path!r}")
        with disk_errors("locking files"):
            make_folder(self._data)
            locker = self._locker(self._data)
        try:
            # All callers take the locks in the same order, so there is no deadlock.
            deadline = time.monotonic() + patience
            for number, path in sorted((locker.number(path), path) for path in paths):
                await _take(locker, number, path, deadline)
            yield
        finally:
            locker.release()


async def _take(locker: Locker, number: int, path: bytes, deadline: float) -> None:
    # It never blocks, so it needs no thread; a cancelled task either has the lock or does not.
    for nap in naps():
        with disk_errors("locking files"):
            if locker.take(number):
                return
        left = deadline - time.monotonic()
        if left <= 0:
            raise FileBusy(path.decode(errors="replace"))
        await asyncio.sleep(min(nap, left))
