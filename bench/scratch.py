"""What every benchmark is given: how large to be, where to write, how to open an engine there."""

import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import kedge


@dataclass(slots=True)
class Scratch:
    """One run of the benchmarks, in a folder that goes away with it."""

    folder: Path
    quick: bool
    filled: dict[str, Path] = field(default_factory=dict)
    made: int = 0
    before: Path | None = None
    """Another checkout of kedge, to compare with."""
    notices: list[str] = field(default_factory=list)
    """What whoever reads the figures must know."""

    def size(self, full: int, quick: int) -> int:
        """A size that depends on whether the figures are to mean something."""
        return quick if self.quick else full

    @property
    def tree(self) -> Path:
        """The directory that the engines are opened on."""
        tree = self.folder / "tree"
        tree.mkdir(exist_ok=True)
        return tree

    def path(self, name: str) -> Path:
        """A path that nobody uses yet."""
        self.made += 1
        return self.folder / f"{self.made}-{name}"

    @asynccontextmanager
    async def engine(
        self,
        data_dir: Path | None = None,
        *,
        directory: Path | None = None,
        settings: kedge.Settings | None = None,
    ) -> AsyncIterator[kedge.Engine]:
        """An engine whose background work rests: only what is timed shall run."""
        folder = data_dir or self.path("data")
        async with kedge.open(directory or self.tree, data_dir=folder, settings=settings) as engine:
            await engine.upkeep.close()
            yield engine

    async def filled_with(
        self, name: str, fill: Callable[[kedge.Engine], Awaitable[object]]
    ) -> Path:
        """The data folder of a database that is filled once, however many benchmarks want it."""
        if name not in self.filled:
            self.say(f"filling a database: {name}")
            folder = self.path("filled")
            async with self.engine(folder) as engine:
                await fill(engine)
            self.filled[name] = folder
        return self.filled[name]

    def say(self, text: str) -> None:
        """Show what is being done, on one line where there is a terminal."""
        end = "\x1b[K\r" if sys.stderr.isatty() else "\n"
        print(f"bench: {text}", end=end, file=sys.stderr, flush=True)

    def notice(self, text: str) -> None:
        """Say something that must not be overlooked: now, and again beside the figures."""
        self.notices.append(text)
        print(f"bench: {text}", file=sys.stderr, flush=True)


def facts(scratch: Scratch) -> Mapping[str, object]:
    """What one must know about the machine to compare two results."""
    # Not needed by `bench.before_side`, which also runs with versions that have it elsewhere.
    from kedge.store.sqlite.file import filesystem_of

    return {
        "kedge": kedge.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "git": _git(),
        "system": platform.platform(),
        "cpu": _processor(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "folder": tempfile.gettempdir(),
        "filesystem": filesystem_of(scratch.folder, Path("/proc/self/mounts")) or "unknown",
        "quick": scratch.quick,
    }


def _git() -> str:
    if shutil.which("git") is None:
        return "none"
    done = subprocess.run(["git", "--version"], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def _processor() -> str:
    table = Path("/proc/cpuinfo")
    if table.exists():
        for line in table.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
