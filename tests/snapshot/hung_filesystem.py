"""Snapshots of a worktree on a file system that answers no more."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kedge.snapshot.aio import AsyncSnapshots
from kedge.snapshot.values import SnapshotSettings
from kedge.snapshot.worktree.state import WorktreeState


@asynccontextmanager
async def hanging(root: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AsyncSnapshots]:
    """Snapshots with a small budget; whoever looks at the files waits until the block ends."""
    gate, refresh = threading.Event(), WorktreeState.refresh

    def wait(self: WorktreeState, deadline: float = float("inf")) -> None:
        gate.wait()
        refresh(self, deadline)

    monkeypatch.setattr(WorktreeState, "refresh", wait)
    monkeypatch.setattr("kedge.snapshot.aio._GRACE", 0.0)
    settings = SnapshotSettings(budget=0.05)
    opening = AsyncSnapshots.open(root, data=root.parent / "d", project="p", settings=settings)
    snapshots = await opening
    try:
        yield snapshots
    finally:
        gate.set()
        await snapshots.close()
