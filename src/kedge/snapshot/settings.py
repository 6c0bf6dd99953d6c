"""The numbers of snapshots that a user may want to change."""

from dataclasses import dataclass

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
