"""The root folder of a worktree and the folders below it, opened one component at a time so that no
symlink is followed."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from kedge.domain.errors import PathRefused, RootBusy, SnapshotError, SnapshotRefused

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The errors for a component that is a symlink or a file; they differ between systems.
_IN_THE_WAY = {errno.ENOTDIR, errno.ELOOP, errno.EMLINK}
# Polling starts at a millisecond and slows down to this: locks are held briefly, or for long.
_LONGEST_NAP = 0.05


class FolderAbsent(FileNotFoundError):
    """A parent folder of the path does not exist."""


class FolderBlocked(NotADirectoryError):
    """A parent folder of the path is a symlink or a file."""

    at: bytes = b""
    """The path of that symlink or file."""


class Root:
    """The open root folder of a worktree; it stays the same folder when its path is moved."""

    def __init__(self, path: bytes) -> None:
        """Open the folder; symlinks are followed only here, in the path to it."""
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._identity = _identity(os.fstat(self.fd))

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def reopen(self) -> None:
        """Switch to the folder that the root's path leads to now."""
        new = self.opened_again()
        self.close()
        self.fd, self._identity = new.fd, new._identity

    def opened_again(self) -> "Root":
        """The folder that the root's path leads to now; the caller closes it."""
        try:
            return Root(self.path)
        except OSError as error:
            raise SnapshotRefused(
                f"the folder {os.fsdecode(self.path)} cannot be opened any more: {error.strerror}"
            ) from error

    def is_same(self) -> bool:
        """Whether the root's path still leads to the folder that was opened."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return _identity(found) == self._identity

    @contextmanager
    def folder(self, path: bytes) -> Iterator[int]:
        """The descriptor of a folder (`b""` is the root), open only inside the `with` block.

        Raises `FolderAbsent`, `FolderBlocked` or `PathRefused`, and `OSError` for anything else.
        """
        fd = self.open_folder(path)
        try:
            yield fd
        finally:
            os.close(fd)

    def open_folder(self, path: bytes) -> int:
        """A descriptor of a folder, for the caller to close; raises the same errors as `folder`."""
        if not path:
            return os.open(b".", _FOLDER, dir_fd=self.fd)
        here = self.fd
        names = components(path)
        for depth, name in enumerate(names):
            try:
                below = os.open(name, _FOLDER, dir_fd=here)
            except OSError as error:
                raise _translated(error, b"/".join(names[: depth + 1])) from error
            finally:
                if here != self.fd:
                    os.close(here)
            here = below
        return here

    @contextmanager
    def lock(self, timeout: float) -> Iterator[None]:
        """Lock the root against all other users of this lock, including those in this process.

        The folder itself is locked, so nothing is ever left behind. Raises `RootBusy` after
        `timeout` seconds.
        """
        # A lock belongs to an open file description: with a shared one, two threads would both
        # hold it.
        fd = os.open(b".", _FOLDER, dir_fd=self.fd)
        try:
            _wait_for_lock(fd, timeout)
            try:
                yield
            finally:
                unlock(fd)
        finally:
            os.close(fd)


def components(path: bytes) -> list[bytes]:
    """The components of a path below the root; `PathRefused` if it could lead elsewhere."""
    names = path.split(b"/")
    if b"\0" in path or b"" in names or b"." in names or b".." in names:
        raise PathRefused(f"not a plain path below the root: {path!r}")
    return names


def writable_components(path: bytes) -> list[bytes]:
    """As `components`, but also refuses paths inside `.git`: kedge never writes there."""
    names = components(path)
    # Some file systems ignore case.
    if any(name.lower() == b".git" for name in names):
        raise PathRefused(f"kedge writes nothing inside of .git: {path!r}")
    return names


def lock_now(fd: int) -> bool:
    """Lock a folder against all other descriptions; False if it is locked already."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise SnapshotError(f"the folder cannot be locked: {error.strerror}") from error
    return True


def unlock(fd: int) -> None:
    """Release a lock, even if a child that was forked meanwhile has inherited the description."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def naps() -> Iterator[float]:
    """How long to sleep between attempts at a lock, without end."""
    nap = 0.001
    while True:
        yield nap
        nap = min(2 * nap, _LONGEST_NAP)


def _identity(status: os.stat_result) -> tuple[int, int]:
    """The identity of a folder while it is open or exists."""
    return status.st_dev, status.st_ino


def _translated(error: OSError, at: bytes) -> OSError:
    if error.errno == errno.ENOENT:
        return FolderAbsent(error.errno, os.strerror(error.errno), at)
    if error.errno in _IN_THE_WAY:
        blocked = FolderBlocked(error.errno, os.strerror(error.errno), at)
        blocked.at = at
        return blocked
    return OSError(error.errno, os.strerror(error.errno or 0), at)


def _wait_for_lock(fd: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    for nap in naps():
        if lock_now(fd):
            return
        left = deadline - time.monotonic()
        if left <= 0:
            raise RootBusy
        time.sleep(min(nap, left))
