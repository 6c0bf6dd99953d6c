"""The options that say where a command works, and what it finds there."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kedge.engine.trust import Trusting


@dataclass(frozen=True, slots=True)
class Target:
    """A directory, the worktree around it, and what people trust."""

    directory: str
    worktree: str
    trusting: "Trusting"


def add_place(command: argparse.ArgumentParser) -> None:
    """The options of `open_place`."""
    command.add_argument(
        "directory", nargs="?", default=".", metavar="DIRECTORY", help="default: this folder"
    )
    add_data(command)


def add_data(command: argparse.ArgumentParser) -> None:
    """The options that `kedge.open` takes too."""
    command.add_argument(
        "--data", metavar="FOLDER", help="where data is kept; default: $KEDGE_DATA_DIR"
    )
    command.add_argument(
        "--database",
        metavar="FILE|URL",
        help="a SQLite file or a postgresql:// address; default: $KEDGE_DATABASE_URL",
    )


@asynccontextmanager
async def open_place(options: argparse.Namespace) -> AsyncIterator[Target]:
    """What the options mean; only the database is opened, no engine is started."""
    # Help and mistakes in options do not wait for these.
    from kedge.domain.clock import SystemClock
    from kedge.domain.ids import IdMaker
    from kedge.engine.open import open_store
    from kedge.engine.settings import data_folder, database_address
    from kedge.engine.trust import Trusting
    from kedge.engine.worktrees import find_directory, find_worktree

    directory = find_directory(options.directory)
    worktree = find_worktree(directory).root
    clock = SystemClock()
    address = database_address(options.database)
    store = await open_store(address, data_folder(options.data), IdMaker(clock))
    try:
        yield Target(directory, worktree, Trusting(store, clock))
    finally:
        await store.close()
