"""Thoughts that chat servers send as text between tags, because they do not know their model's.

DeepSeek's, Qwen's and other open models write `<think>` at the beginning of an answer. Some have it
in the template of their prompt, so that only `</think>` is seen, after a thought that was taken for
text. Tags later in an answer, or in code, are text; other tags, such as `<reasoning>`, are rather
of an answer in XML.
"""

import re
from collections.abc import Generator, Iterator
from typing import Literal, TypeAlias

Said: TypeAlias = tuple[Literal["text", "thought", "text was thought"], str]

_NAMES = ("think", "thinking", "seed:think")
_ENDS = {f"<{name}>": f"</{name}>" for name in _NAMES} | {"[THINK]": "[/THINK]"}
_END = "</think>"
_END_LINE = re.compile(r"^[ \t]*</think>[ \t]*\n", re.MULTILINE)
_UNFINISHED_END_LINE = re.compile(r"</think>[ \t]*")
_FENCE = "```"


class TaggedText:
    """The text of one answer, taken apart piece by piece."""

    def __init__(self) -> None:
        self._held = ""
        """What may be the beginning of a tag."""
        self._end: str | None = None
        """The tag that ends the current thought."""
        self._at_beginning = True
        self._follows_thought = False
        self._has_thought = False
        self._said: list[str] | None = []
        """The text so far, as long as it may turn out to be a thought."""
        self._at_line_start = True
        self._whole: list[str] = []
        """All that came, as long as there was nothing but thoughts."""

    def feed(self, piece: str) -> Iterator[Said]:
        """What the next piece comes to."""
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
        """Thoughts come apart from the text, or a tool was called: no text becomes a thought."""
        self._said = None

    @property
    def only_thought(self) -> str:
        """What came, if it is a thought that has ended and behind which there is nothing."""
        is_over = self._at_beginning and self._follows_thought and not self._held.strip()
        return "".join(self._whole).strip() if is_over else ""

    def end(self) -> Iterator[Said]:
        """What was held back, when nothing more comes."""
        held, self._held = self._held, ""
        if self._end is not None:
            if held:
                yield "thought", held
        elif self._said and _UNFINISHED_END_LINE.fullmatch(held.lstrip(" \t")):
            yield from self._take_back()
        elif held and not (self._follows_thought and held.isspace()):
            yield "text", held

    def _begin(self, text: str) -> str:
        """The first characters tell whether it is a thought."""
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
        """Whether an end without a beginning ends a thought: not in code, nor after a beginning."""
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
    """The text, and the end of it that may be the beginning of the tag."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if tag.startswith(text[-length:]):
            return text[:-length], text[-length:]
    return text, ""
