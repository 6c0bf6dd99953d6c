"""One step of the loop: sends one request to the model, and starts its tool calls while it still
streams."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kedge.agent.folder_instructions import FolderInstructions
from kedge.agent.output_limit import (
    count_lines,
    first_lines,
    fits,
    left_out,
    note_limit,
    with_notes,
)
from kedge.agent.permissions import PermissionRejected
from kedge.agent.retry import Repeats, Retries
from kedge.agent.settings import AgentSettings
from kedge.agent.shell.output import ShellOutput
from kedge.agent.step_start import StepStart
from kedge.agent.subagents import Subagents
from kedge.agent.tools.call import Asker, Call
from kedge.agent.tools.tool import Output, Tool, ToolFailure
from kedge.config.values import ToolOutputConfig
from kedge.domain import wire
from kedge.domain.commands import Skill
from kedge.domain.errors import InvalidInput, KedgeError
from kedge.domain.parts import FilePart
from kedge.domain.sessions import Busy
from kedge.engine.parts import Stream, ToolCall
from kedge.engine.saved_output import output_path
from kedge.engine.validation import check_text, check_values
from kedge.model.port import (
    Finished,
    Model,
    ModelEvent,
    ModelFailure,
    ModelRequest,
    ReasoningDelta,
    ReasoningEnded,
    ReasoningStarted,
    TextDelta,
    TextEnded,
    TextStarted,
    TextWasThought,
    ThoughtWasText,
    ToolCalled,
    ToolStarted,
)


@dataclass(frozen=True, slots=True)
class LimitedOutput:
    """An output as it is stored."""

    text: str
    is_cut: bool = False
    path: Path | None = None
    """The file with the whole output, if something was left out and could be saved."""


async def limited(text: str, call: Call, *, has_notes: bool = False) -> LimitedOutput:
    """The output, or its beginning and where the rest is.

    `has_notes` is for tools that apply the limit themselves: there is room for their own notes
    about that.
    """
    if fits(text, with_notes(call.limit) if has_notes else call.limit):
        return LimitedOutput(text)
    return await asyncio.to_thread(_limited, text.encode("utf-8", "replace"), call)


def _limited(data: bytes, call: Call) -> LimitedOutput:
    kept = ShellOutput(output_path(call.engine.data, call.session.id, call.part_id))
    try:
        kept.keep()
        kept.add(data)
    finally:
        kept.close()
    shown = first_lines(data, call.limit)
    note = left_out(lines=count_lines(data) - count_lines(shown), size=len(data) - len(shown))
    text = f"{shown.decode()}\n\n{note}\n\n{kept.whereabouts}"
    return LimitedOutput(text, is_cut=True, path=kept.path if kept.has_file else None)


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a step needs."""

    model: Model
    tools: Mapping[str, Tool]
    """The tools that the model may call now."""
    asker: Asker
    settings: AgentSettings
    repeats: Repeats
    limit: ToolOutputConfig
    """How much of an output is stored and sent."""
    folders: FolderInstructions
    """The instruction files of folders."""
    subagents: Subagents
    skills: Mapping[str, Skill] = field(default_factory=dict)
    """The skills that the model may read."""


