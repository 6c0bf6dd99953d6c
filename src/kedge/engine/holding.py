"""Which sessions snapshots and output are kept for, changed without opening a worktree; nothing is
imported where no snapshot was ever taken."""

import asyncio
from pathlib import Path

from kedge.engine.outputs import (
    OLDEST,
    remove_old_outputs,
    remove_outputs,
    sessions_with_outputs,
)


async def release(data: Path, project: str, session_id: str) -> None:
    """Keep nothing for a session that is gone for good."""
    await asyncio.to_thread(remove_outputs, data, session_id)
    if _has_snapshots(data, project):
        from kedge.snapshot.sessions import release_session

        await asyncio.to_thread(release_session, data, project, session_id)


async def expire(data: Path, now_ms: int) -> None:
    """Keep no output any longer that is too old."""
    await asyncio.to_thread(remove_old_outputs, data, now_ms / 1000 - OLDEST)


async def held(data: Path) -> list[tuple[str, str]]:
    """Projects and sessions for which something is kept here; output is kept for no project."""
    found = [("", id) for id in await asyncio.to_thread(sessions_with_outputs, data)]
    if (data / "snapshots").is_dir():
        from kedge.snapshot.sessions import sessions_with_refs

        found += await asyncio.to_thread(sessions_with_refs, data)
    return found


async def inherit(data: Path, project: str, origin: str, fork: str) -> None:
    """Keep for a fork what is kept for its origin."""
    if _has_snapshots(data, project):
        from kedge.snapshot.sessions import inherit_session

        await asyncio.to_thread(inherit_session, data, project, origin, fork)


def _has_snapshots(data: Path, project: str) -> bool:
    return bool(project) and (data / "snapshots" / project).is_dir()
