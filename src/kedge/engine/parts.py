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
"""Seconds between two stored states of a part that grows."""

_SHARE = 10
"""How many times as long as it took to store a state nothing is stored after it."""

Spoken: TypeAlias = TextPart | ReasoningPart


class Growing:
    """A part that is open from the beginning of its block to the end; then it never changes."""

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
        """The part as far as it has come."""
        raise AssertionError("each kind of part has its own")

    async def _leave_behind(self) -> None:
        """The step ends, and nobody has ended this: it is over where it stands."""
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
            # Not stored. A cancellation tells nothing of that: then the step looks after it.
            self._step.growing.pop(part.id, None)
            self._open = False
            raise
        self._saved_at = monotonic()

    async def _grow(self) -> None:
        """Store how far the part has come, if it is time for that."""
        began = monotonic()
        if began - self._saved_at >= self._pause:
            await self._step.put(self._latest(), of=self, progress=True, after_progress=True)
            self._saved_at = monotonic()
            # What takes long to store is stored less often, so that it does not hold up the rest.
            self._pause = max(_PROGRESS, _SHARE * (self._saved_at - began))

    async def _give_up(self) -> None:
        """The step failed, and nobody has ended this: let go of what it holds."""

    async def _close(self, part: Spoken | ToolPart, also: ScriptMaker[None] | None = None) -> None:
        if self._step.growing.pop(part.id, None) is None:
            raise InvalidInput(
                "the step ended before this did, and closed it as interrupted; end it inside its"
                " step's `async with` block"
            )
        self._open = False
        await self._step.put(part, after_progress=True, also=also)


class Stream(Growing):
    """Text that grows. Listeners hear every piece; of what they heard, the store has all but the
    last 50 ms. Other processes hear at most two states a second."""

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
        # What was said before an error is kept, and ends there; also when the end is interrupted,
        # because listeners have heard it.
        await to_the_end(self._close(self._ended()))

    async def write(self, text: str) -> None:
        """The next piece."""
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
        """Something to be kept with the text: a provider's signature of a thought, say."""
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
        """The whole is about to be stored: nothing of it may be stored after that."""
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
    """A tool at work. Set `output`, `title` and `metadata` before it ends, or call `fail`."""

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
        """Show that the model is about to call the tool, before it is known with what."""
        await self._enter()

    def note(self, metadata: Mapping[str, Any]) -> None:
        """Something to be kept with the call that is neither its input nor its outcome."""
        self._check_open()
        noted = wire.convert(dict(metadata), dict[str, Any])
        self._part = msgspec.structs.replace(self._part, metadata=noted)

    def fill(self, input: Mapping[str, Any]) -> None:
        """What the model calls the tool with, if that was not known when it was announced."""
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
            # It may not begin; the model has to hear why.
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
        """Say what the tool does to files when that is known only while it works; see
        `Step.tool`. It can be said once.

        `work` is how kedge's own tools write them: its steps are on the disk when this returns, for
        whoever has to put in order what a crash leaves.
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
        """The tool could not do what it was asked; the turn goes on."""
        self._error = check_text(message, "message")

    async def progress(self, *, title: str | None = None, **metadata: Any) -> None:  # noqa: ANN401
        """Show how far the tool has come; the store keeps at most two states a second."""
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
        await self._grow()

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
