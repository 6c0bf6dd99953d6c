"""What is on disk at a path at this moment, in the words that undoing needs; how it is found is
`files/looking`'s concern."""

from dataclasses import dataclass

from kedge.snapshot.values import Absent, Outcome, Present


@dataclass(frozen=True, slots=True)
class Folder:
    """There is a folder at the path."""

    entries: frozenset[bytes]
    """All that is below it and no folder itself, as paths from the root."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Nothing can be at the path: on the way to it there is a file or a symlink, not a folder."""

    by: bytes
    """The path of what is in the way."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that no snapshot holds, and what that means for a path to be written."""

    outcome: Outcome
    """`CONFLICT` or `SKIPPED`."""
    reason: str


Disk = Present | Absent | Folder | Blocked | Obstacle