class Answering:
    """The model's answer while it is received."""

    def __init__(self, beginning: StepStart, request: ModelRequest, means: Means) -> None:
        self._beginning = beginning
        self._step = beginning.step
        self._request = request
        self._means = means
        self._stream: Stream | None = None
        self._thinks = False
        self._calls: dict[str, ToolCall] = {}
        """Announced, and not yet called."""
        self._parts: list[str] = []
        """The parts that this attempt has stored so far, without tool calls."""
        self._worked = False
        self.was_rejected = False
        """Whether the user does not want the agent to go on."""

    @property
    def goes_on(self) -> bool:
        """Whether the model needs another step for the results of its calls."""
        return self._worked and not self.was_rejected

    async def run(self) -> None:
        """Ask until there is an answer; raises `ModelFailure` when there is none."""
        turn = self._step.turn
        retries = Retries(self._means.settings, asyncio.get_running_loop().time)
        while failure := await self._attempt(retries):
            attempt = retries.attempt
            wait = retries.wait_after(failure, is_followed=self._worked)
            if wait is None or not self._worked:
                await self._spend(failure)
            if wait is None:
                raise failure
            next = turn.engine.clock.now() + round(wait * 1000)
            await turn.retrying(attempt, str(failure), next)
            await asyncio.sleep(wait)
            if self._worked:
                # The effects of the tools stay. The next request tells the model about them.
                self._step.finish = "tool-calls"
                self._step.tokens, self._step.cost = failure.tokens, failure.cost
                return
            await self._unsay()
            await turn.set_status(Busy())

    async def _attempt(self, retries: Retries) -> ModelFailure | None:
        async with _together() as tools:
            try:
                request = replace(self._request, attempt=retries.attempt)
                retries.listen()
                async with self._means.model.stream(request) as events:
                    async for event in events:
                        await self._beginning.begun()
                        await self._hear(event, tools)
                        retries.listen()
                await self._beginning.begun()
            except ModelFailure as failure:
                retries.stop()
                await self._beginning.begun()
                # The tools that were called before it go on: they have begun to change things.
                return failure
            finally:
                await self._fall_silent()
        return None

    async def _spend(self, failure: ModelFailure) -> None:
        if failure.cost or failure.tokens.total:
            await self._step.spend(failure.tokens, failure.cost)

    async def _unsay(self) -> None:
        for id in [*self._parts, *(call.part.id for call in self._calls.values())]:
            await self._step.retract(id)
        self._parts.clear()
        self._calls.clear()

    async def _hear(self, event: ModelEvent, tools: asyncio.TaskGroup) -> None:
        match event:
            case TextDelta(text=text):
                await (await self._speaking(thinks=False)).write(text)
            case ReasoningDelta(text=text):
                await (await self._speaking(thinks=True)).write(text)
            case ReasoningEnded(metadata=metadata):
                if metadata:
                    (await self._speaking(thinks=True)).note(metadata)
                await self._fall_silent()
            case TextStarted() | TextEnded() | ReasoningStarted():
                await self._fall_silent()
            case TextWasThought(text=text) | ThoughtWasText(text=text):
                await self._fall_silent()
                await self._step.retract(self._parts.pop())
                thinks = isinstance(event, TextWasThought)
                await (await self._speaking(thinks=thinks)).write(text)
                await self._fall_silent()
            case ToolStarted():
                await self._fall_silent()
                await self._announced(event)
            case ToolCalled():
                call = self._calls.pop(event.call_id, None) or await self._announced(event)
                self._calls.pop(event.call_id, None)
                self._worked = True
                tools.create_task(self._work(call, event))
            case Finished():
                self._step.finish = event.reason
                self._step.tokens = event.tokens
                self._step.cost = event.cost

    async def _speaking(self, *, thinks: bool) -> Stream:
        """The stream of text or reasoning; it is opened with the first piece."""
        if self._stream is None or self._thinks is not thinks:
            await self._fall_silent()
            stream = self._step.think() if thinks else self._step.speak()
            self._parts.append(stream.part_id)
            self._stream, self._thinks = await stream.__aenter__(), thinks
        return self._stream

    async def _fall_silent(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.__aexit__(None, None, None)

    async def _announced(self, event: ToolStarted | ToolCalled) -> ToolCall:
        call = self._step.tool(self._known(event.name), {}, call_id=event.call_id)
        self._calls[event.call_id] = call
        await call.announce()
        return call

    def _known(self, name: str) -> str:
        """The name of the tool that the model means: some write `Read` for `read`."""
        if name in self._means.tools:
            return name
        return next((each for each in self._means.tools if each.lower() == name.lower()), name)

    async def _work(self, call: ToolCall, event: ToolCalled) -> None:
        problem = _filled(call, event)
        means = self._means
        seen = Call(
            self._step,
            call,
            means.asker,
            limit=means.limit,
            folders=means.folders,
            skills=means.skills,
            subagents=means.subagents,
        )
        async with call:
            try:
                if problem is not None:
                    raise ToolFailure(problem)
                await store_output(call, await self._do(seen, event), seen)
            except PermissionRejected as error:
                self.was_rejected = True
                call.fail(str(error))
            except (ToolFailure, KedgeError) as error:
                await store_failure(call, str(error), seen)
            except Exception as error:  # noqa: BLE001 - a tool may fail in any way; the turn goes on
                _log.exception("the tool %s failed", event.name)
                await store_failure(call, f"{type(error).__name__}: {error}", seen)

    async def _do(self, call: Call, event: ToolCalled) -> Output:
        means = self._means
        tool = means.tools.get(self._known(event.name))
        if tool is None and self._request.tool_choice == "none":
            raise ToolFailure("This was not done: it is the last step, in which no tool is called.")
        if tool is None:
            known = ", ".join(sorted(means.tools)) or "none"
            raise ToolFailure(f"There is no tool {event.name!r} here. There are: {known}.")
        assert event.input is not None
        repeated = means.repeats.count(event.name, event.input)
        is_limited = bool(means.settings.repeats) and not tool.limits_itself
        if is_limited and repeated >= means.settings.repeats:
            metadata: dict[str, Any] = {"tool": event.name, "input": dict(event.input)}
            await call.ask("doom_loop", [event.name], always=[event.name], metadata=metadata)
        return await tool(call, event.input)


async def store_output(call: ToolCall, output: Output, seen: Call) -> None:
    """Set what a call ends with."""
    # Checked here: an output that cannot be stored is an error of the tool.
    text, title = check_text(output.text, "text"), check_text(output.title, "title")
    metadata = wire.convert(dict(output.metadata), dict[str, Any])
    attachments = check_values(output.attachments, FilePart, "attachments")
    kept = await limited(text, seen, has_notes="truncated" in metadata)
    call.output, call.title, call.attachments = kept.text, title, attachments
    call.metadata = {"truncated": False, **metadata, **note_limit(kept.text, seen.limit)}
    if kept.is_cut:
        call.metadata["truncated"] = True
    if kept.path is not None:
        call.metadata["outputPath"] = str(kept.path)


async def store_failure(call: ToolCall, why: str, seen: Call) -> None:
    """An error is sent to the model as an output is, so the same limit applies."""
    call.fail((await limited(why, seen)).text)


def _filled(call: ToolCall, event: ToolCalled) -> str | None:
    """Set the input of a call; return what is wrong with it, if anything is."""
    if event.metadata:
        call.note(event.metadata)
    if event.input is None:
        return f"The arguments of {event.name} are no JSON object. Call it again with one."
    try:
        call.fill(event.input)
    except InvalidInput as error:
        return f"The arguments of {event.name} cannot be used: {error}"
    return None


@asynccontextmanager
async def _together() -> AsyncIterator[asyncio.TaskGroup]:
    """Tasks that end with the block; of several errors the first is raised."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
