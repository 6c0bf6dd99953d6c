"""The offline model: answers a request, event by event."""

import asyncio
import re
import shlex
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from kedge.domain import wire_errors
from kedge.domain.messages import ANSWER_TOOL
from kedge.domain.providers import ModelInfo
from kedge.domain.sessions import CacheCount, TokenCount
from kedge.model.offline import commands as c
from kedge.model.offline import replies
from kedge.model.offline.commands import TOO_LONG, fault, offline_info
from kedge.model.offline.script import Next, next_of, prompt_of_title
from kedge.model.port import (
    AssistantTurn,
    Finished,
    Media,
    ModelEvent,
    ModelFailure,
    ModelRequest,
    Reasoning,
    ReasoningDelta,
    ReasoningEnded,
    ReasoningStarted,
    Text,
    TextDelta,
    TextEnded,
    TextStarted,
    ToolCalled,
    ToolResult,
    ToolStarted,
    ToolUse,
    UserTurn,
)

_HEADER_LENGTH = 30
_TASK = re.compile(r'(?:<task id="|task_id: )(ses_\w+)')


@dataclass(frozen=True, slots=True)
class Made:
    """A call as a model makes it; `input` is None if the raw text is not a JSON object."""

    tool: str
    input: Mapping[str, Any] | None
    raw: str


def made(command: c.Offered | c.CallTool, tools: Collection[str], round: int | None) -> Made:
    """The call for a command; in a repeated command, {n} becomes the number of the round."""
    if isinstance(command, c.CallTool):
        raw = command.raw if round is None else command.raw.replace("{n}", str(round))
        return Made(command.name, _object(raw), raw)
    tool, input = _call(command, tools)
    if round is not None:
        input = _numbered(input, str(round))
    return Made(tool, input, msgspec.json.encode(input).decode())


def _object(raw: str) -> Mapping[str, Any] | None:
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _numbered(node: Any, round: str) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(node, str):
        return node.replace("{n}", round)
    if isinstance(node, dict):
        return {key: _numbered(value, round) for key, value in node.items()}
    return [_numbered(each, round) for each in node] if isinstance(node, list) else node


def _call(command: c.Offered, tools: Collection[str]) -> tuple[str, dict[str, Any]]:  # noqa: C901 - one case for each command
    match command:
        case c.Write(file, content):
            return "write", {"content": content, "filePath": file}
        case c.EditFile(file, old, new, everywhere):
            every = {"replaceAll": True} if everywhere else {}
            return "edit", {"filePath": file, "oldString": old, "newString": new, **every}
        case c.Delete(file):
            return _deletion(file, tools)
        case c.Read(file, offset, limit):
            return "read", _given(filePath=file, offset=offset, limit=limit)
        case c.Bash(text):
            return "bash", {"command": text}
        case c.Glob(pattern, path):
            return "glob", _given(pattern=pattern, path=path)
        case c.Grep(pattern, path, include):
            return "grep", _given(pattern=pattern, path=path, include=include)
        case c.ReadSkill(name):
            return "skill", {"name": name}
        case c.ApplyPatch(text):
            return "apply_patch", {"patchText": text}
        case c.WriteTodos(items):
            return "todowrite", {"todos": [_todo(item) for item in items]}
        case c.PlanExit():
            return "plan_exit", {}
        case c.Fetch(url, format):
            return "webfetch", _given(url=url, format=format)
        case c.Ask():
            return "question", {"questions": [_question(command)]}
        case c.Task():
            return "task", _task(command)


def _task(task: c.Task) -> dict[str, Any]:
    given: dict[str, Any] = {
        "description": replies.title(task.text),
        "prompt": task.text,
        "subagent_type": task.agent,
    }
    return {**given, "background": True} if task.background else given


def _last_task(turns: Sequence[UserTurn | AssistantTurn]) -> str:
    """The last task that a result in the conversation names."""
    named = [
        found[1]
        for turn in turns
        for item in turn.content
        if isinstance(item, ToolResult) and (found := _TASK.search(item.output))
    ]
    return named[-1] if named else "none"


def _given(**arguments: object) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _deletion(file: str, tools: Collection[str]) -> tuple[str, dict[str, Any]]:
    """Delete by a patch, whose effect is known beforehand, if a patch can contain the name."""
    if file.isprintable() and file == file.strip() and "apply_patch" in tools:
        patch = f"*** Begin Patch\n*** Delete File: {file}\n*** End Patch\n"
        return "apply_patch", {"patchText": patch}
    return "bash", {"command": f"rm -- {shlex.quote(file)}"}


