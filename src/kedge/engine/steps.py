"""Steps: one model request, what it said, and the tool calls it made."""

import asyncio
from functools import partial
from types import TracebackType
from typing import Any, TypeAlias

import msgspec

from kedge.domain import wire
from kedge.domain.errors import InvalidInput
from kedge.domain.messages import AssistantMessage, MessageModel, MessagePath, MessageTime
from kedge.domain.parts import (
    Part,
    PartTime,
    ReasoningPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    ToolPending,
    ToolRunning,
    ToolState,
    ToolTime,
)
from kedge.domain.sessions import TokenCount
from kedge.domain.todos import Todo
from kedge.engine.inputs import check_text, check_value, check_values
from kedge.engine.session import NO_TOKENS, is_large
from kedge.engine.turns import Turn, message_of
from kedge.store.verbs.interrupts import TOOL_ABORTED
from kedge.store.verbs.parts import put_part
from kedge.store.verbs.todos import put_todos
from kedge.store.verbs.turns import begin_step, finish_step

_PROGRESS = 0.5
"""Seconds between two stored states of a part that grows."""

Spoken: TypeAlias = TextPart | ReasoningPart


class Step:
    """An assistant message in the making. Set `tokens`, `cost` and `finish` before it ends."""

    def __init__(self, turn: Turn, model: MessageModel) -> None:
        self.turn = turn
        self.tokens: TokenCount = NO_TOKENS
        self.cost: float = 0
        self.finish: str | None = None
        """Why the model stopped; by default "tool-calls" if it called tools, else "stop"."""
        engine = turn.engine
        info = turn.session.info
        self.message = AssistantMessage(
            id=engine.ids.message(),
            sessionID=info.id,
            parentID=turn.message.id,
            mode=turn.agent,
            agent=turn.agent,
            modelID=model.modelID,
            providerID=model.providerID,
            variant=model.variant,
            path=MessagePath(cwd=info.directory, root=turn.session.worktree),
            cost=0,
            tokens=NO_TOKENS,
            time=MessageTime(created=engine.clock.now()),
        )
        self._called = False
        self._entered = False
        self._open = False

    async def __aenter__(self) -> "Step":
        if self._entered:
            raise InvalidInput("a step can be entered only once")
        self._entered = True
        engine = self.turn.engine
        start = StepStartPart(**self.new_part())
        script = partial(
            begin_step, self.message, start, fence=self.turn.fence, now=engine.clock.now()
        )
        self.message = await engine.store.write(script)
        self._open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # From here on a tool that was left running must not change what is closed.
        self._open = False
        if error is not None:
            await self.turn.record(error)
            return
        engine = self.turn.engine
        reason = self.finish or ("tool-calls" if self._called else "stop")
        finish = StepFinishPart(
            reason=reason, cost=self.cost, tokens=self.tokens, **self.new_part()
        )
        check_value(finish, StepFinishPart)
        self.message = msgspec.structs.replace(
            self.message, finish=reason, cost=self.cost, tokens=self.tokens
        )
        fence, now = self.turn.fence, engine.clock.now()
        script = partial(finish_step, self.message, finish, fence=fence, now=now)
        await engine.store.write(script)

    async def text(self, text: str) -> TextPart:
        """What the model said, all at once."""
        now = self.turn.engine.clock.now()
        time = PartTime(start=now, end=now)
        part = TextPart(text=check_text(text, "text"), time=time, **self.new_part())
        await self.put(part)
        return part

    def speak(self) -> "Stream":
        """What the model says, as it comes: `async with step.speak() as out: await
        out.write(...)`."""
        return Stream(self, TextPart(text="", time=self._now(), **self.new_part()))

    def think(self) -> "Stream":
        """What the model thinks, as it comes; used like `speak`."""
        return Stream(self, ReasoningPart(text="", time=self._now(), **self.new_part()))

    def tool(self, name: str, input: dict[str, Any], *, call_id: str | None = None) -> "ToolCall":
        """A tool call, to be entered with `async with` for as long as the tool works."""
        given = wire.convert(input, dict[str, Any])
        part = ToolPart(
            tool=check_text(name, "name"),
            callID=self.turn.engine.ids.make("call")
            if call_id is None
            else check_text(call_id, "call_id"),
            state=ToolPending(input={}, raw=""),
            **self.new_part(),
        )
        self._called = True
        return ToolCall(self, part, given)

    async def put(
        self, part: Part, *, progress: bool = False, after_progress: bool = False
    ) -> None:
        """Store a part of this step's message."""
        self._check_open()
        part = check_value(part, Part)
        engine = self.turn.engine
        write = engine.store.write_bulk if is_large(part) else engine.store.write
        await write(
            partial(
                put_part,
                part,
                now=engine.clock.now(),
                fence=self.turn.fence,
                progress=progress,
                after_progress=after_progress,
            )
        )

    async def set_todos(self, todos: list[Todo]) -> None:
        """Replace the session's todo list; it is remembered that this message did."""
        self._check_open()
        engine = self.turn.engine
        await engine.store.write(
            partial(
                put_todos,
                self.message.sessionID,
                check_values(todos, Todo, "todos"),
                now=engine.clock.now(),
                message_id=self.message.id,
                fence=self.turn.fence,
            )
        )

    def new_part(self) -> dict[str, Any]:
        """The ids of a new part of this step's message."""
        return {
            "id": self.turn.engine.ids.part(),
            "sessionID": self.message.sessionID,
            "messageID": self.message.id,
        }

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidInput("a step can be written to only inside its `async with` block")

    def _now(self) -> PartTime:
        return PartTime(start=self.turn.engine.clock.now())


