"""Runs ripgrep so that it reads no configuration, takes no argument for an option, and always ends.

It reads the ignore files of a project by itself, whatever they are: a link to an endless device, or
a pipe that blocks. So it has limits, and the error says which file is at fault.
"""

import asyncio
import os
import shutil
import signal
import stat
import sys
import sysconfig
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from kedge._async import to_the_end
from kedge.domain.child_processes import MIB, ChildLimits
from kedge.domain.errors import SearchFailed, SearchStopped
from kedge.domain.text import printable

_CHUNK = 1 << 16
_LONGEST = 1 << 20
"""Longer records are left out: they are not text that people write."""
_MOST_BYTES = 32 << 20
_MOST_ERRORS = 1 << 14
_LIMITS = ChildLimits(memory=1024 * MIB, cpu=300)
_PATIENCE = 60.0
"""Seconds."""
_IGNORE_FILES = (".gitignore", ".ignore", ".rgignore")
_LARGEST_RULES = MIB
_MOST_LOOKED_AT = 50_000
"""Names to check for the file that made a search fail."""


def find_ripgrep() -> str:
    """The program of the package `ripgrep`."""
    folders = [os.path.dirname(sys.executable), sysconfig.get_path("scripts")]
    found = shutil.which("rg", path=os.pathsep.join(folders)) or shutil.which("rg")
    if found is None:
        raise SearchFailed(
            "The program rg was not found, so nothing can be searched. Install it with: "
            "pip install ripgrep"
        )
    return found


class Search:
    """A running search."""

    def __init__(self, process: asyncio.subprocess.Process, errors: asyncio.Task[bytes]) -> None:
        self._process = process
        self._errors = errors
        self.is_cut = False
        """Whether there is more than was read."""

    async def records(self, separator: bytes) -> AsyncIterator[bytes]:
        """The results, one by one, without those that are too long; ends early if there are too
        many."""
        assert self._process.stdout is not None
        rest = b""
        taken = 0
        is_long = False
        while chunk := await self._process.stdout.read(_CHUNK):
            *whole, rest = (rest + chunk).split(separator)
            if is_long:
                # The first piece, or all of it, still belongs to a record that is left out.
                is_long = not whole
                whole, rest = whole[1:], b"" if is_long else rest
            for record in whole:
                taken += len(record)
                yield record
            if len(rest) > _LONGEST:
                rest = b""
                is_long = self.is_cut = True
            if taken > _MOST_BYTES:
                self.is_cut = True
                return
        await self._check()
        if rest:
            yield rest

    async def _check(self) -> None:
        errors = (await self._errors).decode(errors="replace").strip()
        status = await self._process.wait()
        if status < 0:
            raise SearchStopped(_killed(-status, errors))
        # Status 1 means no match; 2 without a message that some file could not be read.
        if status > 1 and errors:
            raise SearchFailed(f"The search failed: {errors}")


def _killed(number: int, errors: str) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = str(number)
    said = f" ({errors})" if errors else ""
    return f"The search was ended by the signal {name}{said}: it needed too much memory or time."


@asynccontextmanager
async def search(
    folder: Path, arguments: Sequence[str], *, patience: float | None = None
) -> AsyncIterator[Search]:
    """Run ripgrep in a folder; it and its child processes are gone when the block ends.

    Raises `SearchStopped` if it takes longer than `patience` seconds, by default a minute; and at
    once if it is clear that it would.
    """
    if (waiting := _odd_file(_ignore_files_above(folder))) is not None:
        raise SearchStopped(f"The search did not begin. {waiting}")
    try:
        async with _run(folder, arguments, patience or _PATIENCE) as running:
            yield running
    except SearchStopped as stopped:
        culprit = await asyncio.to_thread(_culprit, folder)
        if culprit is None:
            raise
        raise SearchStopped(f"{stopped} {culprit}") from stopped


