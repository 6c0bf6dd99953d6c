"""The database: whether it can be read, and whether its tables fit together."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kedge.domain.errors import KedgeError
from kedge.engine.doctor.findings import Report
from kedge.engine.settings import Settings
from kedge.store.port import Store
from kedge.store.queries import checkup
from kedge.store.queries.event_log import log_head
from kedge.store.queries.retention import expired_sessions
from kedge.store.queries.search import index_mark
from kedge.store.transaction import Script

_LOG_LIMIT = 64 * 2**20
_MIB = 2**20
_PAGE = 500
_LATE = 86_400_000
"""Milliseconds after which a purge is overdue: kedge may not have run meanwhile."""

IsOpen = Callable[[str, bool], bool]
"""Whether the engine of an owner is open, given whether its lease has expired."""


async def can_be_read(address: str | None, file: Path, report: Report) -> bool:
    """Examine the database as a whole, before it is opened; return whether it may be."""
    try:
        if address is not None and address.startswith(("postgresql://", "postgres://")):
            return await _server(address, report)
        return await asyncio.to_thread(_file, file, report)
    except KedgeError as error:
        report.add("database-unusable", str(error))
        return False


async def _server(address: str, report: Report) -> bool:
    from kedge.store.postgres.checkup import server_state

    state = await server_state(address)
    report.facts["database"] = f"PostgreSQL {state.server}, schema {state.version}"
    report.unchecked.append(
        "the files of the server: see pg_amcheck; its rows are backed up with pg_dump"
    )
    if state.version == 0:
        report.unchecked.append("sessions: kedge has stored nothing in the database yet")
        return False
    return _is_readable(state.version, state.known, "the database", report)


def _file(path: Path, report: Report) -> bool:
    from kedge.store.sqlite.checkup import file_state

    if not path.exists():
        report.unchecked.append(f"sessions: there is no {path} yet")
        return False
    state = file_state(path)
    report.facts["database"] = (
        f"{path}, {state.size / _MIB:.1f} MiB, log {state.log_size / _MIB:.1f} MiB,"
        f" schema {state.version}"
    )
    for complaint in state.complaints:
        report.add("database-damaged", f"{path}: {complaint}")
    if state.log_size > _LOG_LIMIT:
        report.add("log-large", f"{path}-wal has {state.log_size // _MIB} MiB")
    if state.complaints:
        report.unchecked.append("sessions: the database is damaged")
        return False
    if not state.is_ours and state.version:
        report.add("database-unusable", f"{path} is another program's database")
        return False
    return _is_readable(state.version, state.known, str(path), report)


def _is_readable(version: int, known: int, what: str, report: Report) -> bool:
    if version == known:
        return True
    which = "newer" if version > known else "older"
    report.add(f"database-{which}", f"{what} has schema {version}, this kedge knows {known}")
    report.unchecked.append(f"sessions: the schema is {which} than this kedge")
    return False


async def examine_rows(store: Store, settings: Settings, now: int, report: Report) -> None:
    """What no session is needed for."""
    for kind, owner, count in await store.scan(checkup.orphans):
        what = f"{count} rows of {kind} belong to {owner}, which does not exist"
        report.add("rows-orphaned", what, f"{kind} {owner}")
    for thing, project in await store.scan(checkup.without_project):
        report.add("project-missing", f"{thing} belongs to {project}, which is missing", thing)
    await _projects(store, report)
    await _index(store, report)
    overdue = now - round(settings.retention * 1000) - _LATE
    if late := await store.scan(partial(expired_sessions, overdue, _PAGE)):
        report.add("purge-overdue", f"{len(late)} deleted sessions are still there")


async def _projects(store: Store, report: Report) -> None:
    """Compare each project with its newest event, both read at one moment."""
    for id in await store.scan(checkup.differing_projects):
        report.add("project-differs", f"the project {id} is not as its newest event says", id)


async def _index(store: Store, report: Report) -> None:
    mark, head = await store.scan(_mark_and_head)
    if mark > head:
        report.add("search-ahead", f"the index claims event {mark}, the log ends with {head}")
    elif head - mark > 1000:
        report.add("search-behind", f"{head - mark} events are not indexed yet")


def _mark_and_head() -> Script[tuple[int, int]]:
    return (yield from index_mark()), (yield from log_head())
