"""Where a test's engines are: a folder and a database; nothing that is kept between tests."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kedge
from kedge.domain.sessions import SessionStatus
from kedge.engine.engine import Engine
from kedge.store.port import StoredEvent
from kedge.store.queries.event_log import events_after
from kedge.store.transaction import Script, row, rows, run

PAUSES = ("_INDEX_EVERY", "_RECOVER_EVERY", "_FIRST_TIDY")
"""The names of the times after which an engine does something by itself, in `engine.upkeep`."""
NEVER = 1e6


@dataclass(frozen=True)
class EngineFactory:
    """A folder and a database, for as many engines as a test wants."""

    folder: Path
    database: str

    def open(self, **options: Any) -> AbstractAsyncContextManager[Engine]:  # noqa: ANN401 - as kedge.open
        """One more engine."""
        return kedge.open(self.folder, database=self.database, **options)


async def stored_log(engine: Engine, after: int = 0) -> list[StoredEvent]:
    """The whole event log as it is stored."""

    def whole() -> Script[list[StoredEvent]]:
        return (yield from events_after(after, 2**31))

    return await engine.store.scan(whole)


async def lease_row(engine: Engine, session_id: str) -> tuple[Any, ...]:
    """Generation, owner, expiry and status as the database has them."""
    found = await engine.store.read(lambda: row("lease_get", session_id=session_id))
    assert found is not None
    return tuple(found)


async def forge_lease(
    engine: Engine, session_id: str, owner: str, *, expires: int, status: SessionStatus
) -> None:
    """Make a lease that somebody else seems to hold."""
    from kedge.domain import wire

    def forge() -> Script[None]:
        yield from run(
            "lease_take",
            session_id=session_id,
            generation=7,
            owner=owner,
            now=0,
            time_expires=expires,
            status=wire.encode(status),
            kind="turn",
            first_pos=0,
        )

    await engine.store.write(forge)


async def database_time(engine: Engine) -> int:
    """The clock that leases expire by."""
    found = await engine.store.read(lambda: rows("clock"))
    return int(found[0][0])
