"""Reads small files of the user's repository, and detects when they change.

Any path is safe to read: a pipe, a device, a loop of links or a huge file gives a result without
blocking.
"""

import os
import stat
import time

from kedge.domain.safe_read import NotRegular, read_up_to, regular_file

Signature = tuple[int, int, int, int, int]
"""Stat data of a file; another file or another content has a different signature."""

LARGEST_RULES = 1024 * 1024
"""Ignore and attributes files are read up to this size. git reads up to 100 MiB, but real files are
shorter, and every folder may have one."""

_FINE_TICK = 20_000_000
_COARSE_TICK = 2_000_000_000
_SECOND = 1_000_000_000


def read_small(path: bytes, limit: int) -> bytes | None:
    """The content of a regular file of at most `limit` bytes; None if there is no such file."""
    try:
        found = read_regular(path, limit)
    except OSError:
        return None
    return found[0] if found else None


def read_regular(path: bytes, limit: int) -> tuple[bytes, os.stat_result] | None:
    """The content of a regular file, with its stat data; None if it is not one, or over the limit.

    Links are followed, as git does. Raises the file system's error for a missing file.
    """
    if b"\0" in path:
        return None
    try:
        with regular_file(path) as (descriptor, found):
            if found.st_size > limit:
                return None
            content = read_up_to(descriptor, limit, expected=found.st_size)
    except NotRegular:
        return None
    return None if len(content) > limit else (content, found)


def may_be_opened(path: bytes, limit: int | None = None) -> bool:
    """Whether another program can safely read a path: a regular file, optionally of a limited size,
    or nothing."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return True
    return stat.S_ISREG(found.st_mode) and (limit is None or found.st_size <= limit)


def signature(path: bytes) -> Signature | None:
    """A value that differs for any other file, and for this one once changed; None if it is
    missing."""
    try:
        return signature_of(os.stat(path))
    except (OSError, ValueError):
        return None


def signature_of(found: os.stat_result) -> Signature:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def is_settled(seen: Signature | None, when: int) -> bool:
    """Whether every change after `when` gives another signature.

    Not if the file had changed within the clock tick before: a second change shows the same time.
    """
    if seen is None:
        return True
    changed = seen[-1]
    tick = _FINE_TICK if changed % _SECOND else _COARSE_TICK
    # A time in the future is from before the clock was set back; a change has another.
    return changed + tick < when or changed > time.time_ns() + tick
