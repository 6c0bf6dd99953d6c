"""What stands after a command's name: texts, words, lists and numbers."""

import re

from kedge.model.offline.scanning import (
    BLANKS,
    MARKER,
    Scanner,
    Unreadable,
    Word,
    shown,
    take_word,
    unquoted,
)

MOST_ITEMS = 500
MOST_CHARACTERS = 64_000_000
MOST_SECONDS = 3_600
_NUMBER = re.compile(r"[0-9]{1,9}")
_DURATION = re.compile(r"([0-9]{1,7})(?:\.([0-9]{1,3}))?(ms|s)")
_SIZE = re.compile(r"([0-9]{1,9})(KB|MB)?")


class Arguments:
    """The rest of a line, read as the command wants it."""

    def __init__(self, usage: str, rest: str, scanner: Scanner) -> None:
        self._usage = usage
        self._rest = rest
        self._scanner = scanner

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left."""
        return not self._rest

    def misused(self) -> Unreadable:
        """The error that says how the command is written."""
        return Unreadable(f"write it as `{self._usage}`")

    def text(self, *, ends_line: bool = False) -> str:
        """The rest of the line, a text in quotes, or a block.

        The line or block that a file is made of ends with a newline; quotes give it exactly.
        """
        if not (rest := self._taken()):
            raise self.misused()
        if (exact := unquoted(rest)) is not None:
            return exact
        if marker := MARKER.match(rest):
            content = self._scanner.block(marker[1])
            return content if ends_line else content.removesuffix("\n")
        return f"{rest}\n" if ends_line else rest

    def word(self) -> Word:
        """The next argument; `<<MARK` stands for the next block."""
        word, self._rest = take_word(self._rest)
        if word is None:
            raise self.misused()
        if word.is_bare and (marker := MARKER.match(word.text)):
            return Word(self._scanner.block(marker[1]).removesuffix("\n"), is_bare=False)
        return word

    def word_if_any(self) -> str | None:
        """The text of the next argument, if there is one."""
        return self.word().text if self._rest else None

    def file(self) -> str:
        """The next argument, which is to be a file's name and not a word of plain English."""
        word = self.word()
        if word.is_bare and not ("." in word.text or "/" in word.text):
            raise Unreadable(
                f"{shown(word.text)} does not look like a file; if it is one, write "
                f"{shown(f'./{word.text}')}. The command is `{self._usage}`"
            )
        if not word.text or "\n" in word.text:
            raise Unreadable("the name of a file is one line, and not empty")
        return word.text

    def items(self) -> list[str]:
        """A list: with `|` between its items, or one on each line of a block."""
        rest = self._taken()
        marker = MARKER.match(rest)
        text, between = (self._scanner.block(marker[1]), "\n") if marker else (rest, "|")
        parts = text.removesuffix("\n").split(between, MOST_ITEMS)
        if len(parts) > MOST_ITEMS:
            raise Unreadable(f"a list has at most {MOST_ITEMS} items")
        return [item for part in parts if (item := part.strip(BLANKS))]

    def _taken(self) -> str:
        rest, self._rest = self._rest, ""
        return rest

    def done(self) -> None:
        """Refuse what is left."""
        if self._rest:
            raise self.misused()


def number(text: str | None, what: str, most: int = 999_999_999) -> int:
    """A whole number from 1."""
    if not text or not _NUMBER.fullmatch(text) or not 1 <= int(text) <= most:
        raise Unreadable(f"{shown(text or '')} is not {what}: a number from 1 to {most}")
    return int(text)


def duration(text: str | None) -> int:
    """Milliseconds, from a text like 250ms or 1.5s."""
    match = _DURATION.fullmatch(text or "")
    if match is None or (match[3] == "ms" and match[2]):
        raise Unreadable(f"{shown(text or '')} is no time; write it like `250ms` or `1.5s`")
    found = int(match[1])
    if match[3] == "s":
        found = found * 1000 + int((match[2] or "0").ljust(3, "0"))
    if found > MOST_SECONDS * 1000:
        raise Unreadable(f"{shown(text or '')} is too long; at most `{MOST_SECONDS}s`")
    return found


def size(text: str | None) -> int:
    """A number of characters, from a text like 500, 64KB or 5MB."""
    match = _SIZE.fullmatch(text or "")
    if match is None:
        raise Unreadable(f"{shown(text or '')} is no size; write it like `500`, `64KB` or `5MB`")
    found = int(match[1]) * {None: 1, "KB": 1_000, "MB": 1_000_000}[match[2]]
    if found > MOST_CHARACTERS:
        raise Unreadable(f"{shown(text or '')} is too large; at most `{MOST_CHARACTERS}`")
    return found
