"""Converts chat completion streams of the many servers that resemble OpenAI's to OpenAI's form."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kedge.model.pydantic_ai.event_stream import Ending, object_in, objects_in, text_in

# More calls than this mean a faulty server.
_MOST_CALLS = 1000
_UNNAMED = "unknown"
# Distinct from every index that a server can send.
_OLD_CALL = -1
_STRUCTURE = re.compile(r'["\\{}\[\]]')


class TooManyCalls(ValueError):
    """The answer calls more tools than any model would."""


class ChatReader:
    """One answer: text, thoughts and calls are passed on; reason and usage are kept."""

    def __init__(self, tools: Callable[[], frozenset[str]]) -> None:
        self._calls = _Calls(tools)
        self.reason: str | None = None
        self.comment = ""
        self._ending = Ending()
        self.usage: dict[str, Any] = {}
        """The usage in the server's terms."""

    @property
    def is_over(self) -> bool:
        """Whether a reason to stop was sent."""
        return self._ending.is_over

    @property
    def may_end(self) -> bool:
        """Always: servers forget the reason, and even [DONE]."""
        return True

    def read(self, frame: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """The content of the frame in OpenAI's form."""
        choice = _first(frame.get("choices"))
        self._count(frame.get("usage"))
        self._count(object_in(frame, "x_groq").get("usage"))
        self._count(choice.get("usage"))
        told = choice.get("finish_reason")
        if has_reason := told is not None and told != "":
            self.reason = self.reason_of(told)
        delta = choice.get("delta") or choice.get("message") or {}
        if not isinstance(delta, dict):
            delta = {}
        if "text" in choice:
            delta = {"content": choice["text"], **delta}
        read = [*self._read(delta)]
        has_words = bool(read) or any(True for _ in _called(delta))
        self._ending.take(has_reason=has_reason, has_words=has_words)
        yield from read

    def reason_of(self, told: object) -> str:
        """The normalized reason; that of a refusal is kept."""
        return "refusal" if self.reason == "refusal" else str(told)

    def end(self) -> Iterable[dict[str, Any]]:
        """Calls that wait for the rest of their names, and the end."""
        yield from (_frame({"tool_calls": [call]}) for call in self._calls.rest())
        yield _frame({}, finish="stop")

    def is_frame(self, value: dict[str, Any]) -> bool:
        """Servers that do not stream send the whole answer as one frame."""
        return isinstance(value.get("choices"), list)

    def _read(self, delta: dict[str, Any]) -> Iterator[dict[str, Any]]:
        text, thought = _words(delta.get("content"))
        if refusal := text_in(delta.get("refusal")):
            self.reason = "refusal"
            text += refusal
        if thoughts := _thoughts(delta, thought):
            yield _frame(thoughts)
        if text:
            yield _frame({"content": text})
        for call in _called(delta):
            yield from (_frame({"tool_calls": [each]}) for each in self._calls.read(call))

    def _count(self, usage: object) -> None:
        # The counts of later frames include those of earlier ones, but may have fewer names.
        if isinstance(usage, dict):
            self.usage = _updated(self.usage, usage)


@dataclass(kw_only=True)
class _Call:
    """A tool call as far as it was received."""

    number: int
    id: str
    name: str = ""
    is_begun: bool = False
    """Whether it was passed to the library; its name cannot change any more."""
    pieces: list[str] = field(default_factory=list)
    size: int = 0
    waiting: list[str] = field(default_factory=list)
    """Arguments that arrived before the name."""
    placeholder: str = ""
    """An empty object, which is either all of the arguments or a placeholder for them."""
    depth: int = 0
    is_quoted: bool = False
    is_escaped: bool = False
    is_whole: bool = False
    """Whether the arguments so far are complete, if they are JSON at all."""
    next_name: str = ""
    """A name that arrived after that: the same call again, or one whose arguments will follow."""

    def says_again(self, arguments: str) -> bool:
        """Whether these are its arguments repeated."""
        return self.size == len(arguments) and "".join(self.pieces) == arguments

    def follow(self, piece: str) -> None:
        """Track the nesting depth of the arguments."""
        self.pieces.append(piece)
        self.size += len(piece)
        skipped = 0 if self.is_escaped else -1
        self.is_escaped = False
        for match in _STRUCTURE.finditer(piece):
            if match.start() != skipped:
                skipped = self._step(match[0], match.end())
        self.is_escaped = skipped == len(piece) and piece.endswith("\\")

    def _step(self, sign: str, after: int) -> int:
        if sign == "\\":
            return after if self.is_quoted else -1
        if sign == '"':
            self.is_quoted = not self.is_quoted
        elif not self.is_quoted:
            self.depth += 1 if sign in "{[" else -1
            self.is_whole = self.depth <= 0
        return -1


class _Calls:
    """Assigns pieces to calls, and passes each call on with an index of its own."""

    def __init__(self, tools: Callable[[], frozenset[str]]) -> None:
        self._tools = tools
        self._calls: list[_Call] = []
        self._unbegun: list[_Call] = []
        self._last: dict[int | None, _Call] = {}
        self._by_id: dict[tuple[int | None, str], _Call] = {}

    def read(self, delta: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The frames for a piece."""
        function = object_in(delta, "function") or delta
        index, id = _index(delta.get("index")), text_in(delta.get("id"))
        name = text_in(function.get("name"))
        arguments = _arguments(function.get("arguments"))
        call = self._find(index, id, name, arguments)
        if call is not None and call.is_whole:
            if name and not arguments.strip():
                call.next_name = name
                return
            if call.next_name and not name and _is_of_next(call, arguments):
                name, call = call.next_name, None
        if call is None:
            call = self._add(index, id)
        if name:
            self._rename(call, name)
        if arguments and not (call.is_whole and call.says_again(arguments)):
            yield from self._more(call, arguments)

    def rest(self) -> Iterator[dict[str, Any]]:
        """The calls without arguments, at the end of the answer."""
        for call in self._calls:
            if not call.is_begun:
                yield self._begin(call)
            if call.placeholder and not call.size:
                yield _piece(call, call.placeholder)

    def _find(self, index: int | None, id: str, name: str, arguments: str) -> _Call | None:
        known = self._by_id.get((index, id)) if id else None
        for call in (known, self._last.get(index)):
            if call is not None and self._continues(call, id, name, arguments):
                return call
        return None

    def _continues(self, call: _Call, id: str, name: str, arguments: str) -> bool:
        if id and call.id and id != call.id:
            # Some servers make up an id for every piece; a new call has a name.
            return not name
        if not name:
            return True
        if call.is_whole or call.placeholder:
            if not arguments.strip():
                return name == call.name or name not in self._tools()
            return bool(id) and id == call.id and call.says_again(arguments)
        if call.size or call.waiting or name == call.name:
            return True
        tools = self._tools()
        return not (name in tools and call.name in tools)

    def _add(self, index: int | None, id: str) -> _Call:
        if len(self._calls) >= _MOST_CALLS:
            raise TooManyCalls(f"more than {_MOST_CALLS} tool calls in one answer")
        call = _Call(number=len(self._calls), id=id)
        self._calls.append(call)
        self._unbegun.append(call)
        for key in {index, None}:
            self._last[key] = call
            if id:
                self._by_id[key, id] = call
        return call

    def _rename(self, call: _Call, name: str) -> None:
        if call.is_begun or name == call.name == "":
            return
        joined = call.name + name
        if not call.name or (joined in self._tools() and call.name not in self._tools()):
            call.name = joined
        elif name.startswith(call.name):
            call.name = name
        else:
            call.name = joined

    def _more(self, call: _Call, piece: str) -> Iterator[dict[str, Any]]:
        if not call.size and not call.waiting and piece.strip() == "{}":
            call.placeholder = piece
            return
        if call.placeholder:
            if not piece.lstrip().startswith("{"):
                piece = call.placeholder + piece
            call.placeholder = ""
        if not call.name:
            call.waiting.append(piece)
            return
        if not call.is_begun:
            yield from self._begin_until(call)
        yield _piece(call, piece)

    def _begin_until(self, call: _Call) -> Iterator[dict[str, Any]]:
        """Begin the calls up to this one, in the order in which the model made them."""
        while self._unbegun and not call.is_begun:
            yield self._begin(self._unbegun.pop(0))

    def _begin(self, call: _Call) -> dict[str, Any]:
        call.is_begun = True
        waiting = "".join(call.waiting)
        call.follow(waiting)
        function = {"name": call.name or _UNNAMED, "arguments": waiting}
        id = {"id": call.id} if call.id else {}
        return {"index": call.number, "type": "function", **id, "function": function}


def _is_of_next(call: _Call, arguments: str) -> bool:
    """Whether arguments after a complete call belong to the call that was named since. Servers that
    send no ids do not repeat a call either."""
    if not arguments.lstrip().startswith("{"):
        return False
    return not (call.id and call.says_again(arguments))


def _piece(call: _Call, arguments: str) -> dict[str, Any]:
    call.follow(arguments)
    return {"index": call.number, "function": {"arguments": arguments}}


def _updated(before: dict[str, Any], usage: dict[str, Any]) -> dict[str, Any]:
    """The counts updated with new ones; empty ones change nothing."""
    found = dict(before)
    for name, value in usage.items():
        old = found.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            found[name] = {**old, **{key: each for key, each in value.items() if each}}
        elif value:
            found[name] = value
    return found


def _called(delta: dict[str, Any]) -> Iterator[dict[str, Any]]:
    found = delta.get("tool_calls")
    yield from objects_in([found] if isinstance(found, dict) else found)
    if isinstance(old := delta.get("function_call"), dict):
        yield {"index": _OLD_CALL, "function": old}


def _thoughts(delta: dict[str, Any], thought: str) -> dict[str, Any]:
    """The thoughts of a frame, in the field in which the server wants them back."""
    found: dict[str, Any] = {}
    details = objects_in(delta.get("reasoning_details"))
    if details:
        found["reasoning_details"] = details
        thought = thought or "".join(
            text_in(each.get("text")) or text_in(each.get("summary")) for each in details
        )
    # If both are present, they have the same content.
    for name in ("reasoning", "reasoning_content"):
        if told := text_in(delta.get(name)):
            return {name: told, **found}
    return {"reasoning": thought, **found} if thought else found


def _words(content: object) -> tuple[str, str]:
    """Text and thoughts of a content, which may be a list of parts."""
    if not isinstance(content, list):
        return text_in(content), ""
    parts = objects_in(content)
    text = "".join(text_in(part.get("text")) for part in parts)
    return text, "".join(_words(part.get("thinking"))[0] for part in parts)


def _arguments(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value)


def _index(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:9])
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _first(choices: object) -> dict[str, Any]:
    found = objects_in(choices)
    return next((each for each in found if not each.get("index")), {})


def _frame(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "chat", "object": "chat.completion.chunk", "created": 0, "model": ""}
    return {**head, "choices": [choice]}
