"""What a command writes to: styled and fitted to the width on a terminal, plain text elsewhere.

Texts of sessions, files and models may hold anything, so all of them pass `one_line` or `safe`:
nothing in them moves the cursor, changes colours or hides what stands before it.
"""

import os
import sys
import unicodedata
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import TextIO

BOLD, DIM, RED, GREEN, YELLOW, BLUE, CYAN = "1", "2", "31", "32", "33", "34", "36"
"""Styles as terminals know them. Only the sixteen colours that people choose themselves."""

_JOINERS = "\u200c\u200d"
"""Invisible, but part of how words and emoji are written."""
_EMOJI_STYLE = "\ufe0f"
_DEFAULT_WIDTH = 80
_WIDEST = 120
"""Longer lines are hard to read."""


class Screen:
    """One output stream of this process."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str] | None = None) -> None:
        self._stream = stream
        self._environ = os.environ if environ is None else environ

    @cached_property
    def is_terminal(self) -> bool:
        """Whether a person looks at it."""
        return self._stream.isatty()

    @cached_property
    def is_smart(self) -> bool:
        """Whether the cursor can be moved."""
        return self.is_terminal and self._environ.get("TERM", "") not in ("", "dumb")

    @cached_property
    def has_colour(self) -> bool:
        """Whether to use colours; see https://no-color.org."""
        return self.is_smart and not self._environ.get("NO_COLOR")

    @property
    def width(self) -> int:
        """How many cells a line has."""
        try:
            found = os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError):
            found = 0
        named = self._environ.get("COLUMNS", "")
        if not found and named.isdecimal():
            found = int(named)
        return min(found or _DEFAULT_WIDTH, _WIDEST)

    def paint(self, text: str, *styles: str) -> str:
        """A text in a style, if there are colours."""
        if not self.has_colour or not text or not any(styles):
            return text
        return f"\x1b[{';'.join(filter(None, styles))}m{text}\x1b[0m"

    def line(self, text: str = "") -> None:
        """Write a line; the caller has made it safe."""
        self._stream.write(f"{text}\n")

    def write(self, text: str) -> None:
        """Write a text at once, without a new line; the caller has made it safe."""
        self._stream.write(text)
        self._stream.flush()

    def flush(self) -> None:
        """Have everything shown."""
        self._stream.flush()


_PLAIN = dict(zip("●○✓✗…·└│━╌▸≈⋯", "*o+x~-`|=->~~", strict=True))
"""Signs of our own, for terminals that cannot show them."""


def encodable(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that an encoding does not have; an error handler of `codecs`."""
    assert isinstance(error, UnicodeEncodeError)
    shown = [
        _PLAIN.get(each) or each.encode("unicode_escape", "surrogatepass").decode()
        for each in error.object[error.start : error.end]
    ]
    return "".join(shown), error.end


def output() -> Screen:
    """Standard output."""
    return Screen(sys.stdout)


def errors() -> Screen:
    """Standard error."""
    return Screen(sys.stderr)


def one_line(text: str) -> str:
    """A text as one line, with everything that is not shown as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(" " if each in "\n\r\t\v\f" else _shown(each) for each in text)


def safe(text: str) -> str:
    """A text with its lines, and everything else that is not shown as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each in "\n\t" else _shown(each) for each in text if each != "\r")


@lru_cache(maxsize=512)
def _shown(letter: str) -> str:
    if letter.isprintable() or letter in _JOINERS:
        return letter
    if unicodedata.category(letter) == "Zs":
        return " "
    return letter.encode("unicode_escape", "surrogatepass").decode()


def cells(text: str) -> int:
    """How many cells of a terminal a text takes that has no control characters."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text)) + text.count(_EMOJI_STYLE)


@lru_cache(maxsize=512)
def _cells(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def clip(text: str, room: int) -> str:
    """A text in at most so many cells; a cut is shown by an ellipsis."""
    if cells(text) <= room:
        return text
    taken, kept = 0, []
    for letter in text:
        taken += cells(letter)
        if taken > room - 1:
            break
        kept.append(letter)
    return "".join(kept).rstrip() + "…" if room > 0 else ""


def wrap(text: str, room: int) -> list[str]:
    """A text in lines of at most so many cells, between words where that is possible."""
    lines, line = [], ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if cells(joined) <= room:
            line = joined
            continue
        if line:
            lines.append(line)
        while cells(word) > room:
            taken = _fitting(word, room)
            lines.append(word[:taken])
            word = word[taken:]  # noqa: PLW2901 - the rest of it
        line = word
    return [*lines, line]


def _fitting(word: str, room: int) -> int:
    """How many letters have room; at least one."""
    taken = 0
    for number, letter in enumerate(word):
        taken += cells(letter)
        if taken > room and number:
            return number
    return len(word)


def pad(text: str, room: int) -> str:
    """A text filled with blanks to so many cells."""
    return text + " " * (room - cells(text))
