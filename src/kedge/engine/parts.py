"""Parts that grow while a step runs: streamed text, and running tool calls."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from kedge._async import to_the_end
from kedge.domain import wire
from kedge.domain.errors import EngineClosed, InvalidInput, StoreError
from kedge.domain.parts import (
    FilePart,
    PartTime,
    ReasoningPart,
    TextPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    ToolRunning,
    ToolState,
    ToolTime,
)
from kedge.engine.timeline.effects import Effects, NoEffects
from kedge.engine.turns import CUT_OFF, message_of
from kedge.engine.validation import check_text
from kedge.engine.worktree_paths import AnyPath
from kedge.store.queries.interrupts import TOOL_ABORTED, interrupted
from kedge.store.transaction import ScriptMaker

if TYPE_CHECKING:
    from kedge.engine.steps import Step
    from kedge.snapshot.files.steps import FileWork

_PROGRESS = 0.5
"""Seconds between two stored states of a growing part."""

_SHARE = 10
"""After storing a state took t seconds, the next one is stored after this many times t."""

Spoken: TypeAlias = TextPart | ReasoningPart


class Growing:
    """A part that is open while its block runs; after that it never changes."""

    def __init__(self, step: "Step") -> None:
        self._step = step
        self._entered = False
        self._open = False
        self._saved_at = 0.0
        self._pause = _PROGRESS

    def _check_open(self) -> None:
        """Raise unless the part may still change."""
        if not self._open:
            raise InvalidInput("this can be used only inside its `async with` block")

    def _latest(self) -> Spoken | ToolPart:
        """The current state of the part."""
        raise AssertionError("each kind of part has its own")

    async def _leave_behind(self) -> None:
        """End the part because its step ended and its block has not: it keeps its current state."""
        self._open = False
        now = self._step.turn.engine.clock.now()
        await self._step.put(interrupted(self._latest(), now), after_progress=True)

    async def _enter(self) -> None:
        if self._entered:
            raise InvalidInput("a block can be entered only once")
        self._entered = self._open = True
        part = self._latest()
        self._step.growing[part.id] = self
        try:
            await self._step.put(part)
        except Exception:
            # Not stored. A cancellation does not say so: the step closes the part then.
            self._step.growing.pop(part.id, None)
            self._open = False
            raise
        self._saved_at = monotonic()

    async def _grow(self) -> bool:
        """Store the current state of the part if enough time has passed; return whether it has."""
        began = monotonic()
        if began - self._saved_at < self._pause:
            return False
        await self._step.put(self._latest(), of=self, progress=True, after_progress=True)
        self._saved_at = monotonic()
        # A state that takes long to store is stored less often, so that it does not delay the
        # others.
        self._pause = max(_PROGRESS, _SHARE * (self._saved_at - began))
        return True

    async def _give_up(self) -> None:
        """Release what the part holds because its step failed before the part's block ended."""

    async def _close(self, part: Spoken | ToolPart, also: ScriptMaker[None] | None = None) -> None:
        if self._step.growing.pop(part.id, None) is None:
            raise InvalidInput(
                "the step ended before this did, and closed it as interrupted; end it inside its"
                " step's `async with` block"
            )
        self._open = False
        await self._step.put(part, after_progress=True, also=also)


class Stream(Growing):
    """Text that grows. Subscribers get every piece; all but the last 50 ms of what they got is
    stored. Other processes see at most two states a second."""

    def __init__(self, step: "Step", part: Spoken) -> None:
        super().__init__(step)
        self._part = part
        self._pieces: list[str] = []
        self._length = 0

    @property
    def part_id(self) -> str:
        """The part that the text belongs to."""
        return self._part.id

    async def __aenter__(self) -> "Stream":
        await self._enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Text that was streamed before an error is kept. It is also stored if this is interrupted,
        # because subscribers have seen it.
        await to_the_end(self._close(self._ended()))

    async def write(self, text: str) -> None:
        """Append a piece of text."""
        self._check_open()
        piece = check_text(text, "text")
        if not piece:
            return
        part, turn, offset = self._part, self._step.turn, self._length
        self._pieces.append(piece)
        self._length += len(piece)
        await turn.engine.pieces.add(turn.fence, part.id, offset, piece)
        self._check_open()
        turn.session.delta(part.messageID, part.id, piece, offset=offset)
        await self._grow()

    def note(self, metadata: Mapping[str, Any]) -> None:
        """Metadata to store with the text, such as a provider's signature of reasoning."""
        self._check_open()
        self._part = msgspec.structs.replace(
            self._part, metadata=wire.convert(dict(metadata), dict[str, Any])
        )

    async def _close(self, part: Spoken | ToolPart, also: ScriptMaker[None] | None = None) -> None:
        await self._forget_pieces()
        await super()._close(part, also)

    async def _leave_behind(self) -> None:
        await self._forget_pieces()
        await super()._leave_behind()

    async def _forget_pieces(self) -> None:
        """Drop pending pieces: the whole text is about to be stored, and no piece may follow it."""
        self._open = False
        await self._step.turn.engine.pieces.forget(self._part.id)

    async def _give_up(self) -> None:
        self._open = False
        with suppress(StoreError, EngineClosed):
            await self._step.turn.engine.pieces.store()

    def _latest(self) -> Spoken:
        return msgspec.structs.replace(self._part, text="".join(self._pieces))

    def _ended(self) -> Spoken:
        assert self._part.time is not None
        end = self._step.turn.engine.clock.now()
        time = PartTime(start=self._part.time.start, end=end)
        return msgspec.structs.replace(self._latest(), time=time)


