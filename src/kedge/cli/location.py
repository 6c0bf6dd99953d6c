"""The options for where a command works, and the directory and worktree they lead to."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.processes import Processes
    from kedge.engine.trust import Trusting


@dataclass(frozen=True, slots=True)
class ConfiguredFolder:
    """A directory, its worktree, and the files that are trusted."""

    directory: str
    worktree: str
    trusting: "Trusting"
    processes: "Processes"


def add_place(command: argparse.ArgumentParser) -> None:
    """Add the options for `open_place`."""
    command.add_argument(
        "directory", nargs="?", default=".", metavar="DIRECTORY", help="default: this folder"
    )
    add_data(command)


def add_data(command: argparse.ArgumentParser) -> None:
    """Add the options that `kedge.open` has too."""
    command.add_argument(
        "--data", metavar="FOLDER", help="where data is kept; default: $KEDGE_DATA_DIR"
    )
    command.add_argument(
        "--database",
        metavar="FILE|URL",
        help="a SQLite file or a postgresql:// address; default: $KEDGE_DATABASE_URL",
    )


def add_location(command: argparse.ArgumentParser) -> None:
    """Add the options for `open_engine` and `look`."""
    command.add_argument(
        "-C", "--directory", default=".", metavar="DIR", help="work there (default: this folder)"
    )
    add_data(command)


@asynccontextmanager
async def look(options: argparse.Namespace) -> AsyncIterator["Engine"]:
    """An engine for commands that only read: it changes nothing, and disturbs no server."""
    # Imported here, so that help and errors in options are fast.
    from kedge.engine.open import look as look_from

    async with look_from(
        options.directory, data_dir=options.data, database=options.database
    ) as engine:
        yield engine


@asynccontextmanager
async def open_engine(options: argparse.Namespace) -> AsyncIterator["Engine"]:
    """An engine for commands that change something. What dead processes left is recovered session
    by session, where it is used."""
    import kedge

    async with kedge.open(
        options.directory, data_dir=options.data, database=options.database, recover=False
    ) as engine:
        yield engine


@asynccontextmanager
async def open_place(options: argparse.Namespace) -> AsyncIterator[ConfiguredFolder]:
    """The target of the options; this opens only the database, not an engine."""
    # Imported here, so that help and errors in options are fast.
    from kedge.domain.clock import SystemClock
    from kedge.domain.ids import IdMaker
    from kedge.engine.open import open_store
    from kedge.engine.processes import Processes
    from kedge.engine.settings import data_folder, database_address
    from kedge.engine.trust import Trusting
    from kedge.engine.worktrees import find_directory, find_worktree

    directory = find_directory(options.directory)
    worktree = find_worktree(directory).root
    clock = SystemClock()
    address = database_address(options.database)
    store = await open_store(address, data_folder(options.data), IdMaker(clock))
    try:
        yield ConfiguredFolder(directory, worktree, Trusting(store, clock), Processes(store))
    finally:
        await store.close()
