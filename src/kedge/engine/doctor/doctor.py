"""The doctor: examines the data of kedge and the machine, beside running kedges too.

    report = await examine(data_dir=..., database=...)
    for finding in report.findings: ...

Nothing is changed by that: the database is not migrated, and no journal is taken over. A collection
of snapshots waits until it is done.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from kedge.config.load import notices
from kedge.domain.clock import Clock, SystemClock
from kedge.domain.errors import KedgeError
from kedge.domain.ids import IdMaker
from kedge.engine.doctor.database import can_be_read, examine_rows
from kedge.engine.doctor.findings import Progress, Report, silent
from kedge.engine.doctor.machine import Limits, examine_machine, limits
from kedge.engine.doctor.sessions import SessionExamination
from kedge.engine.doctor.snapshots import Stores, sizes
from kedge.engine.open import open_store
from kedge.engine.os_process import forget_engine, this_process
from kedge.engine.settings import Settings, absolute, data_folder, database_address
from kedge.engine.trust import Trusting
from kedge.engine.worktrees import find_directory, find_worktree
from kedge.store.port import Store

_MIB = 2**20


async def examine(
    directory: str | os.PathLike[str] | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    database: str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
    progress: Progress = silent,
    limits: Callable[[], Limits] = limits,
) -> Report:
    """Examine everything; with a directory, its configuration too.

    `data_dir` and `database` are as for `kedge.open`. `progress` may be called from any thread.
    """
    data, address = data_folder(data_dir), database_address(database)
    report = Report()
    await asyncio.to_thread(_machine, data, address, limits, report)
    stores = Stores(data, report, progress)
    try:
        if await can_be_read(address, _file_of(address, data), report):
            await _readable(data, address, stores, report, progress, settings, clock, directory)
        else:
            await asyncio.to_thread(stores.examine)
    finally:
        stores.close()
    return report


async def _readable(
    data: Path,
    address: str | None,
    stores: Stores,
    report: Report,
    progress: Progress,
    settings: Settings | None,
    clock: Clock | None,
    directory: str | os.PathLike[str] | None,
) -> None:
    now = clock or SystemClock()
    store = await open_store(address, data, IdMaker(now))
    here = this_process("doctor")
    try:
        if directory is not None:
            await _configuration(store, now, directory, report)
        await examine_rows(store, settings or Settings(), now.now(), report)
        await asyncio.to_thread(stores.examine)
        for project, size in (await asyncio.to_thread(sizes, data)).items():
            report.facts[f"snapshots of {project[:12]}"] = f"{size / _MIB:.1f} MiB"
        sessions = SessionExamination(
            store=store,
            stores=stores,
            here=here,
            objects_are_here=not _is_server(address),
            report=report,
            progress=progress,
        )
        await sessions.examine()
    finally:
        forget_engine(here)
        await store.close()


def _machine(data: Path, address: str | None, limits: Callable[[], Limits], report: Report) -> None:
    file = None if _is_server(address) else _file_of(address, data)
    report.facts["data"] = str(data)
    examine_machine(data, file, limits(), report)


def _is_server(address: str | None) -> bool:
    return address is not None and address.startswith(("postgresql://", "postgres://"))


def _file_of(address: str | None, data: Path) -> Path:
    """The database, if it is a file."""
    return data / "kedge.db" if address is None else absolute(Path(address))


async def _configuration(
    store: Store, clock: Clock, directory: str | os.PathLike[str], report: Report
) -> None:
    try:
        real = find_directory(directory)
        worktree = await asyncio.to_thread(find_worktree, real)
        files = await Trusting(store, clock).files(real, worktree.root)
    except KedgeError as error:
        report.add("configuration", str(error))
        return
    for file in files:
        for notice in notices(file):
            report.add("configuration", notice, str(file.path))
