"""Parses JSON with comments and trailing commas, and finds the line of a key."""

import json
import math
import re
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Any, NoReturn, TypeAlias

from kedge.domain.text import mend_text

KeyPath: TypeAlias = tuple[str | int, ...]

MAX_DEPTH = 64
"""How deep objects and arrays may be nested; real files stay far below this."""
_MAX_DIGITS = 300
_EXACT = 2**53

_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS = {"true": True, "false": False, "null": None}
_WORD = re.compile("|".join(_WORDS))


class SyntaxProblem(Exception):
    """A text is not valid JSON; the message says where and why."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line
        self.why = why


def parse(text: str) -> Any:  # noqa: ANN401 - whatever JSON can say
    """The value in a text; None if there are only comments."""
    return _Parser(text).document()


def line_of(text: str, path: KeyPath) -> int:
    """The line of a key, or of the innermost value around it that exists."""
    parser = _Parser(text, path)
    parser.document()
    return text.count("\n", 0, parser.found) + 1


class _Parser:
    def __init__(self, text: str, wanted: KeyPath = ()) -> None:
        self.text = text
        self.at = 1 if text.startswith("\ufeff") else 0
        self.path: list[str | int] = []
        self.wanted = list(wanted)
        self.found = 0
        """The position of the wanted key, or of the innermost value around it."""

    def document(self) -> Any:  # noqa: ANN401 - as above
        self.skip()
        if self.at == len(self.text):
            return None
        self.note()
        value = self.value()
        self.skip()
        if self.at < len(self.text):
            self.fail("there is something after the end of the value")
        return value

    def skip(self) -> None:
        """Skip blanks and comments."""
        while True:
            blank = _BLANK.match(self.text, self.at)
            assert blank is not None
            self.at = blank.end()
            if self.text.startswith("//", self.at):
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif self.text.startswith("/*", self.at):
                end = self.text.find("*/", self.at + 2)
                if end < 0:
                    self.fail("a comment has no end")
                self.at = end + 2
            else:
                return

    def value(self) -> Any:  # noqa: ANN401 - as above
        match self.mark():
            case "{":
                return self.object()
            case "[":
                return self.array()
            case '"':
                return self.string()
        if found := _WORD.match(self.text, self.at):
            self.at = found.end()
            return _WORDS[found.group()]
        found = _NUMBER.match(self.text, self.at)
        return self.fail("expected a value") if found is None else self.number(found)

    def object(self) -> dict[str, Any]:
        self.enter()
        made: dict[str, Any] = {}
        while self.mark() != "}":
            if self.mark() != '"':
                self.fail('expected a key in double quotes or "}"')
            start = self.at
            key = self.string()
            self.path.append(key)
            self.note(start)
            self.skip()
            self.take(":")
            made[key] = self.value()
            self.path.pop()
            self.separate("}")
        self.at += 1
        return made

    def array(self) -> list[Any]:
        self.enter()
        made: list[Any] = []
        while self.mark() != "]":
            self.path.append(len(made))
            self.note()
            made.append(self.value())
            self.path.pop()
            self.separate("]")
        self.at += 1
        return made

    def enter(self) -> None:
        if len(self.path) >= MAX_DEPTH:
            self.fail(f"nested more than {MAX_DEPTH} levels deep")
        self.at += 1
        self.skip()

    def separate(self, end: str) -> None:
        """Take a comma, which may also stand before the end."""
        self.skip()
        if self.mark() != end:
            self.take(",", f' or "{end}"')

    def take(self, mark: str, otherwise: str = "") -> None:
        if self.mark() != mark:
            self.fail(f'expected "{mark}"{otherwise}')
        self.at += 1
        self.skip()

    def mark(self) -> str:
        return self.text[self.at : self.at + 1]

    def string(self) -> str:
        try:
            found, self.at = scanstring(self.text, self.at + 1, True)
        except JSONDecodeError as error:
            self.at = min(error.pos, len(self.text))
            self.fail("a string is not closed or holds what it may not")
        return mend_text(found)

    def number(self, found: re.Match[str]) -> int | float:
        written = found.group()
        if len(written) > _MAX_DIGITS:
            self.fail("the number is too long")
        made: int | float = json.loads(written)
        if not math.isfinite(made):
            self.fail("the number is too large")
        self.at = found.end()
        return int(made) if abs(made) < _EXACT and made == int(made) else made

    def note(self, start: int | None = None) -> None:
        if self.path == self.wanted[: len(self.path)]:
            self.found = self.at if start is None else start

    def fail(self, why: str) -> NoReturn:
        if self.at >= len(self.text):
            why = f"the file ends too early: {why}"
        raise SyntaxProblem(self.text.count("\n", 0, self.at) + 1, why)
