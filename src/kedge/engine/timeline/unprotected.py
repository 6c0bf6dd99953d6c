"""Calls of turns that record nothing of files: that is all that is known of them later."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from kedge.store.script import Script, ScriptMaker
from kedge.store.verbs.changes import Home, NewChange, add_changes
from kedge.store.verbs.timeline import next_number

SWITCHED_OFF = "snapshots are switched off"


class UnprotectedEffects:
    """A call that may do anything to files, and is not looked at."""

    def __init__(self, home: Home) -> None:
        self._home = home

    @asynccontextmanager
    async def beginning(self) -> AsyncIterator[None]:
        """Nothing is looked at."""
        yield None

    @asynccontextmanager
    async def ending(self) -> AsyncIterator[ScriptMaker[None]]:
        """Remember that there was such a call, so that no receipt is silent about it."""
        yield partial(self._end)

    def _end(self) -> Script[None]:
        number = yield from next_number()
        ran = NewChange(path=b"", before=None, after=None, source="call", reason=SWITCHED_OFF)
        yield from add_changes(self._home, [ran], number=number)
