"""The summary of a session's changes, updated cheaply at the end of every step of a turn."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from kedge.domain.errors import SnapshotError
from kedge.domain.sessions import SessionSummary
from kedge.store.queries.changes import StoredChange, family_changes
from kedge.store.queries.sessions import change_session

if TYPE_CHECKING:
    from kedge.engine.diffs.diffs import Counts
    from kedge.engine.session import Session

_Key: TypeAlias = tuple[str, int, str, int]


class Summaries:
    """The summaries of one session during one turn; each turn makes its own.

    A turn has its session to itself, so only changes recorded since the last summary are read, and
    only the paths they touched are counted again. Nothing is imported for it before the session has
    changed something.

        summaries = Summaries(session)          # when the turn begins
        summary = await summaries.summary()     # at the end of each step
    """

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._first = 0
        """The first message that may have new changes."""
        self._known: dict[_Key, StoredChange] = {}
        self._counts: Counts = {}

    async def summary(self) -> SessionSummary | None:
        """The summary of the session's changes so far.

        None if it never changed anything, or if its changes cannot be read at the moment: that must
        not end a turn.
        """
        store = self._session._engine.store
        found = await store.scan(partial(family_changes, self._session.id, self._first))
        standing = (change for change in found if change.undone_by is None)
        new = {key: change for change in standing if (key := change.key) not in self._known}
        try:
            await self._count(new)
        except SnapshotError:
            return None
        return summed(self._counts) if self._known or found else None

    async def _count(self, new: dict[_Key, StoredChange]) -> None:
        if not new:
            return
        known = self._known | new
        paths = {(change.worktree, change.path) for change in new.values()}
        touched = [change for change in known.values() if (change.worktree, change.path) in paths]
        self._counts |= await self._session._engine.diffs.counts(self._session, touched)
        # Only now, so that changes that could not be read are tried again.
        self._known = known
        own = (change.pos for change in new.values() if change.session_id == self._session.id)
        self._first = max(own, default=self._first)


async def summarise(session: "Session") -> None:
    """Where no message is hidden, update the session's summary to the changes that are left."""
    if session.info.revert is not None:
        return
    summary = await Summaries(session).summary()
    if summary is not None and summary != session.info.summary:
        change = partial(msgspec.structs.replace, summary=summary)
        store = session._engine.store
        session.info = await store.write(partial(change_session, session.id, change))


def summed(counts: "Counts") -> SessionSummary:
    """The sums over all paths."""
    changed = [count for count in counts.values() if count is not None]
    return SessionSummary(
        additions=sum(additions for additions, _ in changed),
        deletions=sum(deletions for _, deletions in changed),
        files=len(changed),
    )


async def resummed(
    session: "Session", before: Sequence[StoredChange], after: Sequence[StoredChange]
) -> SessionSummary | None:
    """The session's summary where at some paths other changes stand than before; None if they
    cannot be read. Only these paths are counted."""
    summary = session.info.summary
    if summary is None:
        return None
    diffs = session._engine.diffs
    try:
        was = summed(await diffs.counts(session, before))
        now = summed(await diffs.counts(session, after))
    except SnapshotError:
        return None
    return SessionSummary(
        additions=max(0, summary.additions - was.additions + now.additions),
        deletions=max(0, summary.deletions - was.deletions + now.deletions),
        files=max(0, summary.files - was.files + now.files),
    )
