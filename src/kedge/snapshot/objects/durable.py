"""Durable writing of files, and the errors for a disk that fails."""

import errno
import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kedge.domain.errors import SnapshotError, SnapshotStoreFull

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
SEALED_FILE = 0o400

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Linux moves at most this much in one read or write; moving less is allowed.
_LARGEST_MOVE = 1 << 30


def sync(fd: int) -> None:
    """Wait until the content of the file is on the disk."""
    if sys.platform == "darwin":  # there, fsync leaves the bytes in the disk's own cache
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def sync_folder(folder: Path) -> None:
    """Wait until the names in the folder are on the disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """Create a private folder and its missing parents."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(PRIVATE_FOLDER, exist_ok=True)
    sync_folder(folder.parent)


def replace_file(path: Path, content: bytes, *, beside: str) -> None:
    """Write a private file atomically; `beside` is its name until it is complete."""
    unfinished = path.with_name(beside)
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
    try:
        write_at(fd, content, 0)
        os.fsync(fd)
    finally:
        os.close(fd)
    unfinished.rename(path)
    sync_folder(path.parent)


def write_at(fd: int, content: bytes | memoryview, offset: int) -> None:
    """Write all of the content, however little the system takes at once."""
    rest = memoryview(content)
    while rest:
        written = os.pwrite(fd, rest[:_LARGEST_MOVE], offset)
        rest, offset = rest[written:], offset + written


def read_at(fd: int, length: int, offset: int) -> bytes:
    """Read as much of a range of a file as there is."""
    piece = os.pread(fd, min(length, _LARGEST_MOVE), offset)
    if len(piece) == length or not piece:
        return piece
    pieces = [piece]
    while piece and (length := length - len(piece)):
        offset += len(piece)
        piece = os.pread(fd, min(length, _LARGEST_MOVE), offset)
        pieces.append(piece)
    return b"".join(pieces)


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Wait for a lock and hold it; it ends with the process, and its file stays."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Translate OS errors into an error for the operator."""
    try:
        yield
    except OSError as error:
        raise disk_error(doing, error) from error


def disk_error(doing: str, error: OSError) -> SnapshotError:
    """The operator's error for a file that could not be read or written."""
    if error.errno in _FULL:
        return SnapshotStoreFull(f"no space left while {doing}; free some, then try again")
    return SnapshotError(f"the snapshot store failed while {doing}: {error}")
