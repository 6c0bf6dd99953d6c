"""Parts that grow while a step runs: text that is spoken, a tool that works."""

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from kedge.domain.errors import InvalidInput
from kedge.domain.parts import (
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
from kedge.engine.inputs import check_text
from kedge.engine.turns import CUT_OFF, message_of
from kedge.store.verbs.interrupts import TOOL_ABORTED, interrupted

if TYPE_CHECKING:
    from kedge.engine.steps import Step

_PROGRESS = 0.5
"""Seconds between two stored states of a part that grows."""

Spoken: TypeAlias = TextPart | ReasoningPart


class Growing:
    """A part that is open from the beginning of its block to the end; then it never changes."""

    def __init__(self, step: "Step") -> None:
        self._step = step
        self._entered = False
        self._open = False
        self._saved_at = 0.0

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
        self._saved_at = asyncio.get_running_loop().time()

    async def _grow(self, part: Spoken | ToolPart) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._saved_at >= _PROGRESS:
            self._saved_at = now
            await self._step.put(part, of=self, progress=True, after_progress=True)

    async def _close(self, part: Spoken | ToolPart) -> None:
        if self._step.growing.pop(part.id, None) is None:
            raise InvalidInput(
                "the step ended before this did, and closed it as interrupted; end it inside its"
                " step's `async with` block"
            )
        self._open = False
        await self._step.put(part, after_progress=True)


class Stream(Growing):
    """Text that grows. Listeners hear every piece; the store keeps at most two states a second."""

    def __init__(self, step: "Step", part: Spoken) -> None:
        super().__init__(step)
        self._part = part
        self._pieces: list[str] = []
        self._length = 0

    async def __aenter__(self) -> "Stream":
        await self._enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # What was said before an error is kept, and ends there.
        await self._close(self._ended())

    async def write(self, text: str) -> None:
        """The next piece."""
        self._check_open()
        piece = check_text(text, "text")
        if not piece:
            return
        part = self._part
        session = self._step.turn.session
        session.delta(part.messageID, part.id, piece, offset=self._length)
        self._pieces.append(piece)
        self._length += len(piece)
        await self._grow(self._latest())

    def _latest(self) -> Spoken:
        return msgspec.structs.replace(self._part, text="".join(self._pieces))

    def _ended(self) -> Spoken:
        assert self._part.time is not None
        end = self._step.turn.engine.clock.now()
        time = PartTime(start=self._part.time.start, end=end)
        return msgspec.structs.replace(self._latest(), time=time)


class ToolCall(Growing):
    """A tool at work. Set `output`, `title` and `metadata` before it ends, or call `fail`."""

    def __init__(self, step: "Step", part: ToolPart, input: dict[str, Any]) -> None:
        super().__init__(step)
        self._part = part
        self.input = input
        self.output = ""
        self.title = ""
        self.metadata: dict[str, Any] = {}
        self._error: str | None = None
        self._start = 0

    @property
    def part(self) -> ToolPart:
        """The call as it was last stored."""
        return self._part

    async def __aenter__(self) -> "ToolCall":
        await self._enter()
        self._saved_at = 0.0
        self._start = self._step.turn.engine.clock.now()
        running = ToolRunning(input=self.input, time=PartTime(start=self._start))
        await self._step.put(self._in_state(running), of=self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close(self._in_state(self._outcome(error)))

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
        await self._grow(self._in_state(state))

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
        )
