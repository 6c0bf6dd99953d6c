"""Steps: one model request, what it said, and the tool calls it made."""

from functools import partial
from types import TracebackType
from typing import Any

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
    ToolPart,
    ToolPending,
)
from kedge.domain.sessions import TokenCount
from kedge.domain.todos import Todo
from kedge.engine.growing import Growing, Stream, ToolCall
from kedge.engine.inputs import check_text, check_value, check_values
from kedge.engine.session import NO_TOKENS, is_large
from kedge.engine.turns import Turn
from kedge.store.script import Script
from kedge.store.verbs.parts import put_part
from kedge.store.verbs.todos import put_todos
from kedge.store.verbs.turns import begin_step, finish_step


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
        self.growing: dict[str, Growing] = {}
        """The parts that are open."""
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
        self.message = await self.turn._write(script)
        self._open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        growing, self.growing = self.growing, {}
        if error is None:
            for each in growing.values():
                await each._leave_behind()
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
        await self.turn._write(script)

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
        self,
        part: Part,
        *,
        of: Growing | None = None,
        progress: bool = False,
        after_progress: bool = False,
    ) -> None:
        """Store a part of this step's message; one that still grows says `of` what."""
        self._check_open()
        part = check_value(part, Part)
        now = self.turn.engine.clock.now()
        fence = self.turn.fence

        def script() -> Script[None]:
            # Looked at when its turn has come: the step may have ended while others wrote.
            self._check_open()
            if of is not None:
                of._check_open()
            return put_part(
                part, now=now, fence=fence, progress=progress, after_progress=after_progress
            )

        await self.turn._write(script, large=is_large(part))

    async def set_todos(self, todos: list[Todo]) -> None:
        """Replace the session's todo list; it is remembered that this message did."""
        self._check_open()
        await self.turn._write(
            partial(
                put_todos,
                self.message.sessionID,
                check_values(todos, Todo, "todos"),
                now=self.turn.engine.clock.now(),
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
