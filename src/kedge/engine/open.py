"""Opens an engine: finds the data folder, chooses the database, starts and stops everything."""

import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from kedge.domain.clock import Clock, SystemClock
from kedge.domain.errors import InvalidInput, StoreReadOnly, StoreUnavailable
from kedge.domain.ids import IdMaker
from kedge.engine.engine import Engine
from kedge.engine.settings import Settings, absolute, data_folder, database_address
from kedge.store.port import Store


@asynccontextmanager
async def open(
    directory: str | os.PathLike[str] = ".",
    *,
    data_dir: str | os.PathLike[str] | None = None,
    database: str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
    random: Callable[[int], bytes] = os.urandom,
    recover: bool = True,
) -> AsyncIterator[Engine]:
    """An engine on a directory, open while the block runs.

    Data is kept in `data_dir`, else in `KEDGE_DATA_DIR`, else in the user's data home. `database`
    is a file or a `postgresql://` address; else `KEDGE_DATABASE_URL`, else the file `kedge.db` in
    the data folder. What killed processes left behind is recovered first, session by session.
    Without `recover` that happens in the background, and a session that is used before waits for
    its own recovery.
    """
    engine = await _opened(data_dir, database, settings, clock, random)
    try:
        await engine.start(directory)
        if recover:
            await engine.recovery.recover()
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def look(
    directory: str | os.PathLike[str] = ".",
    *,
    data_dir: str | os.PathLike[str] | None = None,
    database: str | os.PathLike[str] | None = None,
) -> AsyncIterator[Engine]:
    """Like `open`, for callers that only read: nothing is recovered, no background work runs, and a
    folder that is new to kedge is not stored."""
    engine = await _opened(data_dir, database, None, None, os.urandom)
    try:
        await engine.look_around(directory)
        yield engine
    finally:
        await engine.close()


async def _opened(
    data_dir: str | os.PathLike[str] | None,
    database: str | os.PathLike[str] | None,
    settings: Settings | None,
    clock: Clock | None,
    random: Callable[[int], bytes],
) -> Engine:
    if settings is not None and not isinstance(settings, Settings):
        raise InvalidInput("settings must be a kedge.Settings", field="settings")
    chosen = settings or Settings()
    chosen_clock = clock or SystemClock()
    ids = IdMaker(chosen_clock, random)
    folder = data_folder(data_dir)
    store = await open_store(database_address(database), folder, ids, chosen.outage_patience)
    return Engine(store, data=folder, clock=chosen_clock, ids=ids, random=random, settings=chosen)


async def open_store(
    address: str | None, folder: Path, ids: IdMaker, outage_patience: float = 0.0
) -> Store:
    """The database at an address; None for the embedded one in a folder."""
    if address is not None and address.startswith(("postgresql://", "postgres://")):
        from kedge.store.postgres.store import PostgresStore

        return await PostgresStore.open(address, ids, patience=outage_patience)
    from kedge.store.sqlite.store import SqliteStore

    if address is None:
        _make_folder(folder)
        return await SqliteStore.open(folder / "kedge.db", ids)
    if "://" in address:
        raise InvalidInput(
            f"{address.partition('://')[0]}:// is not a database kedge knows; give a file or a"
            " postgresql:// address",
            field="database",
        )
    if address == ":memory:" or address.startswith("file:"):
        raise InvalidInput("kedge keeps its data in a file; give its path", field="database")
    path = absolute(Path(address))
    _make_folder(path.parent)
    return await SqliteStore.open(path, ids)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise StoreReadOnly(
                f"the data folder {folder} cannot be created; choose another with KEDGE_DATA_DIR"
            ) from error
        raise StoreUnavailable(
            f"the data folder {folder} cannot be used ({error.strerror}); choose another with"
            " KEDGE_DATA_DIR"
        ) from error
