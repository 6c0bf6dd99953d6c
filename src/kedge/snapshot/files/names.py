"""The names of kedge's own short-lived files in a worktree; they are never part of a snapshot."""

import re

from kedge.domain.errors import InvariantBroken

_TAG = re.compile(r"[A-Za-z0-9_-]{1,64}")
# What the file systems of Linux and macOS hold.
_LONGEST = 255


def is_own_name(name: bytes) -> bool:
    """Whether a file of this name is one of kedge's own, or posing as one."""
    return name.startswith(b".kedge-") and name.endswith(b"~")


def temporary_name(tag: str, number: int) -> bytes:
    """Where new content is written; what is found there after a crash is of no value."""
    return f".kedge-{_checked(tag)}-{number}~".encode()


def aside_name(tag: str, number: int) -> bytes:
    """Where replaced content waits to be compared; it may be the only copy there is."""
    return f".kedge-{_checked(tag)}-{number}-old~".encode()


def kept_name(name: bytes, tag: str, number: int) -> bytes:
    """Where somebody's bytes go that cannot go back in place: beside it, for them to see."""
    suffix = f".kedge-{_checked(tag)}-{number}".encode()
    return name[: _LONGEST - len(suffix)] + suffix


def _checked(tag: str) -> str:
    if not _TAG.fullmatch(tag):
        raise InvariantBroken(f"not usable in a file name: {tag!r}")
    return tag
