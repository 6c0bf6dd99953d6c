"""Reads files that may be hostile: a pipe, a device or gigabytes end in an error."""

import os
import stat

from kedge.domain.safe_read import NotRegular, read_up_to, regular_file

LARGEST_CONFIG = 256 * 1024
"""No configuration is larger: to look through it takes time."""
LARGEST_FILE = 1024 * 1024
"""Nothing that one includes is larger."""


class UnreadableFile(Exception):
    """A file is there but cannot be used; says why."""


def read(path: str, limit: int = LARGEST_FILE) -> bytes | None:
    """What a regular file holds, links followed; None if there is nothing at the path."""
    try:
        with regular_file(path) as (descriptor, found):
            if found.st_size > limit:
                raise _too_large(limit)
            content = read_up_to(descriptor, limit, expected=found.st_size)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except NotRegular as error:
        raise UnreadableFile("is not a regular file") from error
    except OSError as error:
        raise UnreadableFile(f"cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise UnreadableFile("has a name that no file can have") from error
    if len(content) > limit:
        raise _too_large(limit)
    return content


def decoded(content: bytes | None) -> str | None:
    """What was read, as text."""
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError as error:
        raise UnreadableFile("is not UTF-8") from error


def lies_below(path: str, root: str) -> bool:
    """Whether a path, wherever its links lead, is in a folder."""
    real, folder = os.path.realpath(path), os.path.realpath(root)
    return real == folder or real.startswith(folder.rstrip("/") + "/")


def is_irregular(path: str) -> bool:
    """Whether something is at a path that is no regular file, wherever its links lead."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _too_large(limit: int) -> UnreadableFile:
    return UnreadableFile(f"is larger than {limit} bytes")
