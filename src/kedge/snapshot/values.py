"""The values of snapshots: changes, results, the status of a root, and settings.

Paths are bytes, relative to the root and separated by `/`; object ids are 40 hexadecimal digits.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from kedge.domain.file_states import Outcome, State, Uncovered


@dataclass(frozen=True, slots=True)
class Change:
    """A path that differs between two snapshots."""

    path: bytes
    before: State
    after: State

    @property
    def is_covered(self) -> bool:
        """Whether both sides are known; only then may an undo touch the path."""
        return not isinstance(self.before, Uncovered) and not isinstance(self.after, Uncovered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The HEAD of the user's own repository."""

    ref: str | None = None
    """`refs/heads/...`, or None when detached."""
    commit: str | None = None
    """None on a branch without commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A worktree at one time."""

    id: str
    """The git tree of the files."""
    notes: str
    """The git tree of notes on uncovered paths and unusual permission bits."""
    base: tuple[int, int] = (0o644, 0o755)
    """Permission bits of plain and of executable files without a note."""
    head: Head | None = None
    unstable: tuple[bytes, ...] = field(default=())
    """Paths that kept changing while they were read; the snapshot has their previous content."""


@dataclass(frozen=True, slots=True)
class Patch:
    """The files that changed since a snapshot, as OpenCode's patch part names them."""

    hash: str
    files: tuple[str, ...]
    """Absolute paths."""


@dataclass(frozen=True, slots=True)
class Result:
    """What happened to one path, and why if it was not what was requested."""

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
    """Declared paths only, as requested."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The current status of a worktree's snapshots."""

    protection: Protection
    reason: str
    """Why it is not fully protected; empty if it is."""
    way: str
    """How changes are detected: `inotify`, `scan` or `declared`."""
    way_reason: str
    """Why no better way is used; empty if there is none."""
    files: int
    watches: int
    overflows: int
    """How often the kernel lost events, so that everything was compared instead."""
    verifications: int
    mismatches: int
    """Paths where a verification found a change that had been missed; it was corrected."""
    seeded: int
    """Blobs of the first snapshot that were copied from the user's repository, not read."""
    trouble: str
    """The last problem in the background; empty if there was none."""


MEBIBYTE = 1 << 20
GIBIBYTE = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSettings:
    """Settings with sensible defaults. Times are in seconds, sizes in bytes."""

    file_size: int = 32 * MEBIBYTE
    """Larger files are not covered."""
    files: int = 500_000
    """A worktree with more covered files is refused."""
    budget: float = 10.0
    """How long one snapshot may take before the worktree counts as degraded."""
    disk: int = 10 * GIBIBYTE
    """The target size of a project's snapshot store; nothing that is kept is deleted for it."""
    retention: float = 7 * 86400.0
    """How long a snapshot that no session keeps can be restored."""
    verification: float = 60.0
    """How long after a comparison with the whole disk the next one may begin."""