def _todo(item: c.TodoItem) -> dict[str, Any]:
    return {"content": item.content, "status": item.status, "priority": item.priority}


def _question(ask: c.Ask) -> dict[str, Any]:
    question = {
        "question": ask.question,
        "header": ask.question[:_HEADER_LENGTH].strip(),
        "options": [{"label": each.label, "description": each.description} for each in ask.options],
    }
    return {**question, "multiple": True} if ask.multiple else question


_PIECE = 24
_HUGE_PIECE = 4096
_MOST_PIECES = 500
_CHARACTERS_A_TOKEN = 4
_CHARACTERS_A_FILE = 4_000
_HUGE_LINE = "{:08} of a very long answer, which nobody will read to its end.\n"


class OfflineModel:
    """A model that executes the commands of the prompt; its answers are deterministic."""

    def __init__(self, info: ModelInfo | None = None) -> None:
        self.info = info or offline_info()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """Answer a request."""
        limit = self.info.limit.input or self.info.limit.context
        given = tokens_of(request)
        if limit and given > limit:
            raise ModelFailure(wire_errors.context_overflow(TOO_LONG.format(given, limit)))
        async with aclosing(_streamed(request, given)) as events:
            yield events


@dataclass(frozen=True, slots=True)
class Pause:
    """A time in which nothing is streamed."""

    seconds: float


Act: TypeAlias = ModelEvent | Pause


async def _streamed(request: ModelRequest, given: int) -> AsyncGenerator[ModelEvent]:
    for act in acts_of(request, given):
        if isinstance(act, Pause):
            await asyncio.sleep(act.seconds)
        else:
            yield act
            await asyncio.sleep(0)


def acts_of(request: ModelRequest, given: int) -> Iterator[Act]:
    """The events of the answer to a request of so many tokens, with the pauses between them."""
    answer = _Answer(request)
    said = thought = 0
    for act in answer.acts():
        match act:
            case TextDelta(text=text) | ToolCalled(raw=text):
                said += len(text)
            case ReasoningDelta(text=text):
                thought += len(text)
        yield act
    yield Finished(reason=answer.reason, tokens=_count(given, said, thought), cost=0.0)


