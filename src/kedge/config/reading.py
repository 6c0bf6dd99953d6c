"""Reads files that anybody may have put there: a pipe, a device or gigabytes end in an answer."""

import os
import stat

LARGEST_CONFIG = 256 * 1024
"""No configuration is larger: to look through it takes time."""
LARGEST_FILE = 1024 * 1024
"""Nothing that one includes is larger."""

_OPENING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Unreadable(Exception):
    """A file is there but cannot be used; says why."""


def read(path: str, limit: int = LARGEST_FILE) -> bytes | None:
    """What a regular file holds, links followed; None if there is nothing at the path."""
    try:
        # To open a device can already do something, so nothing is opened unseen.
        _check(os.stat(path), limit)
        descriptor = os.open(path, _OPENING)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise Unreadable("has a name that no file can have") from error
    try:
        _check(os.fstat(descriptor), limit)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from error
    finally:
        os.close(descriptor)
    if len(content) > limit:
        raise Unreadable(f"is larger than {limit} bytes")
    return content


def decoded(content: bytes | None) -> str | None:
    """What was read, as text."""
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError as error:
        raise Unreadable("is not UTF-8") from error


def lies_below(path: str, root: str) -> bool:
    """Whether a path, wherever its links lead, is in a folder."""
    real, folder = os.path.realpath(path), os.path.realpath(root)
    return real == folder or real.startswith(folder.rstrip("/") + "/")


def _check(found: os.stat_result, limit: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Unreadable("is not a regular file")
    if found.st_size > limit:
        raise Unreadable(f"is larger than {limit} bytes")
