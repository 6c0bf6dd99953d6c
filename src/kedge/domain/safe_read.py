"""Opens untrusted files safely: a pipe, device or folder raises an error instead of blocking."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

_OPENING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PAGE = 4096


class NotRegular(OSError):
    """The path is not a regular file."""


@contextmanager
def regular_file(path: str | bytes | os.PathLike[str]) -> Iterator[tuple[int, os.stat_result]]:
    """A descriptor of a regular file, with its stat data; links are followed.

    Raises `NotRegular`, or the file system's error; for a name with a NUL, `ValueError`.
    """
    # Opening a device can already have an effect, so the type is checked first.
    _check(os.stat(path))
    descriptor = os.open(path, _OPENING)
    try:
        found = os.fstat(descriptor)
        _check(found)
        yield descriptor, found
    finally:
        os.close(descriptor)


def read_up_to(descriptor: int, limit: int, *, expected: int) -> bytes:
    """A file's content, up to one byte beyond the limit: it may be longer than `expected`."""
    pieces = []
    room = limit + 1
    while room and (piece := os.read(descriptor, min(max(expected + 1, _PAGE), room))):
        pieces.append(piece)
        room -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _check(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise NotRegular("it is not a regular file")
