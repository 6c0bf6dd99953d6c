"""The snapshots of an engine's worktrees, opened when they are first needed."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from kedge.engine.settings import Settings
from kedge.snapshot.aio import AsyncSnapshots
from kedge.snapshot.values import SnapshotSettings


class Protecting:
    """One `AsyncSnapshots` for each worktree, shared by all sessions in it."""

    def __init__(self, data: Path, settings: Settings) -> None:
        self._data = data
        self._settings = SnapshotSettings(
            file_size=int(settings.snapshot_file_size),
            files=int(settings.snapshot_files),
            budget=settings.snapshot_budget,
            disk=int(settings.snapshot_disk),
            retention=settings.retention,
        )
        self._opening: dict[str, asyncio.Task[AsyncSnapshots]] = {}

    async def at(self, worktree: str, project: str) -> AsyncSnapshots:
        """The snapshots of a worktree."""
        opening = self._opening.get(worktree)
        if opening is None or (opening.done() and opening.exception() is not None):
            opening = asyncio.ensure_future(
                AsyncSnapshots.open(
                    worktree, data=self._data, project=project, settings=self._settings
                )
            )
            self._opening[worktree] = opening
        # Shielded: a caller that is cancelled must not cancel it for the others.
        return await asyncio.shield(opening)

    async def close(self) -> None:
        """Close all of them."""
        async with AsyncExitStack() as stack:
            for opening in self._opening.values():
                stack.push_async_callback(_close, opening)
        self._opening.clear()


async def _close(opening: asyncio.Task[AsyncSnapshots]) -> None:
    await asyncio.wait({opening})
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().close()
