"""Reads small files that somebody else owns, and tells whether they are still the same.

Whatever stands at a path may be read: a pipe, a device, a loop of links or a file of gigabytes ends
in an answer, never in waiting for one.
"""

import os
import stat
import time

Signature = tuple[int, int, int, int, int]
"""What `stat` says of a file; another file or another content has another one."""

LARGEST_RULES = 100 * 1024 * 1024
"""Files of ignore rules and attributes are read up to this size; git reads no larger ones."""

_OPENING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FINE_TICK = 20_000_000
_COARSE_TICK = 2_000_000_000
_SECOND = 1_000_000_000


def read_small(path: bytes, limit: int) -> bytes | None:
    """What a regular file of at most `limit` bytes holds; None if there is no such file."""
    try:
        found = read_regular(path, limit)
    except OSError:
        return None
    return found[0] if found else None


def read_regular(path: bytes, limit: int) -> tuple[bytes, os.stat_result] | None:
    """What a regular file holds, with its stat data; None if it is none, or over the limit.

    Links are followed, as git follows them. Raises what the file system says of a missing file.
    """
    # To open a device can already do something, so nothing is opened on trust.
    if b"\0" in path or not stat.S_ISREG(os.stat(path).st_mode):
        return None
    descriptor = os.open(path, _OPENING)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > limit:
            return None
        content = _read_all(descriptor, found.st_size, limit)
    finally:
        os.close(descriptor)
    return None if content is None else (content, found)


def signature(path: bytes) -> Signature | None:
    """What tells this file from any other and from itself once changed; None if it is not there."""
    try:
        return signature_of(os.stat(path))
    except (OSError, ValueError):
        return None


def signature_of(found: os.stat_result) -> Signature:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def is_settled(seen: Signature | None, when: int) -> bool:
    """Whether every change after `when` gives another signature.

    Not if the file had changed within the clock tick before: a second change shows no other time.
    """
    if seen is None:
        return True
    changed = seen[-1]
    tick = _FINE_TICK if changed % _SECOND else _COARSE_TICK
    # A time to come is from before the clock was set back; a change has another.
    return changed + tick < when or changed > time.time_ns() + tick


def _read_all(descriptor: int, expected: int, limit: int) -> bytes | None:
    pieces = []
    room = limit
    while piece := os.read(descriptor, min(expected, room) + 1):
        pieces.append(piece)
        room -= len(piece)
        if room < 0:
            return None
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
