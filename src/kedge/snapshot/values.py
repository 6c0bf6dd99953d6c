"""The values of snapshots: states of paths, changes, outcomes, the state of a root, and
settings.

Paths are bytes, relative to the root and separated by `/`; object ids are 40 hexadecimal digits.
"""

import stat
from dataclasses import dataclass, field
from enum import StrEnum


class Reason(StrEnum):
    """Why a path that may exist is not in a snapshot."""

    IGNORED = "ignored"
    LARGE = "large"
    UNREADABLE = "unreadable"
    UNSTABLE = "unstable"
    """It never stood still long enough to be read."""
    SPECIAL = "special"
    """A socket, a pipe or a device."""
    REPOSITORY = "repository"
    """The inside of git, or of kedge itself: a `.git`, another git folder, the data folder."""


@dataclass(frozen=True, slots=True)
class Present:
    """The path held this content."""

    blob: str
    mode: int
    """Type and permission bits, as `lstat` gives them."""

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)


@dataclass(frozen=True, slots=True)
class Absent:
    """There was nothing at the path; it was looked at."""


@dataclass(frozen=True, slots=True)
class Uncovered:
    """Nothing is known of the path: it was not looked at."""

    reason: Reason
    stamp: str = field(default="", compare=False)
    """Of a file that is too large, what tells whether it is still the same."""


State = Present | Absent | Uncovered


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one path between two snapshots."""

    path: bytes
    before: State
    after: State

    @property
    def is_covered(self) -> bool:
        """Whether both sides are known; only then may anybody's undo touch the path."""
        return not isinstance(self.before, Uncovered) and not isinstance(self.after, Uncovered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where the user's own repository stood."""

    ref: str | None = None
    """`refs/heads/...`, or None when detached."""
    commit: str | None = None
    """None on a branch without commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A worktree as it was found."""

    id: str
    """The git tree of the files."""
    notes: str
    """The git tree of what is uncovered, and of unusual permission bits."""
    base: tuple[int, int] = (0o644, 0o755)
    """Permission bits of a plain and of an executable file about which the notes say nothing."""
    head: Head | None = None
    unstable: tuple[bytes, ...] = field(default=())
    """Paths that kept changing while they were read; the snapshot holds what they were before."""


@dataclass(frozen=True, slots=True)
class Patch:
    """The files that changed since a snapshot, as OpenCode's patch part names them."""

    hash: str
    files: tuple[str, ...]
    """Absolute paths."""


class Outcome(StrEnum):
    """What putting a path back came to."""

    RESTORED = "restored"
    RECREATED = "recreated"
    DELETED = "deleted"
    UNCHANGED = "unchanged"
    CONFLICT = "conflict"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Result:
    """What happened to one path, and why if it was not what was asked for."""

    path: bytes
    outcome: Outcome
    reason: str = ""


class Protection(StrEnum):
    """How far the files of a worktree are protected."""

    FULL = "protected"
    PENDING = "pending"
    """Nothing is protected yet: the first snapshot has not been taken."""
    DEGRADED = "degraded"
    """A snapshot took too long: declared paths only, until a scan in the background ends."""
    DECLARED = "declared"
    """Declared paths only, because that was asked for."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What can be said of a worktree's snapshots at this moment."""

    protection: Protection
    reason: str
    """Why it is not protected in full; empty if it is."""
    way: str
    """How changes are known: `inotify`, `scan` or `declared`."""
    way_reason: str
    """Why it is not a better way; empty if there is none."""
    files: int
    watches: int
    overflows: int
    """How often the kernel lost count of changes, and everything was looked at instead."""
    verifications: int
    mismatches: int
    """Paths at which a verification found a change that had not been noticed; it was healed."""
    seeded: int
    """Blobs of the first snapshot that were copied from the user's repository, not read."""
    trouble: str
    """What went wrong in the background last; empty if nothing did."""


MEBIBYTE = 1 << 20
GIBIBYTE = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSettings:
    """Sensible defaults. Times are in seconds, sizes in bytes."""

    file_size: int = 32 * MEBIBYTE
    """A larger file is not covered."""
    files: int = 500_000
    """A worktree with more covered files is refused."""
    budget: float = 10.0
    """How long one snapshot may take before the worktree counts as degraded."""
    disk: int = 10 * GIBIBYTE
    """How large a project's snapshot store should stay; what is kept is never deleted for it."""
    retention: float = 7 * 86400.0
    """How long a snapshot that no session keeps can be restored."""
    verification: float = 60.0
    """How long after a comparison with the whole disk the next one may begin."""
