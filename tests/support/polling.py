"""Waiting for what other processes do to files and to each other."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from kedge.engine import os_process
from tests.support.timeouts import PATIENCE

_LOOK = 0.01


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, looking at it again and again in a thread."""
    async with asyncio.timeout(PATIENCE):
        while not await asyncio.to_thread(_look, holds):
            pass


async def until_told(path: Path) -> str:
    """Wait until a whole line was written to a file; gives it."""
    await until(lambda: path.exists() and path.read_text().endswith("\n"))
    return await asyncio.to_thread(lambda: path.read_text().strip())


async def until_gone(*pids: int) -> None:
    """Wait until processes have ended."""
    await until(lambda: not any(os_process.process(pid) for pid in pids))


async def until_beaten(data: Path, *files: Path) -> None:
    """Wait until a process that uses a data folder has given a sign of life since files changed."""
    newest = max(file.stat().st_ctime_ns for file in files)
    beats = data / "heartbeats"
    await until(lambda: any(each.stat().st_ctime_ns > newest for each in beats.iterdir()))


def _look(holds: Callable[[], bool]) -> bool:
    if holds():
        return True
    time.sleep(_LOOK)
    return False
