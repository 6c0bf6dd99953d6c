"""The two renames inside a folder that Python does not offer: swapping two names, and taking a name
only if it is free. Linux and macOS have both as system calls, though not on every file system."""

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from functools import cache

# The same two values on Linux (`renameat2`) ...
_NOT_OVER, _SWAP = 1, 2
# ... and on macOS (`renameatx_np`).
_MACOS = {_NOT_OVER: 4, _SWAP: 2}

_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
# What file systems without hard links say, and those that link no folders or no symlinks.
_NO_LINK = {*_UNSUPPORTED, errno.EPERM, errno.EMLINK}

_Rename = Callable[[int, bytes, int, bytes, int], int]


class SwapUnsupported(Exception):
    """This file system or this system cannot swap two names."""


def swap(dir_fd: int, one: bytes, two: bytes) -> None:
    """Exchange what two names of a folder lead to, at once; both must exist."""
    if not _rename_with(dir_fd, one, two, _SWAP):
        raise SwapUnsupported


def place(dir_fd: int, name: bytes, free: bytes) -> None:
    """Rename, but `FileExistsError` if the new name is taken.

    Where neither the system call nor hard links exist, it is a look and then a rename: what
    somebody puts there in between is then replaced.
    """
    if _rename_with(dir_fd, name, free, _NOT_OVER):
        return
    try:
        os.link(name, free, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
    else:
        os.unlink(name, dir_fd=dir_fd)
        return
    if exists(dir_fd, free):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), free)
    os.rename(name, free, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)


def exists(dir_fd: int, name: bytes) -> bool:
    """Whether there is anything at a name, a dangling symlink included."""
    try:
        os.lstat(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return False
    return True


def _rename_with(dir_fd: int, name: bytes, new: bytes, flag: int) -> bool:
    """Rename in a special way; False if that way does not exist here."""
    rename = _system_call()
    if rename is None:
        return False
    if rename(dir_fd, name, dir_fd, new, flag) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), name)


@cache
def _system_call() -> _Rename | None:
    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "renameatx_np" if sys.platform == "darwin" else "renameat2", None)
    if call is None:
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    if sys.platform == "darwin":
        return lambda a, b, c, d, flag: int(call(a, b, c, d, _MACOS[flag]))
    return lambda a, b, c, d, flag: int(call(a, b, c, d, flag))
