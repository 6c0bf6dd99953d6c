"""Processes that are measured from outside: they are asked by lines, and answer by lines."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_PATIENCE = 10
_LINE = 16 * 1024 * 1024


class Process:
    """One of them."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def line(self) -> str:
        """The next line that it prints."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process that is measured ended: {await self._process.wait()}")
        return line.decode()

    async def tell(self, line: str) -> None:
        """Give it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()

    async def end(self) -> None:
        """Close its input, and see that it goes."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _PATIENCE)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """Ask it to go by a signal."""
        self._process.terminate()
        await self.end()


@asynccontextmanager
async def started(
    *command: str, folder: Path = _ROOT, environ: Mapping[str, str] | None = None
) -> AsyncIterator[Process]:
    """A process that runs until the block ends; what it complains of is shown."""
    process = Process(
        await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=None if environ is None else dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            limit=_LINE,
        )
    )
    try:
        yield process
    finally:
        await process.end()


def processor_time(pid: int) -> float:
    """Seconds that a process, and the children it waited for, had a processor."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.exists():
        told = stat.read_text().rpartition(")")[2].split()
        # Its own time and that of its children, each as a program and in the kernel.
        return sum(int(ticks) for ticks in told[11:15]) / os.sysconf("SC_CLK_TCK")
    asked = ["ps", "-o", "time=", "-p", str(pid)]
    told_time = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True).stdout
    seconds = 0.0
    for part in told_time.strip().split(":"):
        seconds = seconds * 60 + float(part)
    return seconds
