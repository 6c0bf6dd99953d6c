"""What is kept on disk for sessions: snapshots and saved output are released, expired or inherited.

No worktree is opened: it may be gone. Nothing of snapshots is imported where none was ever taken.
"""

import asyncio
from pathlib import Path

from kedge.engine.saved_output import (
    OLDEST,
    remove_old_outputs,
    remove_outputs,
    sessions_with_outputs,
)


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
