"""Steps: one model request, its answer, and the tool calls it made."""

from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kedge._failpoints import reach
from kedge.domain import wire
from kedge.domain.errors import InvalidInput, RootBusy
from kedge.domain.messages import AssistantMessage, MessageModel, MessagePath, MessageTime
from kedge.domain.parts import (
    Part,
    PartTime,
    PatchPart,
    ReasoningPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolPart,
    ToolPending,
)
from kedge.domain.sessions import NO_TOKENS, Todo, TokenCount
from kedge.domain.wire_errors import Failure
from kedge.engine.parts import Growing, Stream, ToolCall
from kedge.engine.session import is_large
from kedge.engine.timeline.effects import Effects, StepFiles, StepSample, together
from kedge.engine.turns import Turn
from kedge.engine.validation import check_text, check_value, check_values
from kedge.engine.worktree_paths import AnyPath
from kedge.store.queries.parts import put_part, remove_part
from kedge.store.queries.todos import put_todos
from kedge.store.queries.turns import begin_step, finish_step, spend_in_step
from kedge.store.transaction import Script, ScriptMaker

if TYPE_CHECKING:
    from kedge.snapshot.files.steps import FileWork


class Step:
    """An assistant message being written. Set `tokens`, `cost`, `finish`, and `structured` or
    `error`, before it ends."""

    def __init__(self, turn: Turn, model: MessageModel, agent: str) -> None:
        self.turn = turn
        self.tokens: TokenCount = NO_TOKENS
        self.cost: float = 0
        self.finish: str | None = None
        """Why the model stopped; by default "tool-calls" if it called tools, else "stop"."""
        self.structured: Any = None
        """The answer as JSON, if the prompt asked for it in a format."""
        self.error: Failure | None = None
        """What is wrong with the answer, although the step itself went well."""
        engine = turn.engine
        info = turn.session.info
        self.message = AssistantMessage(
            id=engine.ids.message(),
            sessionID=info.id,
            parentID=turn.message.id,
            mode=agent,
            agent=agent,
            modelID=model.modelID,
            providerID=model.providerID,
            variant=model.variant,
            path=MessagePath(cwd=info.directory, root=turn.session.worktree),
            cost=0,
            tokens=NO_TOKENS,
            time=MessageTime(created=engine.clock.now()),
        )
        self.growing: dict[str, Growing] = {}
        """The open parts, by id."""
        self._files = StepFiles(turn.engine, turn.session, is_protected=turn.is_protected)
        self._snapshot: str | None = None
        """The snapshot at the beginning of the step."""
        self._called = False
        self._entered = False
        self._open = False

    async def begins_slowly(self) -> bool:
        """Whether the step begins with the first snapshot of a large worktree."""
        return await self._files.are_slow()

    async def __aenter__(self) -> "Step":
        if self._entered:
            raise InvalidInput("a step can be entered only once")
        self._entered = True
        try:
            async with self._files.sampled(begins=self.message.id) as taken:
                await self._begin(taken)
        except RootBusy as error:
            # The prompt still gets an answer, which says why nothing is done.
            await self._begin(StepSample())
            await self.turn.record(error)
            raise
        self._snapshot = taken.id
        self._open = True
        return self

    async def _begin(self, taken: StepSample) -> None:
        start = StepStartPart(snapshot=taken.id, **self.new_part())
        begin = self._beginning(start)
        self.message = await self.turn._write(partial(together, begin, taken.record))

    def _beginning(self, start: StepStartPart) -> ScriptMaker[AssistantMessage]:
        """What to store at the beginning."""
        now = self.turn.engine.clock.now()
        return partial(begin_step, self.message, start, fence=self.turn.fence, now=now)

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
        # From here on a tool that is still running must not change the closed parts.
        self._open = False
        if error is not None:
            for each in growing.values():
                await each._give_up()
            await self.turn.record(error)
            return
        async with self._files.sampled() as taken:
            await self._finish(taken)

    async def _finish(self, taken: StepSample) -> None:
        engine = self.turn.engine
        reason = self.finish or ("tool-calls" if self._called else "stop")
        finish = StepFinishPart(
            reason=reason,
            snapshot=taken.id,
            cost=self.cost,
            tokens=self.tokens,
            **self.new_part(),
        )
        check_value(finish, StepFinishPart)
        patch, summary = await self._patch(), await self.turn._summary()
        cost = self._cost_with(self.cost)
        self.message = msgspec.structs.replace(
            self.message,
            finish=reason,
            cost=cost,
            tokens=self.tokens,
            structured=wire.convert(self.structured, Any),
            error=None if self.error is None else check_value(self.error, Failure),
        )
        fence, now = self.turn.fence, engine.clock.now()
        end = partial(finish_step, self.message, finish, patch, summary, fence=fence, now=now)
        await self.turn._write(partial(together, self._ending(end), taken.record))
        reach("step-ended")

    def _ending(self, end: ScriptMaker[None]) -> ScriptMaker[None]:
        """What to store at the end."""
        return end

    async def spend(self, tokens: TokenCount, cost: float) -> None:
        """Record the tokens and cost of a failed model request, which is repeated or given up."""
        self._check_open()
        spent = StepFinishPart(
            reason="error", snapshot=self._snapshot, cost=cost, tokens=tokens, **self.new_part()
        )
        check_value(spent, StepFinishPart)
        # The tokens of the last request: clients compute from them how full the context is.
        self.message = msgspec.structs.replace(
            self.message, cost=self._cost_with(cost), tokens=tokens
        )
        fence, now = self.turn.fence, self.turn.engine.clock.now()
        await self.turn._write(partial(spend_in_step, self.message, spent, fence=fence, now=now))

    def _cost_with(self, cost: float) -> float:
        # Remove the rounding errors of adding floats.
        return round(self.message.cost + cost, 12)

    async def _patch(self) -> PatchPart | None:
        """The files that this step changed; None without changes or without a snapshot to name."""
        if self._snapshot is None:
            return None
        files = await self._files.changed(self.message.id)
        return PatchPart(hash=self._snapshot, files=files, **self.new_part()) if files else None

    async def text(self, text: str) -> TextPart:
        """Add the model's text as a whole."""
        now = self.turn.engine.clock.now()
        time = PartTime(start=now, end=now)
        part = TextPart(text=check_text(text, "text"), time=time, **self.new_part())
        await self.put(part)
        return part

    def speak(self) -> "Stream":
        """Stream the model's text: `async with step.speak() as out: await out.write(...)`."""
        return Stream(self, TextPart(text="", time=self._now(), **self.new_part()))

    def think(self) -> "Stream":
        """Stream the model's reasoning; used like `speak`."""
        return Stream(self, ReasoningPart(text="", time=self._now(), **self.new_part()))

    def tool(
        self,
        name: str,
        input: dict[str, Any],
        *,
        call_id: str | None = None,
        reads: Sequence[AnyPath] = (),
        writes: Sequence[AnyPath] = (),
        effects: Literal["none", "unknown"] = "none",
    ) -> "ToolCall":
        """A tool call, to be entered with `async with` while the tool works.

        So that the call can be undone, it declares which files it `writes`. It locks them, and
        fails with `FileChanged` if the session does not know their current content. The session
        counts the files that it `reads` as known. The changes of a tool with `effects="unknown"`,
        such as a shell, are found by comparing the worktree before and after. Paths are relative to
        the session's directory.
        """
        given = wire.convert(input, dict[str, Any])
        part = ToolPart(
            tool=check_text(name, "name"),
            callID=self.turn.engine.ids.make("call")
            if call_id is None
            else check_text(call_id, "call_id"),
            state=ToolPending(input={}, raw=""),
            **self.new_part(),
        )
        known = self._effects(part, reads=reads, writes=writes, effects=effects)
        self._called = True
        return ToolCall(self, part, given, known)

    def _effects(
        self,
        part: ToolPart,
        *,
        reads: Sequence[AnyPath],
        writes: Sequence[AnyPath],
        effects: Literal["none", "unknown"],
        work: "FileWork | None" = None,
    ) -> Effects:
        """What to record of a call of this step beside its part."""
        return self._files.effects(part, reads=reads, writes=writes, effects=effects, work=work)

    async def put(
        self,
        part: Part,
        *,
        of: Growing | None = None,
        progress: bool = False,
        after_progress: bool = False,
        also: ScriptMaker[None] | None = None,
    ) -> None:
        """Store a part of this step's message; `of` is its handle if the part is still open.

        `also` runs in the same transaction.
        """
        self._check_open()
        part = check_value(part, Part)
        now = self.turn.engine.clock.now()
        fence = self.turn.fence

        def script() -> Script[None]:
            # Checked when the script runs: the step may have ended while other scripts were
            # writing.
            self._check_open()
            if of is not None:
                of._check_open()
            put = partial(
                put_part,
                part,
                now=now,
                fence=fence,
                progress=progress,
                after_progress=after_progress,
            )
            return together(put, also)

        await self.turn._write(script, large=is_large(part))

    async def retract(self, part_id: str) -> None:
        """Remove a part that the model began and will send again."""
        self._check_open()
        self.growing.pop(part_id, None)
        await self.turn.engine.pieces.forget(part_id)
        message = self.message
        await self.turn._write(
            partial(remove_part, message.sessionID, message.id, part_id, fence=self.turn.fence)
        )

    async def set_todos(self, todos: list[Todo]) -> None:
        """Replace the session's todo list, and record that this message did it."""
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
