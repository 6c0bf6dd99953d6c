"""The parts that a script is made of: lines, words, quoted texts and blocks; not what they mean.

Everything here takes time in proportion to the text, whatever the text is.
"""

import json
import re
from dataclasses import dataclass

from kedge.domain.text import mend_text

BLANKS = " \t\r"
MARKER = re.compile(r"<<([A-Za-z_][A-Za-z0-9_]*+)\Z")
_SKIPPED = re.compile(r"(?:[ \t\r]*+(?:#[^\n]*+)?\n)*+")
_BARE = re.compile(r"[^ \t\r]++")
_WORD = re.compile(r'"(?:[^"\\]++|\\.)*+"(?![^ \t\r])|[^ \t\r]++', re.DOTALL)


class Unreadable(Exception):
    """A line says something that is not in the language."""


class Unclosed(Unreadable):
    """A block has no end, so that what follows cannot be told from its content."""


@dataclass(frozen=True, slots=True)
class Word:
    """One argument; a bare one was written without quotes."""

    text: str
    is_bare: bool = True


class Scanner:
    """Goes through a script line by line, and takes the blocks that lines ask for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._begun = 0
        self._counted_to = 0
        self._passed = 0

    def line(self) -> str | None:
        """The next line that is neither empty nor a comment, without blanks around it."""
        if skipped := _SKIPPED.match(self._text, self._at):
            self._at = skipped.end()
        self._begun = self._at
        end = self._text.find("\n", self._at)
        end = len(self._text) if end < 0 else end
        line = self._text[self._at : end].strip(BLANKS)
        self._at = min(end + 1, len(self._text))
        return line if line and not line.startswith("#") else None

    @property
    def number(self) -> int:
        """The number of the line that was read last, from 1."""
        self._passed += self._text.count("\n", self._counted_to, self._begun)
        self._counted_to = self._begun
        return self._passed + 1

    def block(self, marker: str) -> str:
        """What follows, up to a line that is the marker alone; every line of it ends with \\n."""
        end = re.compile(rf"^{re.escape(marker)}[ \t\r]*+$", re.MULTILINE).search(
            self._text, self._at
        )
        if end is None or (self._at and self._text[self._at - 1] != "\n"):
            raise Unclosed(
                f"the block `<<{marker}` has no end; close it with a line that is just `{marker}`"
            )
        content = self._text[self._at : end.start()]
        self._at = min(end.end() + 1, len(self._text))
        return content


def split_word(line: str) -> tuple[str, str]:
    """The first word of a line as it stands there, and the rest of it."""
    match = _BARE.match(line)
    end = match.end() if match else 0
    return line[:end], line[end:].strip(BLANKS)


def unquoted(text: str) -> str | None:
    """What a text in double quotes stands for; None if it is not one."""
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return None
    try:
        found = json.loads(text, strict=False)
    except ValueError:
        return None
    return mend_text(found)


def take_word(line: str) -> tuple[Word | None, str]:
    """The first argument of a line, which may be in quotes, and the rest of it."""
    match = _WORD.match(line)
    return (_word(match[0]), line[match.end() :].strip(BLANKS)) if match else (None, line)


def _word(text: str) -> Word:
    if not text.startswith('"'):
        return Word(text)
    plain = unquoted(text)
    if plain is None:
        raise Unreadable(
            f"{shown(text)} begins with a quote but is no text in quotes; close it, "
            'and write \\" for a quote inside'
        )
    return Word(plain, is_bare=False)


def shown(text: str) -> str:
    """A text as messages quote it: short, and on one line."""
    line = " ".join(text[:60].split())
    return f"`{line}…`" if len(text) > 60 else f"`{line}`"
