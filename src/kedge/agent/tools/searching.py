"""ripgrep, run so that it reads no configuration, takes no argument for an option, and never
outlives the call."""

import asyncio
import os
import shutil
import signal
import sys
import sysconfig
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from kedge.agent.tools.places import Place, is_same_place, printable
from kedge.agent.tools.tool import ToolFailure
from kedge.store.waiting import to_the_end

_CHUNK = 1 << 16
_LONGEST = 1 << 20
"""A record above this ends the search: nothing that people wrote is found there."""
_MOST_BYTES = 32 << 20
_MOST_ERRORS = 1 << 14


def find_ripgrep() -> str:
    """The program that the package `ripgrep` brings."""
    folders = [os.path.dirname(sys.executable), sysconfig.get_path("scripts")]
    found = shutil.which("rg", path=os.pathsep.join(folders)) or shutil.which("rg")
    if found is None:
        raise ToolFailure(
            "The program rg was not found, so nothing can be searched. Install it with: "
            "pip install ripgrep"
        )
    return found


class Search:
    """A running search."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.is_cut = False
        """Whether there is more than was taken."""

    async def records(self, separator: bytes) -> AsyncIterator[bytes]:
        """What was found, piece by piece; ends early where that is more than anybody reads."""
        assert self._process.stdout is not None
        rest = b""
        taken = 0
        while chunk := await self._process.stdout.read(_CHUNK):
            taken += len(chunk)
            *whole, rest = (rest + chunk).split(separator)
            for record in whole:
                yield record
            if len(rest) > _LONGEST or taken > _MOST_BYTES:
                self.is_cut = True
                return
        await self._check()
        if rest:
            yield rest

    async def _check(self) -> None:
        assert self._process.stderr is not None
        errors = await self._process.stderr.read(_MOST_ERRORS)
        # 1 is nothing found; 2 without a word is that some file could not be read.
        if await self._process.wait() > 1 and errors.strip():
            raise ToolFailure(f"The search failed: {errors.decode(errors='replace').strip()}")


@asynccontextmanager
async def search(folder: Path, arguments: Sequence[str]) -> AsyncIterator[Search]:
    """Run ripgrep in a folder; it and whatever it started is gone when the block ends."""
    starting = asyncio.ensure_future(_start(folder, arguments))
    try:
        process = await to_the_end(starting)
    except asyncio.CancelledError:
        if starting.exception() is None:
            await to_the_end(_end(starting.result()))
        raise
    try:
        yield Search(process)
    finally:
        await to_the_end(_end(process))


async def _start(folder: Path, arguments: Sequence[str]) -> asyncio.subprocess.Process:
    command = [find_ripgrep(), "--no-config", "--no-messages", "--hidden", "--color=never"]
    variables = {k: v for k, v in os.environ.items() if k != "RIPGREP_CONFIG_PATH"}
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            *arguments,
            cwd=folder,
            env=variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            process_group=0,
        )
    except (OSError, ValueError) as error:
        raise ToolFailure(f"The search could not begin: {error}") from error


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    # Reading to the end closes the pipes.
    await process.communicate()


def glob_argument(pattern: str) -> str:
    """A pattern as ripgrep takes it, also if it begins like an exception or a comment."""
    return "--glob=" + ("\\" + pattern if pattern[:1] in ("!", "#") else pattern)


def modified(folder: Path, name: bytes) -> float:
    """When a file that was found was last changed; one that is gone is the oldest."""
    try:
        return os.lstat(os.path.join(os.fsencode(folder), name)).st_mtime
    except OSError:
        return 0.0


def check_same(place: Place) -> None:
    """Raise if the path leads elsewhere than it did when somebody was asked."""
    if not is_same_place(place):
        raise ToolFailure(
            f"{printable(place.path)} leads elsewhere now than when it was asked for. Try again."
        )


def check_folder(place: Place) -> None:
    """Raise unless there is the folder to search that was asked for."""
    check_same(place)
    if not place.real.is_dir():
        raise ToolFailure(f"{printable(place.path)} is no folder. Name one that exists.")
