"""The files of a step: its two snapshots, what it changed, and what its calls may do to them.

Nothing of the snapshot package is imported for an engine that protects no files.
"""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kedge.domain.errors import InvalidInput
from kedge.domain.parts import ToolPart
from kedge.engine.inputs import check_list
from kedge.engine.timeline.effects import Effects, NoEffects
from kedge.engine.timeline.paths import AnyPath, named_paths
from kedge.store.script import Script, ScriptMaker
from kedge.store.verbs.changes import Home, message_changes
from kedge.store.verbs.heads import note_head
from kedge.store.verbs.timeline import next_number

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.session import Session
    from kedge.engine.timeline.timeline import Taken
    from kedge.snapshot.files.steps import FileWork

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
        """A snapshot, to be recorded inside of the block; `begins` is the message of a new step.

        A step does not begin, with `RootBusy`, where another process has the worktree.
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
        """The files, by absolute path, that a message's calls and their subtasks changed."""
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
        """What is to be recorded of a call; `work` is how it writes, if it is kedge that does."""
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
            from kedge.engine.timeline.unprotected import StoredSteps, UnprotectedEffects

            if work is not None:
                return StoredSteps(self._engine.timeline, home, work.steps, is_told=protects)
            return UnprotectedEffects(home) if writes or effects == "unknown" else NoEffects()
        if effects == "unknown":
            from kedge.engine.timeline.unknown import UnknownEffects

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
    """Two scripts in one transaction; the first one's result."""
    result = yield from first()
    if then is not None:
        yield from then()
    return result
