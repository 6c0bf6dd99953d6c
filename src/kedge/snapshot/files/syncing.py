"""What was written made to survive a power cut."""

import errno
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from kedge.domain.errors import SnapshotError
from kedge.snapshot.files.opening import FolderAbsent, FolderBlocked, Root
from kedge.snapshot.files.sharing import in_shares


def sync_files(fds: Iterable[int | None]) -> dict[int, OSError]:
    """Sync open files; the errors of those that could not be."""
    files = [fd for fd in fds if fd is not None]
    _begin(files)
    failures = in_shares(_sync_each, files)
    return {fd: error for fd, error in zip(files, failures, strict=True) if error}


def _begin(fds: Iterable[int]) -> None:
    """Have the file system find room for all of them first, and begin to write.

    One commit of its journal then has them all. Without, each sync finds room for its own file,
    and waits for a commit of its own.
    """
    if sys.platform == "linux":
        for fd in fds:
            # Whoever cannot be advised can still be synced.
            with suppress(OSError):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _sync_each(fds: Sequence[int]) -> list[OSError | None]:
    return [_sync(fd) for fd in fds]


def _sync(fd: int) -> OSError | None:
    try:
        os.fsync(fd)
    except OSError as error:
        return error
    return None


def sync_folders(root: Root, paths: Iterable[bytes]) -> None:
    """Make renames in these folders survive a power cut."""
    in_shares(partial(_sync_each_folder, root), sorted(paths))


def _sync_each_folder(root: Root, paths: Sequence[bytes]) -> list[None]:
    for path in paths:
        _sync_folder(root, path)
    return [None] * len(paths)


def _sync_folder(root: Root, path: bytes) -> None:
    try:
        with root.folder(path) as dir_fd:
            os.fsync(dir_fd)
    except (FolderAbsent, FolderBlocked):
        # Removed since, by a later step or by somebody; nothing in it is left to be kept.
        return
    except OSError as error:
        # Some network file systems sync no folders, and need not.
        if error.errno != errno.EINVAL:
            raise SnapshotError(f"{path!r} cannot be synced: {error.strerror}") from error
