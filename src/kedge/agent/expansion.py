"""Templates of commands: puts arguments and the output of shell lines into their places.

A template may have `$1`, `$2`, … and `$ARGUMENTS`, and shell lines as in !`git status`. Only what
the template itself says has a meaning: arguments and outputs may contain the same signs, and stay
text. A shell line is made with its arguments as they are, so permission is asked for the line that
runs.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_ARGUMENT = re.compile(r"""\[Image \d+\]|"([^"]*)"|'([^']*)'|[^\s"']+""")
_PLACE = re.compile(r"\$(\d{1,4}|ARGUMENTS)")
_LINE = re.compile(r"!`([^`]+)`")


@dataclass(frozen=True, slots=True)
class ShellLine:
    """A line whose output takes its place in the text."""

    command: str


Piece = str | ShellLine


def split_arguments(text: str) -> list[str]:
    """The arguments in a text: words, and what stands in quotes."""
    return [
        next((inner for inner in found.groups() if inner is not None), found[0])
        for found in _ARGUMENT.finditer(text)
    ]


def hints(template: str) -> list[str]:
    """The places of a template: each number once, as text in order, then all arguments."""
    found = {each[0] for each in _PLACE.finditer(template)}
    numbers = sorted(found - {"$ARGUMENTS"})
    return [*numbers, "$ARGUMENTS"] if "$ARGUMENTS" in found else numbers


def pieces(template: str, arguments: str) -> list[Piece]:
    """The text with its arguments, and the shell lines in it.

    The highest number takes all arguments from there on. A template without places gets the
    arguments behind its end.
    """
    places = _Places(template, arguments)
    made: list[Piece] = []
    end = 0
    for line in _LINE.finditer(template):
        made.append(places.filled(template[end : line.start()]))
        made.append(ShellLine(places.filled(line[1])))
        end = line.end()
    made.append(places.filled(template[end:]))
    if not _PLACE.search(template) and arguments.strip():
        made.append(f"\n\n{arguments}")
    return [piece for piece in made if piece != ""]


class _Places:
    def __init__(self, template: str, arguments: str) -> None:
        numbers = [int(each[1]) for each in _PLACE.finditer(template) if each[1].isdecimal()]
        self._highest = max(numbers, default=0)
        self._all = arguments
        self._split = split_arguments(arguments)

    def filled(self, text: str) -> str:
        return _PLACE.sub(self._value, text)

    def _value(self, place: re.Match[str]) -> str:
        if place[1] == "ARGUMENTS":
            return self._all
        number = int(place[1])
        if number == 0:
            return ""
        last = None if number == self._highest else number
        return " ".join(self._split[number - 1 : last])


@dataclass(frozen=True, slots=True)
class Expanded:
    """The text of a prompt, and which parts of it are outputs of shell lines."""

    text: str
    outputs: Sequence[tuple[int, int]] = ()


def expanded(found: Sequence[Piece], outputs: Mapping[str, str]) -> Expanded:
    """The pieces in one text, without blanks around it; `outputs` has that of each line."""
    text = ""
    spans = []
    for piece in found:
        start = len(text)
        if isinstance(piece, ShellLine):
            text += outputs[piece.command]
            spans.append((start, len(text)))
        else:
            text += piece
    skipped = len(text) - len(text.lstrip())
    text = text.strip()
    moved = [(max(start - skipped, 0), min(end - skipped, len(text))) for start, end in spans]
    return Expanded(text, [(start, end) for start, end in moved if start < end])