class ToolCall(Growing):
    """A running tool call. Set `output`, `title` and `metadata` before it ends, or call `fail`."""

    def __init__(
        self, step: "Step", part: ToolPart, input: dict[str, Any], effects: Effects
    ) -> None:
        super().__init__(step)
        self._part = part
        self._effects = effects
        self.input = input
        self.output = ""
        self.title = ""
        self.metadata: dict[str, Any] = {}
        self.attachments: list[FilePart] = []
        self._error: str | None = None
        self._start = 0
        self._began = False

    @property
    def part(self) -> ToolPart:
        """The call as it was last stored."""
        return self._part

    async def announce(self) -> None:
        """Show that the model is about to call the tool, before its input is known."""
        await self._enter()

    def note(self, metadata: Mapping[str, Any]) -> None:
        """Metadata to store with the call beside its input and output."""
        self._check_open()
        noted = wire.convert(dict(metadata), dict[str, Any])
        self._part = msgspec.structs.replace(self._part, metadata=noted)

    def fill(self, input: Mapping[str, Any]) -> None:
        """Set the input of the call, if it was not known when the call was announced."""
        if self._began:
            raise InvalidInput("the tool is at work already")
        self.input = wire.convert(dict(input), dict[str, Any])

    async def __aenter__(self) -> "ToolCall":
        if self._began or not self._entered:
            await self._enter()
        self._began = True
        self._saved_at = 0.0
        self._start = self._step.turn.engine.clock.now()
        running = ToolRunning(input=self.input, time=PartTime(start=self._start))
        try:
            async with self._effects.beginning() as also:
                await self._step.put(self._in_state(running), of=self, also=also)
        except Exception as error:
            # The tool must not begin; the model gets the reason.
            await self._close(self._in_state(self._outcome(error)))
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await to_the_end(self._end(error))

    async def _end(self, error: BaseException | None) -> None:
        async with self._effects.ending() as also:
            await self._close(self._in_state(self._outcome(error)), also)

    async def _leave_behind(self) -> None:
        self._open = False
        now = self._step.turn.engine.clock.now()
        async with self._effects.ending() as also:
            await self._step.put(interrupted(self._latest(), now), after_progress=True, also=also)

    async def _give_up(self) -> None:
        async with self._effects.ending() as also:
            if also is not None:
                await self._step.turn._write_last(also)

    async def declare(
        self,
        *,
        reads: Sequence[AnyPath] = (),
        writes: Sequence[AnyPath] = (),
        effects: Literal["none", "unknown"] = "none",
        work: "FileWork | None" = None,
    ) -> None:
        """Declare what the tool does to files, if that is known only while it works; see
        `Step.tool`. Can be called once.

        `work` is how kedge's own tools write files: its steps are stored when this returns, so that
        recovery can clean up after a crash.
        """
        self._check_open()
        if not isinstance(self._effects, NoEffects):
            raise InvalidInput("what a call does to files can be declared only once")
        known = self._step._effects(
            self._part, reads=reads, writes=writes, effects=effects, work=work
        )
        async with known.beginning() as also:
            if also is not None:
                await self._step.turn._write_fenced(also, durable=work is not None)
            self._effects = known

    def fail(self, message: str) -> None:
        """Report that the tool failed; the turn goes on."""
        self._error = check_text(message, "message")

    async def show(self, *, title: str | None = None, **metadata: Any) -> None:  # noqa: ANN401
        """Show at once what clients must not miss of the running tool."""
        self._tell(title, metadata)
        await self._step.put(self._part, of=self, after_progress=True)
        self._saved_at = monotonic()

    def keep(self, **metadata: Any) -> None:  # noqa: ANN401
        """Metadata to end with, also if the tool fails."""
        self._check_open()
        self.metadata.update(metadata)

    async def progress(self, *, title: str | None = None, **metadata: Any) -> bool:  # noqa: ANN401
        """Show the progress of the tool; at most two states a second are stored.

        Returns whether this one was. If not, it is shown with the next one.
        """
        self._tell(title, metadata)
        return await self._grow()

    def _tell(self, title: str | None, metadata: Mapping[str, Any]) -> None:
        self._check_open()
        self.title = title or self.title
        self.metadata.update(metadata)
        state = ToolRunning(
            input=self.input,
            title=self.title or None,
            metadata=dict(self.metadata) or None,
            time=PartTime(start=self._start),
        )
        self._in_state(state)

    def _latest(self) -> ToolPart:
        return self._part

    def _in_state(self, state: ToolState) -> ToolPart:
        self._part = msgspec.structs.replace(self._part, state=state)
        return self._part

    def _outcome(self, error: BaseException | None) -> ToolState:
        time = ToolTime(start=self._start, end=self._step.turn.engine.clock.now())
        if isinstance(error, CUT_OFF):
            metadata = {**self.metadata, "interrupted": True}
            return ToolError(input=self.input, error=TOOL_ABORTED, metadata=metadata, time=time)
        failed = self._error
        if failed is None and error is not None:
            failed = message_of(error)
        if failed is not None:
            kept = self.metadata or None
            return ToolError(input=self.input, error=failed, metadata=kept, time=time)
        return ToolCompleted(
            input=self.input,
            output=check_text(self.output, "output"),
            title=check_text(self.title, "title"),
            metadata=self.metadata,
            time=time,
            attachments=self.attachments or None,
        )
