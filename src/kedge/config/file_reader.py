"""Reads untrusted files safely: a pipe, a device or a huge file raises an error."""

import os
import stat

from kedge.domain.safe_read import NotRegular, read_up_to, regular_file

LARGEST_CONFIG = 256 * 1024
"""Largest configuration file in bytes: parsing one takes time."""
LARGEST_FILE = 1024 * 1024
"""Largest included file in bytes."""


class UnreadableFile(Exception):
    """A file exists but cannot be used; the message says why."""


def read(path: str, limit: int = LARGEST_FILE) -> bytes | None:
    """The content of a regular file, with links followed; None if nothing is at the path."""
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
    """The content as text."""
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError as error:
        raise UnreadableFile("is not UTF-8") from error


def lies_below(path: str, root: str) -> bool:
    """Whether a path, with links followed, is in a folder."""
    real, folder = os.path.realpath(path), os.path.realpath(root)
    return real == folder or real.startswith(folder.rstrip("/") + "/")


def is_irregular(path: str) -> bool:
    """Whether a path exists but, with links followed, is not a regular file."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _too_large(limit: int) -> UnreadableFile:
    return UnreadableFile(f"is larger than {limit} bytes")
