"""The port every database adapter implements: run a script, follow the log.

The queries in `kedge.store.queries` are scripts over this port, so an adapter knows nothing about
sessions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from kedge.store.transaction import ScriptMaker, T


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """A committed event as the log keeps it."""

    seq: int
    type: str
    session_id: str | None
    project_id: str | None
    directory: str | None
    payload: str
    """The JSON text `{"id", "type", "properties"}` that goes on the wire."""


OnCommit: TypeAlias = Callable[[Sequence[StoredEvent]], None]
"""Called on the event loop with the events of each transaction of this process, in commit order."""

OnForeignCommit: TypeAlias = Callable[[], None]
"""Called on the event loop when another process may have committed."""


class Store(Protocol):
    """A database of sessions. All methods but `run_blocking` belong to one event loop."""

    @property
    def epoch(self) -> str:
        """Identifies this database for its whole life; the first half of every cursor."""

    @property
    def location(self) -> str:
        """Where the database is, for messages; without passwords."""

    def check(self) -> None:
        """Raise `StoreGone` if the open database was removed; a database that is only unreachable
        raises nothing."""

    @property
    def available_since(self) -> float:
        """When the database was last found to be back after an outage, on the monotonic clock.

        Before that no process could write, so something that is overdue may only be late.
        """

    async def read(self, script: ScriptMaker[T], /) -> T:
        """Run a script of a few point look-ups."""

    async def scan(self, script: ScriptMaker[T], /) -> T:
        """Run a slow reading script on one consistent state."""

    async def write(self, script: ScriptMaker[T], /) -> T:
        """Run a small script as one transaction. Returns when the result survives the death of the
        process.

        A caller that is cancelled waits until the transaction has ended, so that what it does next
        comes after it.
        """

    async def write_bulk(self, script: ScriptMaker[T], /) -> T:
        """Like `write`, for scripts that touch many rows or large values."""

    async def write_durable(self, script: ScriptMaker[T], /) -> T:
        """Like `write`, but returns only when the result also survives a power failure."""

    def run_blocking(self, script: ScriptMaker[T], /) -> T:
        """Run a script that emits no events, from any thread but the event loop's.

        It may run twice, if the connection to the database is lost at the wrong moment.
        """

    def follow(self, on_commit: OnCommit, on_foreign_commit: OnForeignCommit, /) -> None:
        """Set the callbacks for commits. Foreign commits are looked for between `watch` and
        `unwatch`."""

    def watch(self) -> None:
        """Start to look for commits of other processes; calls nest."""

    def unwatch(self) -> None:
        """Undo one `watch`."""

    async def close(self) -> None:
        """Finish what was begun, then close the database."""
