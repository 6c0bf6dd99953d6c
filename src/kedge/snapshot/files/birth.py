"""When a file came into being, which renaming it does not change; where the system can tell."""

import ctypes
import os
import sys
import time
from collections.abc import Callable
from functools import cache

_Statx = Callable[[int, bytes, int, int, "ctypes._CArgObject"], int]

_IS_LINUX = sys.platform.startswith("linux")
_NO_FOLLOW = 0x100
_BIRTH = 0x800
_COARSE_CLOCK = 5
"""Linux's `CLOCK_REALTIME_COARSE`, which Python does not name."""
_TICK = 20_000_000
"""Nanoseconds by which a file system's clock may lag where it cannot be asked itself."""


class _Result(ctypes.Structure):
    """What of the kernel's `struct statx` is needed; the rest is room."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("_before", ctypes.c_byte * 76),
        ("seconds", ctypes.c_int64),
        ("nanoseconds", ctypes.c_uint32),
        ("_after", ctypes.c_byte * 164),
    )


def file_clock() -> int:
    """The time by which file systems stamp what is written from now on, or a little earlier."""
    return time.clock_gettime_ns(_COARSE_CLOCK) if _IS_LINUX else time.time_ns() - _TICK


def born(dir_fd: int, name: bytes) -> int | None:
    """When the file or symlink at a name was made, in nanoseconds; None if nobody can tell."""
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
