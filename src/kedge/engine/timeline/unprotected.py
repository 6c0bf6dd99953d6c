"""Calls of turns that record nothing of files: that is all that is known of them later."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from kedge.store.script import Script, ScriptMaker
from kedge.store.verbs.changes import Home, NewChange, add_changes
from kedge.store.verbs.timeline import begin_call, end_call, next_number

if TYPE_CHECKING:
    from kedge.engine.timeline.timeline import Timeline
    from kedge.snapshot.files.steps import RootedStep

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
        yield from add_changes(self._home, [_ran()], number=number)


class StoredSteps:
    """A call that writes files in steps, which are stored so that what a crash leaves of them can
    be put in order; that is all that is recorded of it."""

    def __init__(
        self, timeline: "Timeline", home: Home, steps: "Sequence[RootedStep]", *, is_told: bool
    ) -> None:
        """`is_told` says whether receipts tell of the call."""
        self._timeline = timeline
        self._home = home
        self._steps = steps
        self._is_told = is_told
        self._locks = AsyncExitStack()

    @asynccontextmanager
    async def beginning(self) -> AsyncIterator[ScriptMaker[None]]:
        """Lock what is to be written: whoever finds it locked knows that the call is at work."""
        from kedge.engine.timeline.declared import PATIENCE, missing_above

        async with AsyncExitStack() as failing:
            failing.push_async_callback(self._locks.aclose)
            paths = [step.real for step in self._steps]
            await self._locks.enter_async_context(
                self._timeline.locks.locked(paths, patience=PATIENCE)
            )
            asked = await self._timeline.head()
            yield partial(self._begin, asked, missing_above(self._steps))
            failing.pop_all()

    def _begin(self, asked: int, missing: "Sequence[bytes]") -> Script[None]:
        from kedge.engine.timeline.formats import declared_data

        number = yield from next_number()
        data = declared_data({}, missing=missing, steps=self._steps)
        call = self._timeline.new_call(self._home, "declared", asked=asked, data=data)
        yield from begin_call(call, number)

    @asynccontextmanager
    async def ending(self) -> AsyncIterator[ScriptMaker[None]]:
        """The steps are done."""
        async with self._locks:
            yield partial(self._end)

    def _end(self) -> Script[None]:
        from kedge.engine.timeline.formats import declared_data

        number = yield from next_number()
        home = self._home
        yield from end_call(
            home.session_id,
            home.part_id,
            machine=self._timeline.machine,
            ended=number,
            data=declared_data({}),
        )
        if self._is_told:
            yield from add_changes(home, [_ran()], number=number)


def _ran() -> NewChange:
    return NewChange(path=b"", before=None, after=None, source="call", reason=SWITCHED_OFF)
