"""Converts a streamed answer of pydantic-ai to kedge's events: every start has an end, in order.

DeepSeek's, Qwen's and other open models write `<think>` at the beginning of an answer. Some have it
in their prompt template, so that only `</think>` arrives, after a thought that was taken for text.
Tags later in an answer, or in code, are text; other tags, such as `<reasoning>`, more likely belong
to an answer in XML.
"""

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec
from pydantic_ai.messages import (
    ModelResponsePart,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)

from kedge.domain.text import mend_escapes, mend_text, nested_deeper_than, utf8
from kedge.model.port import (
    ModelEvent,
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

Said: TypeAlias = tuple[Literal["text", "thought", "text was thought"], str]

_NAMES = ("think", "thinking", "seed:think")
_ENDS = {f"<{name}>": f"</{name}>" for name in _NAMES} | {"[THINK]": "[/THINK]"}
_END = "</think>"
_END_LINE = re.compile(r"^[ \t]*</think>[ \t]*\n", re.MULTILINE)
_UNFINISHED_END_LINE = re.compile(r"</think>[ \t]*")
_FENCE = "```"


class TaggedText:
    """The text of one answer, split into text and thoughts piece by piece."""

    def __init__(self) -> None:
        self._held = ""
        """Text that may be the beginning of a tag."""
        self._end: str | None = None
        """The tag that ends the current thought."""
        self._at_beginning = True
        self._follows_thought = False
        self._has_thought = False
        self._said: list[str] | None = []
        """The text so far, as long as it may turn out to be a thought."""
        self._at_line_start = True
        self._whole: list[str] = []
        """Everything so far, as long as there were only thoughts."""

    def feed(self, piece: str) -> Iterator[Said]:
        """The parts that the next piece completes."""
        self._whole.append(piece)
        text, self._held = self._held + piece, ""
        while text:
            if self._end is not None:
                text = yield from self._think(text, self._end)
            elif self._at_beginning:
                text = self._begin(text)
            else:
                text = yield from self._speak(text)

    def expect_no_more(self) -> None:
        """Stop turning text into thoughts: they arrive separately, or a tool was called."""
        self._said = None

    @property
    def only_thought(self) -> str:
        """The whole input, if it is one complete thought with nothing after it."""
        is_over = self._at_beginning and self._follows_thought and not self._held.strip()
        return "".join(self._whole).strip() if is_over else ""

    def end(self) -> Iterator[Said]:
        """The text that was held back, at the end of the answer."""
        held, self._held = self._held, ""
        if self._end is not None:
            if held:
                yield "thought", held
        elif self._said and _UNFINISHED_END_LINE.fullmatch(held.lstrip(" \t")):
            yield from self._take_back()
        elif held and not (self._follows_thought and held.isspace()):
            yield "text", held

    def _begin(self, text: str) -> str:
        """Decide by the first characters whether it is a thought."""
        stripped = text.lstrip()
        for tag, end in _ENDS.items():
            if stripped.startswith(tag):
                self._end, self._has_thought = end, False
                self.expect_no_more()
                return stripped.removeprefix(tag)
        if any(tag.startswith(stripped) for tag in _ENDS):
            self._held = text
            return ""
        self._at_beginning = False
        return stripped if self._follows_thought else text

    def _think(self, text: str, end: str) -> Generator[Said, None, str]:
        thought, found, rest = text.partition(end)
        if not found:
            thought, self._held = _split(text, end)
        if not self._has_thought:
            # Models that were told not to think send an empty thought.
            thought = thought.lstrip()
        if thought:
            self._has_thought = True
            yield "thought", thought
        if found:
            self._end, self._follows_thought = None, True
        return rest

    def _speak(self, text: str) -> Generator[Said, None, str]:
        if self._said is None:
            self._whole.clear()
            yield "text", text
            return ""
        lead = "" if self._at_line_start else "."
        match = _END_LINE.search(lead + text)
        if match is not None:
            before, rest = (lead + text)[len(lead) : match.start()], (lead + text)[match.end() :]
            yield from self._more(before)
            if self._is_thought():
                yield from self._take_back()
                return rest
            self.expect_no_more()
            return text[len(before) :]
        line = text[text.rfind("\n") + 1 :]
        starts = self._at_line_start or "\n" in text
        if starts and _may_be_end(line.lstrip(" \t")):
            self._held = line
        yield from self._more(text[: len(text) - len(self._held)])
        self._at_line_start = (starts and not line.strip(" \t")) or bool(self._held)
        return ""

    def _more(self, text: str) -> Iterator[Said]:
        if text and self._said is not None:
            self._said.append(text)
            yield "text", text

    def _is_thought(self) -> bool:
        """Whether an end tag without a start tag ends a thought: not in code, nor after a start
        tag."""
        text = "".join(self._said or ())
        return bool(text) and "<think" not in text and text.count(_FENCE) % 2 == 0

    def _take_back(self) -> Iterator[Said]:
        yield "text was thought", "".join(self._said or ())
        self._at_beginning = self._follows_thought = True
        self.expect_no_more()


def _may_be_end(line: str) -> bool:
    if not line:
        return False
    return _END.startswith(line) or _UNFINISHED_END_LINE.fullmatch(line) is not None


def _split(text: str, tag: str) -> tuple[str, str]:
    """The text, and its end that may be the beginning of the tag."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if tag.startswith(text[-length:]):
            return text[:-length], text[-length:]
    return text, ""


# No tool needs such depth, and every reader must be able to walk it.
DEPTH_LIMIT = 64
# Distinct from the indexes of all parts.
_REFUSAL, _TAGGED, _TAGGED_THOUGHT = -1, -2, -3


@dataclass(kw_only=True)
class _Spoken:
    """A text or thought that is being streamed."""

    indices: set[int]
    thought: ThinkingPart | None = None
    """The thought so far, with the metadata that its provider needs back."""


@dataclass(kw_only=True)
class _Call:
    """A tool call whose arguments are being streamed."""

    call_id: str
    part: ToolCallPart[Any]
    over: bool = False


class StreamReader:
    """Converts the events of one answer to kedge's."""

    def __init__(self, tagged: TaggedText | None = None) -> None:
        self._tagged = tagged
        """Finds thoughts in the text, if the server may not separate them."""
        self._spoken: _Spoken | None = None
        self._calls: dict[int, _Call] = {}
        self._ids: set[str] = set()
        self._has_words = False
        self._has_tagged_thought = False
        """Whether there is a thought, and it was found in the text."""

    @property
    def is_empty(self) -> bool:
        """Whether there was neither text nor a call; thoughts do not count as an answer."""
        return not self._has_words and not self._calls

    @property
    def called(self) -> bool:
        """Whether the model called any tool."""
        return bool(self._calls)

    def hear(self, event: ModelResponseStreamEvent) -> Iterator[ModelEvent]:
        """The events for one event of pydantic-ai."""
        if isinstance(event, PartStartEvent):
            yield from self._start(event.index, event.part)
        elif isinstance(event, PartDeltaEvent):
            yield from self._more(event)
        elif isinstance(event, PartEndEvent) and event.index in self._calls:
            yield from self._complete(self._calls[event.index], final=False)

    def speak(self, words: str) -> Iterator[ModelEvent]:
        """The events for more words of a started text in a chat."""
        assert self._tagged is not None
        yield from self._apart(self._tagged.feed(words))

    def refuse(self, text: str) -> Iterator[ModelEvent]:
        """The events for a refusal, which arrives apart from the text and is shown as text."""
        yield from self._say(_REFUSAL, text)

    def end(self, *, is_said: bool) -> Iterator[ModelEvent]:
        """The events that close what is open; `is_said` if the answer is complete."""
        if self._tagged is not None:
            yield from self._apart(self._tagged.end())
        yield from self._close()
        if is_said and self.is_empty and self._has_tagged_thought and self._tagged is not None:
            yield from self._unthink(self._tagged.only_thought)
        for call in self._calls.values():
            yield from self._complete(call, final=True)

    def _unthink(self, text: str) -> Iterator[ModelEvent]:
        # An answer in tags, or meant as a thought: losing it would be worse.
        if text:
            self._has_words = True
            yield ThoughtWasText(text=mend_text(text))

    def _start(self, index: int, part: ModelResponsePart) -> Iterator[ModelEvent]:
        if isinstance(part, TextPart):
            yield from self._text(index, part.content)
        elif isinstance(part, ThinkingPart):
            self._has_tagged_thought = False
            if self._tagged is not None:
                self._tagged.expect_no_more()
            yield from self._begin_thought(index, part)
        elif isinstance(part, ToolCallPart) and index in self._calls:
            # Sent again with more details.
            self._calls[index].part = part
        elif isinstance(part, ToolCallPart):
            if self._tagged is not None:
                self._tagged.expect_no_more()
            yield from self._close()
            call = _Call(call_id=self._unique(part.tool_call_id), part=part)
            self._calls[index] = call
            yield ToolStarted(call_id=call.call_id, name=mend_text(part.tool_name))

    def _more(self, event: PartDeltaEvent) -> Iterator[ModelEvent]:
        delta = event.delta
        if isinstance(delta, TextPartDelta):
            yield from self._text(event.index, delta.content_delta)
        elif isinstance(delta, ThinkingPartDelta):
            yield from self._think(event.index, delta)
        elif isinstance(delta, ToolCallPartDelta) and event.index in self._calls:
            call = self._calls[event.index]
            part = delta.apply(call.part)
            if isinstance(part, ToolCallPart):
                call.part = part

    def _text(self, index: int, text: str) -> Iterator[ModelEvent]:
        if self._tagged is None:
            yield from self._say(index, text)
        else:
            yield from self._apart(self._tagged.feed(text))

    def _apart(self, said: Iterator[Said]) -> Iterator[ModelEvent]:
        for kind, text in said:
            if kind == "text":
                yield from self._say(_TAGGED, text)
            elif kind == "thought":
                self._has_tagged_thought = True
                yield from self._think(_TAGGED_THOUGHT, ThinkingPartDelta(content_delta=text))
            else:
                self._spoken = None
                self._has_words, self._has_tagged_thought = False, True
                yield TextWasThought(text=mend_text(text))

    def _say(self, index: int, text: str) -> Iterator[ModelEvent]:
        # Providers send empty pieces, and annotations on text that is complete.
        if not text:
            return
        if self._spoken is None or index not in self._spoken.indices:
            yield from self._close()
            self._spoken = _Spoken(indices={index})
            yield TextStarted()
        self._has_words = self._has_words or not text.isspace()
        yield TextDelta(text=mend_text(text))

    def _begin_thought(self, index: int, part: ThinkingPart) -> Iterator[ModelEvent]:
        spoken = self._spoken
        if spoken is not None and spoken.thought is not None and _same(spoken.thought, part):
            # One thought in several paragraphs, which share one signature.
            spoken.indices.add(index)
            yield ReasoningDelta(text="\n\n")
        else:
            yield from self._close()
            self._spoken = _Spoken(indices={index}, thought=part)
            yield ReasoningStarted()
        if part.content:
            yield ReasoningDelta(text=mend_text(part.content))

    def _think(self, index: int, delta: ThinkingPartDelta) -> Iterator[ModelEvent]:
        spoken = self._spoken
        if spoken is None or spoken.thought is None or index not in spoken.indices:
            if delta.content_delta:
                yield from self._begin_thought(index, ThinkingPart(delta.content_delta))
            return
        spoken.thought = delta.apply(spoken.thought)
        if delta.content_delta:
            yield ReasoningDelta(text=mend_text(delta.content_delta))

    def _close(self) -> Iterator[ModelEvent]:
        spoken, self._spoken = self._spoken, None
        if spoken is None:
            return
        if spoken.thought is None:
            yield TextEnded()
        else:
            yield ReasoningEnded(metadata=_metadata_of(spoken.thought))

    def _complete(self, call: _Call, *, final: bool) -> Iterator[ModelEvent]:
        if call.over:
            return
        raw = _raw(call.part)
        arguments = _arguments(raw)
        # Calls may be interleaved: arguments that are empty or not an object may still be
        # completed.
        if not final and (arguments is None or not raw.strip()):
            return
        call.over = True
        yield ToolCalled(
            call_id=call.call_id,
            name=mend_text(call.part.tool_name),
            input=arguments,
            raw=raw,
            metadata=_metadata_of(call.part),
        )

    def _unique(self, call_id: str) -> str:
        wanted = unique = mend_text(call_id) or "call"
        number = 1
        while unique in self._ids:
            number += 1
            unique = f"{wanted}_{number}"
        self._ids.add(unique)
        return unique


def _same(thought: ThinkingPart, part: ThinkingPart) -> bool:
    return thought.id is not None and thought.id == part.id and not thought.signature


def _metadata_of(part: ThinkingPart | ToolCallPart[Any]) -> dict[str, Any] | None:
    wanted: dict[str, Any] = {"details": part.provider_details}
    if isinstance(part, ThinkingPart):
        wanted |= {"id": part.id, "signature": part.signature}
    kept = {name: value for name, value in wanted.items() if value}
    return {"provider": part.provider_name, **kept} if kept else None


def _raw(part: ToolCallPart[Any]) -> str:
    if isinstance(part.args, str):
        return mend_text(part.args)
    return msgspec.json.encode(part.args or {}).decode()


def _arguments(raw: str) -> dict[str, Any] | None:
    if not raw.strip():
        return {}
    text = mend_escapes(utf8(raw))
    try:
        if nested_deeper_than(DEPTH_LIMIT, text):
            return None
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return None
