"""The snapshots of an engine's worktrees, and the sessions they are kept for."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from kedge.engine.saved_output import (
    OLDEST,
    remove_old_outputs,
    remove_outputs,
    sessions_with_outputs,
)
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


async def release(data: Path, project: str, session_id: str) -> None:
    """Remove everything kept for a purged session."""
    await asyncio.to_thread(remove_outputs, data, session_id)
    if _has_snapshots(data, project):
        from kedge.snapshot.session_keeps import release_session

        await asyncio.to_thread(release_session, data, project, session_id)


async def expire(data: Path, now_ms: int) -> None:
    """Remove outputs that are too old."""
    await asyncio.to_thread(remove_old_outputs, data, now_ms / 1000 - OLDEST)


async def held(data: Path) -> list[tuple[str, str]]:
    """Projects and sessions for which something is kept here; for outputs the project is empty."""
    found = [("", id) for id in await asyncio.to_thread(sessions_with_outputs, data)]
    if (data / "snapshots").is_dir():
        from kedge.snapshot.session_keeps import sessions_with_refs

        found += await asyncio.to_thread(sessions_with_refs, data)
    return found


async def inherit(data: Path, project: str, origin: str, fork: str) -> None:
    """Keep for a fork what is kept for its origin."""
    if _has_snapshots(data, project):
        from kedge.snapshot.session_keeps import inherit_session

        await asyncio.to_thread(inherit_session, data, project, origin, fork)


def _has_snapshots(data: Path, project: str) -> bool:
    return bool(project) and (data / "snapshots" / project).is_dir()
