"""What the calls of a step may do to files, and the snapshots around the step.

A call enters `beginning` before its work and `ending` after it, and runs the script that each
returns in the transaction that stores its part.

An engine that protects no files imports nothing of the snapshot package.
"""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from kedge.domain.clock import Clock
from kedge.domain.errors import InvalidInput
from kedge.domain.file_states import Absent
from kedge.domain.parts import ToolPart
from kedge.engine.validation import check_list
from kedge.engine.worktree_paths import AnyPath, named_paths
from kedge.store.queries.changes import Home, NewChange, add_changes, message_changes
from kedge.store.queries.timeline import begin_call, end_call, next_number, note_head
from kedge.store.transaction import Script, ScriptMaker

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.session import Session
    from kedge.engine.timeline.timeline import Taken, Timeline
    from kedge.snapshot.files.steps import FileWork, RootedStep


class Effects(Protocol):
    """What is recorded of a call beside its part."""

    def beginning(self) -> AbstractAsyncContextManager[ScriptMaker[None] | None]:
        """Before the work; the part is stored as running inside the block."""

    def ending(self) -> AbstractAsyncContextManager[ScriptMaker[None] | None]:
        """After the work; the part is stored as ended inside the block."""


class NoEffects:
    """The call touches no files."""

    @asynccontextmanager
    async def beginning(self) -> AsyncIterator[None]:
        yield None

    @asynccontextmanager
    async def ending(self) -> AsyncIterator[None]:
        yield None


T = TypeVar("T")

EFFECTS = ("none", "unknown")


@dataclass(frozen=True, slots=True)
class StepSample:
    """A snapshot at the start or the end of a step."""

    id: str | None = None
    """The tree's id; None if there is no snapshot."""
    record: ScriptMaker[None] | None = None
    """Puts it into the timeline."""


class StepFiles:
    """What a step knows of its session's files."""

    def __init__(self, engine: "Engine", session: "Session", *, is_protected: bool) -> None:
        self._engine = engine
        self._session = session
        self._is_protected = is_protected

    async def are_slow(self) -> bool:
        """Whether the next snapshot of them is the first of a large worktree."""
        return self._is_protected and await self._engine.timeline.is_slow(self._session)

    @asynccontextmanager
    async def sampled(self, begins: str | None = None) -> AsyncIterator[StepSample]:
        """A snapshot, to be recorded inside the block; `begins` is the message of a new step.

        A new step fails with `RootBusy` if another process has locked the worktree.
        """
        if not self._is_protected:
            yield StepSample()
            return
        timeline = self._engine.timeline
        take = timeline.sampled if begins is not None else timeline.sampled_at_end
        async with take(self._session) as taken:
            yield StepSample(taken.id, partial(self._record, taken, begins))

    def _record(self, taken: "Taken", begins: str | None) -> Script[None]:
        number = yield from next_number()
        yield from self._engine.timeline.record_sample(self._session, taken, number)
        head = taken.snapshot.head if taken.snapshot else None
        if begins is not None and head is not None:
            yield from note_head(self._session.id, begins, (head.ref, head.commit))

    async def changed(self, message_id: str) -> list[str]:
        """The absolute paths of the files that a message's calls and their subtasks changed."""
        script = partial(message_changes, self._session.id, message_id)
        changes = await self._engine.store.scan(script)
        own = {
            (change.worktree, change.path)
            for change in changes
            if change.source in ("declared", "observed")
        }
        return sorted(os.path.join(root, os.fsdecode(path)) for root, path in own)

    def effects(
        self,
        part: ToolPart,
        *,
        reads: Sequence[AnyPath],
        writes: Sequence[AnyPath],
        effects: str,
        work: "FileWork | None" = None,
    ) -> Effects:
        """What to record of a call; `work` is how it writes, if kedge itself writes."""
        if effects not in EFFECTS:
            raise InvalidInput(f"effects must be one of {', '.join(EFFECTS)}", field="effects")
        if effects == "unknown" and (reads or writes):
            raise InvalidInput(
                "a tool of unknown effect cannot say what it reads or writes", field="effects"
            )
        protects = self._engine.settings.snapshots
        if work is None and (not protects or (effects == "none" and not reads and not writes)):
            return NoEffects()
        home = Home(
            session_id=part.sessionID,
            message_id=part.messageID,
            part_id=part.id,
            worktree=self._session.worktree,
        )
        if not self._is_protected:
            from kedge.engine.timeline.effects import StoredSteps, UnprotectedEffects

            if work is not None:
                return StoredSteps(self._engine.timeline, home, work.steps, is_told=protects)
            return (
                UnprotectedEffects(self._engine.clock, home)
                if writes or effects == "unknown"
                else NoEffects()
            )
        if effects == "unknown":
            from kedge.engine.timeline.observed import UnknownEffects

            return UnknownEffects(self._engine.timeline, self._session, home)
        return self._declared(home, reads, writes, work)

    def _declared(
        self,
        home: Home,
        reads: Sequence[AnyPath],
        writes: Sequence[AnyPath],
        work: "FileWork | None",
    ) -> Effects:
        from kedge.engine.timeline.declared import DeclaredEffects

        place = {"directory": self._session.info.directory, "worktree": home.worktree}
        return DeclaredEffects(
            self._engine.timeline,
            self._session,
            home,
            reads=named_paths(check_list(reads, "reads"), field="reads", **place),
            writes=named_paths(check_list(writes, "writes"), field="writes", **place),
            work=work,
        )


def together(first: ScriptMaker[T], then: ScriptMaker[None] | None) -> Script[T]:
    """Two scripts in one transaction; returns the first one's result."""
    result = yield from first()
    if then is not None:
        yield from then()
    return result


SWITCHED_OFF = "snapshots are switched off"


class UnprotectedEffects:
    """A call that may do anything to files, and is not observed."""

    def __init__(self, clock: Clock, home: Home) -> None:
        self._clock = clock
        self._home = home

    @asynccontextmanager
    async def beginning(self) -> AsyncIterator[None]:
        """Nothing is inspected."""
        yield None

    @asynccontextmanager
    async def ending(self) -> AsyncIterator[ScriptMaker[None]]:
        """Record that there was such a call, so that receipts mention it."""
        yield partial(self._end)

    def _end(self) -> Script[None]:
        number = yield from next_number()
        yield from add_changes(self._home, [_ran()], number=number, time=self._clock.now())


class StoredSteps:
    """A call that writes files in steps; the steps are stored so that recovery can clean up after a
    crash, and nothing else is recorded of the call."""

    def __init__(
        self, timeline: "Timeline", home: Home, steps: "Sequence[RootedStep]", *, is_told: bool
    ) -> None:
        """`is_told` says whether receipts mention the call."""
        self._timeline = timeline
        self._home = home
        self._steps = steps
        self._is_told = is_told
        self._locks = AsyncExitStack()

    @asynccontextmanager
    async def beginning(self) -> AsyncIterator[ScriptMaker[None]]:
        """Lock the files to be written: another process that finds them locked knows that the call
        is running."""
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
            time = self._timeline.clock.now()
            yield from add_changes(home, [_ran()], number=number, time=time)


def _ran() -> NewChange:
    return NewChange(path=b"", before=Absent(), after=Absent(), source="call", reason=SWITCHED_OFF)
