"""What was written made to survive a power cut."""

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from kedge.domain.errors import SnapshotError
from kedge.snapshot.files.opening import FolderAbsent, FolderBlocked, Root

_AT_ONCE = 8
"""Together, the file system writes its journal, and the disk empties its cache, less often."""

T = TypeVar("T")
R = TypeVar("R")


def sync_files(fds: Iterable[int | None]) -> dict[int, OSError]:
    """Sync open files; the errors of those that could not be."""
    files = [fd for fd in fds if fd is not None]
    failures = _together(_sync, files)
    return {fd: error for fd, error in zip(files, failures, strict=True) if error}


def _sync(fd: int) -> OSError | None:
    try:
        os.fsync(fd)
    except OSError as error:
        return error
    return None


def sync_folders(root: Root, paths: Iterable[bytes]) -> None:
    """Make renames in these folders survive a power cut."""
    _together(partial(_sync_folder, root), sorted(paths))


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


def _together(sync: Callable[[T], R], things: Sequence[T]) -> list[R]:
    if len(things) < 2:
        return [sync(thing) for thing in things]
    # A share for each thread: handing over one by one takes longer than most syncs.
    threads = min(_AT_ONCE, len(things))
    with ThreadPoolExecutor(threads) as pool:
        shares = list(
            pool.map(lambda first: [sync(each) for each in things[first::threads]], range(threads))
        )
    return [shares[number % threads][number // threads] for number in range(len(things))]
