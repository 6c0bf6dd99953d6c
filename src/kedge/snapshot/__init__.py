"""Snapshots of a worktree: take, keep, compare and restore them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kedge.domain.file_states import Absent, Outcome, Present, Reason, State, Uncovered
    from kedge.snapshot.aio import AsyncSnapshots
    from kedge.snapshot.snapshots import Snapshots
    from kedge.snapshot.values import (
        Change,
        Head,
        Patch,
        Protection,
        Result,
        Snapshot,
        SnapshotSettings,
        Status,
    )

__all__ = [
    "Absent",
    "AsyncSnapshots",
    "Change",
    "Head",
    "Outcome",
    "Patch",
    "Present",
    "Protection",
    "Reason",
    "Result",
    "Snapshot",
    "SnapshotSettings",
    "Snapshots",
    "State",
    "Status",
    "Uncovered",
]

_STATES = "kedge.domain.file_states"
_ELSEWHERE = {
    **dict.fromkeys(("Absent", "Outcome", "Present", "Reason", "State", "Uncovered"), _STATES),
    "AsyncSnapshots": f"{__name__}.aio",
    "Snapshots": f"{__name__}.snapshots",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # whatever the name stands for
    """Import a name on first use: a caller that only needs `repository` does not load the rest."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ELSEWHERE.get(name, f"{__name__}.values")), name)
