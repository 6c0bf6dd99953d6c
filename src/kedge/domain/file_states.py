"""What a path holds, what it should hold and what became of it: the same values for snapshots, the
database and receipts.

Paths are bytes, separated by `/`; object ids are 40 hexadecimal digits.
"""

import stat
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias


class Reason(StrEnum):
    """Why a path that may exist is not in a snapshot."""

    IGNORED = "ignored"
    LARGE = "large"
    UNREADABLE = "unreadable"
    UNSTABLE = "unstable"
    """It never stopped changing for long enough to be read."""
    SPECIAL = "special"
    """A socket, a pipe or a device."""
    REPOSITORY = "repository"
    """Internal files of git or kedge: a `.git`, another git folder, the data folder."""


@dataclass(frozen=True, slots=True)
class Present:
    """The path had this content."""

    blob: str
    mode: int
    """Type and permission bits, as `lstat` returns them."""

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)


@dataclass(frozen=True, slots=True)
class Absent:
    """The path was examined, and nothing was there."""


@dataclass(frozen=True, slots=True)
class Uncovered:
    """The state of the path is unknown: it was not examined."""

    reason: Reason
    stamp: str = field(default="", compare=False)
    """For a file that is too large: a value that changes when it changes."""


Known: TypeAlias = Present | Absent
State: TypeAlias = Present | Absent | Uncovered


def examined(state: State) -> Known:
    """A state that cannot be an uncovered one here."""
    assert not isinstance(state, Uncovered)
    return state


class AsideCopy(NamedTuple):
    """A content, and a path at which it is or will be."""

    path: bytes
    blob: str
    is_link: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStep:
    """The wanted state of a path, and the state that must be there before."""

    number: int
    """Unique in its plan; part of the names of temporary files."""
    path: bytes
    expect: State
    want: State
    needs: tuple[AsideCopy, ...] = ()
    """One of these must be on the disk before the expected content may be removed from here."""

    @property
    def folder(self) -> bytes:
        return self.path.rpartition(b"/")[0]


class Outcome(StrEnum):
    """What happened to a path."""

    RESTORED = "restored"
    """It has its content from before the session's changes again."""
    MERGED = "merged"
    """The session's changes were removed, and what others changed since was kept."""
    DELETED = "deleted"
    RECREATED = "recreated"
    UNCHANGED = "unchanged"
    """It already had the wanted content."""
    CONFLICT = "conflict"
    """It was left as it is, because changes of others would have been lost."""
    SHARED = "shared"
    """It was left as it is: it is unknown whose change it is, because calls of several sessions ran
    at the same time, or a process had died."""
    SKIPPED = "skipped"
    """It was left as it is, for another reason."""


LEFT = frozenset({Outcome.CONFLICT, Outcome.SHARED, Outcome.SKIPPED})
"""The outcomes of a path that was left as it is."""