@asynccontextmanager
async def _run(folder: Path, arguments: Sequence[str], patience: float) -> AsyncIterator[Search]:
    starting = asyncio.ensure_future(_start(folder, arguments))
    try:
        process = await to_the_end(starting)
    except asyncio.CancelledError:
        if starting.exception() is None:
            await to_the_end(_end(starting.result()))
        raise
    errors = asyncio.create_task(_complaints(process))
    try:
        async with asyncio.timeout(patience):
            yield Search(process, errors)
    except TimeoutError:
        raise SearchStopped(
            f"The search took over {patience:.0f} s and was ended. Search a smaller folder."
        ) from None
    finally:
        await to_the_end(_end(process))
        await to_the_end(errors)


async def _complaints(process: asyncio.subprocess.Process) -> bytes:
    """The beginning of its error output; all is read, as ripgrep would block otherwise."""
    assert process.stderr is not None
    kept = b""
    while piece := await process.stderr.read(_CHUNK):
        kept = (kept + piece)[:_MOST_ERRORS]
    return kept


async def _start(folder: Path, arguments: Sequence[str]) -> asyncio.subprocess.Process:
    command = [find_ripgrep(), "--no-config", "--no-messages", "--no-ignore-messages"]
    # A file that is truncated while it is mapped would crash the program.
    command += ["--no-mmap", "--hidden", "--color=never"]
    variables = {k: v for k, v in os.environ.items() if k != "RIPGREP_CONFIG_PATH"}
    try:
        process = await asyncio.create_subprocess_exec(
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
        raise SearchFailed(f"The search could not begin: {error}") from error
    _LIMITS.apply(process.pid)
    return process


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    # Reading to the end closes the pipe.
    assert process.stdout is not None
    while await process.stdout.read(_CHUNK):
        pass
    await process.wait()


def _culprit(folder: Path) -> str | None:
    """A description of the ignore file that makes a search fail, if there is one."""
    paths = [*_ignore_files_above(folder), *_ignore_files_below(folder)]
    if (odd := _odd_file(paths)) is not None:
        return odd
    for path in paths:
        with suppress(OSError):
            if os.stat(path).st_size > _LARGEST_RULES:
                return f"{printable(Path(path))} is larger than {_LARGEST_RULES} bytes: shorten it."
    return None


def _odd_file(paths: Iterable[str]) -> str | None:
    """A description of the first file that a program would block on, or read without end."""
    for path in paths:
        with suppress(OSError):
            if _has_no_end(os.stat(path)):
                return f"{printable(Path(path))} is not a regular file: remove it and try again."
    return None


def _has_no_end(found: os.stat_result) -> bool:
    if stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode):
        return found.st_rdev != os.stat(os.devnull).st_rdev
    return stat.S_ISFIFO(found.st_mode)


def _ignore_files_above(folder: Path) -> Iterator[str]:
    """The possible ignore files of a folder: there, and above."""
    for place in (folder, *folder.parents):
        yield os.path.join(place, ".git", "info", "exclude")
        yield from (os.path.join(place, name) for name in _IGNORE_FILES)


def _ignore_files_below(folder: Path) -> Iterator[str]:
    """Those below a folder, as far as they are found quickly."""
    looked_at = 0
    for below, folders, files in os.walk(folder):
        looked_at += len(folders) + len(files)
        if looked_at > _MOST_LOOKED_AT:
            return
        yield from (os.path.join(below, name) for name in _IGNORE_FILES if name in files)


def glob_argument(pattern: str) -> str:
    """A pattern for ripgrep, even if it begins like an exception or a comment."""
    return "--glob=" + ("\\" + pattern if pattern[:1] in ("!", "#") else pattern)


def modified(folder: Path, name: bytes) -> float:
    """When a found file was last changed; one that is gone counts as the oldest."""
    try:
        return os.lstat(os.path.join(os.fsencode(folder), name)).st_mtime
    except OSError:
        return 0.0
