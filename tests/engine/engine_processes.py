"""Other processes on the same database: what a test tells one, and what it says back, line by
line."""

import asyncio
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.engine.engine_factory import EngineFactory
from tests.support.timeouts import PATIENCE

_ROOT = Path(__file__).parents[2]


class Child:
    """A process that runs `tests.engine.engine_process`; killed at the end if it is still there."""

    def __init__(self, place: EngineFactory, role: str, *arguments: str) -> None:
        self._command = [
            sys.executable,
            "-m",
            "tests.engine.engine_process",
            str(place.folder),
            place.database,
            role,
            *arguments,
        ]
        self._process: asyncio.subprocess.Process | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The process itself."""
        assert self._process is not None
        return self._process

    async def __aenter__(self) -> "Child":
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._command, cwd=_ROOT, stdin=pipe, stdout=pipe, env=os.environ.copy()
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()

    async def hear(self) -> Any:  # noqa: ANN401 - whatever the child says
        """The next thing the child says."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = await self.process.stdout.readline()
        assert line, "the child ended without saying anything"
        return json.loads(line)

    async def hear_all(self) -> list[Any]:
        """Everything the child says until it ends by itself."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            text = await self.process.stdout.read()
        return [json.loads(line) for line in text.splitlines()]

    async def say(self, word: str = "") -> None:
        """Let the child go on."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())
        await self.process.stdin.drain()

    async def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        await self.process.wait()

    def pause(self) -> None:
        """Stop it from running, without it knowing."""
        self.process.send_signal(signal.SIGSTOP)

    async def until_paused(self) -> None:
        """Wait until it has paused itself."""
        wait = partial(os.waitid, os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        await asyncio.to_thread(wait)

    def resume(self) -> None:
        """Let it run again."""
        self.process.send_signal(signal.SIGCONT)
