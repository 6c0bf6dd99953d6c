"""Snapshots of a worktree: what they hold, how they are taken, kept, compared and put back."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kedge.snapshot.asynchronous import AsyncSnapshots
    from kedge.snapshot.settings import SnapshotSettings
    from kedge.snapshot.snapshots import Snapshots
    from kedge.snapshot.values import (
        Absent,
        Change,
        Head,
        Outcome,
        Patch,
        Present,
        Protection,
        Reason,
        Result,
        Snapshot,
        State,
        Status,
        Uncovered,
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

_ELSEWHERE = {
    "AsyncSnapshots": "asynchronous",
    "SnapshotSettings": "settings",
    "Snapshots": "snapshots",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # whatever the name stands for
    """Import what is asked for: who only needs to know of a repository need not wait for more."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'values')}"), name)