class _Answer:
    """One answer in progress."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        may_call = request.tool_choice != "none"
        self._tools = {tool.name for tool in request.tools if may_call}
        self._calls = 0
        self._reason: str | None = None

    @property
    def reason(self) -> str:
        """The reason why the answer ended."""
        return self._reason or ("tool-calls" if self._calls else "stop")

    def acts(self) -> Iterator[Act]:
        """All events up to the end."""
        if self._request.purpose == "title":
            yield from _spoken(replies.title(prompt_of_title(self._request)), None)
            return
        if self._request.purpose == "summary":
            yield from _spoken(replies.summary(prompt_of_title(self._request)), None)
            return
        following = next_of(self._request)
        is_silent = True
        for line in following.lines:
            for act in self._line(line, following):
                is_silent = is_silent and isinstance(act, Pause)
                yield act
        if is_silent and self._reason is None:
            yield from _spoken(replies.closing((), is_first=False), None)

    def _line(self, line: c.Line, following: Next) -> Iterator[Act]:
        match line.command:
            case c.Say(text):
                yield from _spoken(text, line.pace)
            case c.Think(text):
                yield from _thought(text, line.pace)
            case c.Show():
                yield from _spoken(replies.shown(following.results), line.pace)
            case c.Help():
                yield from _spoken(replies.manual(), line.pace)
            case c.Huge(size):
                yield from _told_at_length(size, line.pace)
            case c.Wait(milliseconds):
                yield Pause(milliseconds / 1000)
            case c.FinishWith(reason):
                self._reason = reason
            case c.Fail() as fail:
                yield from self._failed(fail)
            case command:
                yield from self._called(command, line.pace, following.round)

    def _failed(self, fail: c.Fail) -> Iterator[Act]:
        attempt = self._request.attempt
        if fail.times is not None and attempt > fail.times:
            yield from _spoken(f"It works now, at attempt {attempt}.", None)
            return
        if fail.kind == "cut":
            yield TextStarted()
            yield TextDelta(text="This is as far as the conn")
        raise fault(fail.kind, fail.after)

    def _called(self, command: c.Calling, pace: c.Pace | None, round: int | None) -> Iterator[Act]:
        is_any = isinstance(command, c.CallTool)
        if isinstance(command, c.Structured):
            command = self._structured(command)
        call = made(command, self._tools, round)
        if isinstance(command, c.Task) and command.again:
            assert call.input is not None
            input = {**call.input, "task_id": _last_task(self._request.turns)}
            call = Made(call.tool, input, msgspec.json.encode(input).decode())
        if call.tool not in self._tools and not is_any:
            yield from _spoken(replies.not_offered(call.tool), None)
            return
        self._calls += 1
        id = f"call_{len(self._request.turns)}_{self._request.attempt}_{self._calls}"
        yield ToolStarted(call_id=id, name=call.tool)
        if pace:
            yield from (Pause(pace.milliseconds / 1000) for _ in range(pace.pieces))
        yield ToolCalled(call_id=id, name=call.tool, input=call.input, raw=call.raw)

    def _structured(self, command: c.Structured) -> c.CallTool:
        schemas = [each.parameters for each in self._request.tools if each.name == ANSWER_TOOL]
        raw = command.raw
        if raw is None:
            raw = msgspec.json.encode(replies.example(schemas[0] if schemas else {})).decode()
        return c.CallTool(ANSWER_TOOL, raw)


def _spoken(text: str, pace: c.Pace | None) -> Iterator[Act]:
    yield TextStarted()
    for piece in _paced(len(text), pace, max(_PIECE, len(text) // _MOST_PIECES)):
        yield piece if isinstance(piece, Pause) else TextDelta(text=text[piece])
    yield TextEnded()


def _thought(text: str, pace: c.Pace | None) -> Iterator[Act]:
    yield ReasoningStarted()
    for piece in _paced(len(text), pace, max(_PIECE, len(text) // _MOST_PIECES)):
        yield piece if isinstance(piece, Pause) else ReasoningDelta(text=text[piece])
    yield ReasoningEnded()


def _told_at_length(size: int, pace: c.Pace | None) -> Iterator[Act]:
    """Stream a long text like `_spoken`, but without holding it as a whole."""
    yield TextStarted()
    for piece in _paced(size, pace, _HUGE_PIECE):
        yield piece if isinstance(piece, Pause) else TextDelta(text=_part_of_huge(piece))
    yield TextEnded()


def _part_of_huge(piece: slice) -> str:
    length = len(_HUGE_LINE.format(0))
    first = piece.start // length
    lines = (_HUGE_LINE.format(n + 1) for n in range(first, -(-piece.stop // length)))
    return "".join(lines)[piece.start - first * length : piece.stop - first * length]


def _paced(length: int, pace: c.Pace | None, size: int) -> Iterator[slice | Pause]:
    """The slices of a text for its pieces; none is empty."""
    count = min(pace.pieces, length) if pace else -(-length // size)
    for n in range(count):
        if n and pace:
            yield Pause(pace.milliseconds / 1000)
        yield slice(n * length // count, (n + 1) * length // count)


def _count(given: int, said: int, thought: int) -> TokenCount:
    output, reasoning = _tokens(said), _tokens(thought)
    return TokenCount(
        input=given,
        output=output,
        reasoning=reasoning,
        cache=CacheCount(read=0, write=0),
        total=given + output + reasoning,
    )


def _tokens(characters: int) -> int:
    return -(-characters // _CHARACTERS_A_TOKEN)


def tokens_of(request: ModelRequest) -> int:
    """How many tokens a request has."""
    given = sum(len(text) for text in request.system)
    given += sum(len(tool.name) + len(tool.description) for tool in request.tools)
    given += sum(_length(item) for turn in request.turns for item in turn.content)
    return _tokens(given)


def _length(item: Text | Media | Reasoning | ToolUse | ToolResult) -> int:
    match item:
        case Text(text=text) | Reasoning(text=text):
            return len(text)
        case ToolUse(input=input):
            return sum(len(value) if isinstance(value, str) else 1 for value in input.values())
        case ToolResult(output=output, media=media):
            return len(output) + sum(_length(each) for each in media)
        case Media():
            return _CHARACTERS_A_FILE