class Stream:
    """Text that grows. Listeners hear every piece; the store keeps at most two states a second."""

    def __init__(self, step: Step, part: Spoken) -> None:
        self._step = step
        self._part = part
        self._pieces: list[str] = []
        self._length = 0
        self._saved_at = 0.0

    async def __aenter__(self) -> "Stream":
        await self._step.put(self._part)
        self._saved_at = asyncio.get_running_loop().time()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            assert self._part.time is not None
            end = self._step.turn.engine.clock.now()
            time = PartTime(start=self._part.time.start, end=end)
            part = msgspec.structs.replace(self._spoken(), time=time)
            await self._step.put(part, after_progress=True)
        elif self._pieces:
            # What was said is kept; the turn marks where it was cut off.
            await self._step.put(self._spoken(), after_progress=True)

    async def write(self, text: str) -> None:
        """The next piece."""
        piece = check_text(text, "text")
        if not piece:
            return
        part = self._part
        session = self._step.turn.session
        session.delta(part.messageID, part.id, piece, offset=self._length)
        self._pieces.append(piece)
        self._length += len(piece)
        now = asyncio.get_running_loop().time()
        if now - self._saved_at >= _PROGRESS:
            self._saved_at = now
            await self._step.put(self._spoken(), progress=True, after_progress=True)

    def _spoken(self) -> Spoken:
        return msgspec.structs.replace(self._part, text="".join(self._pieces))


class ToolCall:
    """A tool at work. Set `output`, `title` and `metadata` before it ends, or call `fail`."""

    def __init__(self, step: Step, part: ToolPart, input: dict[str, Any]) -> None:
        self._step = step
        self._part = part
        self.input = input
        self.output = ""
        self.title = ""
        self.metadata: dict[str, Any] = {}
        self._error: str | None = None
        self._start = 0
        self._saved_at = 0.0

    @property
    def part(self) -> ToolPart:
        """The call as it was last stored."""
        return self._part

    async def __aenter__(self) -> "ToolCall":
        await self._step.put(self._part)
        self._start = self._step.turn.engine.clock.now()
        await self._set(ToolRunning(input=self.input, time=PartTime(start=self._start)))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._set(self._outcome(error), after_progress=True)

    def _outcome(self, error: BaseException | None) -> ToolState:
        time = ToolTime(start=self._start, end=self._step.turn.engine.clock.now())
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
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

    def fail(self, message: str) -> None:
        """The tool could not do what it was asked; the turn goes on."""
        self._error = check_text(message, "message")

    async def progress(self, *, title: str | None = None, **metadata: Any) -> None:  # noqa: ANN401
        """Show how far the tool has come; the store keeps at most two states a second."""
        self.title = title or self.title
        self.metadata.update(metadata)
        now = asyncio.get_running_loop().time()
        if now - self._saved_at >= _PROGRESS:
            self._saved_at = now
            state = ToolRunning(
                input=self.input,
                title=self.title or None,
                metadata=self.metadata or None,
                time=PartTime(start=self._start),
            )
            await self._set(state, progress=True, after_progress=True)

    async def _set(
        self, state: ToolState, *, progress: bool = False, after_progress: bool = False
    ) -> None:
        self._part = msgspec.structs.replace(self._part, state=state)
        await self._step.put(self._part, progress=progress, after_progress=after_progress)
