"""The text of a patch as the files and pieces that it names; nothing is looked up on disk.

*** Begin Patch
*** Update File: src/app.py
*** Move to: src/main.py
@@ def greet():
 context
-old line
+new line
*** Add File: notes.txt
+first line
*** Delete File: old.txt
*** End Patch
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kedge.agent.tools.tool import ToolFailure

Kind: TypeAlias = Literal["add", "update", "delete"]

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_KINDS: dict[str, Kind] = {"Add": "add", "Update": "update", "Delete": "delete"}
_FILE = re.compile(r"\*\*\* (Add|Update|Delete) File: ?(.+)")
_MOVE = re.compile(r"\*\*\* Move to: ?(.+)")
_END_OF_FILE = "*** End of File"
_NO_LINE_END = "\\ No newline at end of file"
_RANGE = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@ ?(.*)")


@dataclass(slots=True)
class Piece:
    """Lines that stand together, and what becomes of them."""

    anchors: list[str] = field(default_factory=list)
    """Lines that stand somewhere before, in this order."""
    line: int | None = None
    """The number of the first line, where the patch says it."""
    lines: list[tuple[Literal[" ", "-", "+"], str]] = field(default_factory=list)
    at_end: bool = False
    """The lines are the last ones of the file."""
    blank: int = 0
    """So many of the last lines have nothing in them, not even the blank of a line that stays."""

    @property
    def old(self) -> list[str]:
        """The lines that have to be there."""
        return [text for kind, text in self.lines if kind != "+"]

    @property
    def new(self) -> list[str]:
        """The lines that come."""
        return [text for kind, text in self.lines if kind == "+"]


@dataclass(slots=True)
class FilePatch:
    """What a patch does to one file."""

    kind: Kind
    path: str
    move: str | None = None
    pieces: list[Piece] = field(default_factory=list)
    line_end: bool | None = None
    """Whether the last line should end with one; None leaves that as it is."""


def parse(text: str) -> list[FilePatch]:
    """The files of a patch; raises `ToolFailure` that names the line which is wrong."""
    files: list[FilePatch] = []
    for number, line in _body(text):
        found = _FILE.fullmatch(line.rstrip())
        if found:
            files.append(FilePatch(_KINDS[found[1]], found[2].strip()))
        elif not files:
            if line.strip():
                raise _wrong(number, line, "a file has to be named first")
        else:
            _READERS[files[-1].kind](files[-1], number, line)
    _check(files)
    return files


def _body(text: str) -> Iterator[tuple[int, str]]:
    """The numbered lines between the first and the last one of the patch."""
    lines = text.replace("\r\n", "\n").split("\n")
    marks = [line.strip() for line in lines]
    if _BEGIN not in marks or _END not in marks:
        raise ToolFailure(f'The patch has to begin with "{_BEGIN}" and to end with "{_END}".')
    first, last = marks.index(_BEGIN), len(marks) - 1 - marks[::-1].index(_END)
    yield from enumerate(lines[first + 1 : last], first + 2)


def _add(file: FilePatch, number: int, line: str) -> None:
    if line.startswith("+"):
        if not file.pieces:
            file.pieces.append(Piece())
        file.pieces[0].lines.append(("+", line[1:]))
        file.line_end = True
    elif line == _NO_LINE_END:
        file.line_end = False
    elif line.strip():
        raise _wrong(number, line, 'each line of a new file begins with "+"')


def _delete(file: FilePatch, number: int, line: str) -> None:
    if line.strip():
        raise _wrong(number, line, "nothing follows the name of a file to delete")


def _update(file: FilePatch, number: int, line: str) -> None:
    moved = _MOVE.fullmatch(line.rstrip())
    if moved and not file.pieces and file.move is None:
        file.move = moved[1].strip()
    elif line.startswith("@@"):
        _anchor(file, line)
    elif line.rstrip() == _END_OF_FILE:
        _piece(file).at_end = True
    elif line == _NO_LINE_END:
        _no_line_end(file)
    elif line[:1] in ("", " ", "-", "+"):
        _line(file, line)
    else:
        raise _wrong(number, line, 'a line begins with " ", "-", "+" or "@@"')


def _anchor(file: FilePatch, line: str) -> None:
    if not file.pieces or file.pieces[-1].lines:
        file.pieces.append(Piece())
    piece = file.pieces[-1]
    numbered = _RANGE.fullmatch(line.rstrip())
    if numbered:
        piece.line = int(numbered[1])
    else:
        anchor = line[2:].removesuffix("@@").strip()
        if anchor:
            piece.anchors.append(anchor)


def _line(file: FilePatch, line: str) -> None:
    piece = _piece(file)
    if piece.at_end:
        file.pieces.append(piece := Piece())
    match line[:1]:
        case "-":
            piece.lines.append(("-", line[1:]))
        case "+":
            piece.lines.append(("+", line[1:]))
        case _:
            piece.lines.append((" ", line[1:]))
    piece.blank = 0 if line else piece.blank + 1


def _no_line_end(file: FilePatch) -> None:
    """The marker is about the line before it: one that goes had no end, and the next one has."""
    lines = _piece(file).lines
    file.line_end = bool(lines) and lines[-1][0] == "-"


def _piece(file: FilePatch) -> Piece:
    if not file.pieces:
        file.pieces.append(Piece())
    return file.pieces[-1]


def _check(files: list[FilePatch]) -> None:
    if not files:
        raise ToolFailure("The patch names no file.")
    for file in files:
        for piece in file.pieces:
            # They were put before the next file for looks.
            del piece.lines[len(piece.lines) - piece.blank :]
        file.pieces = [piece for piece in file.pieces if piece.lines]
        if file.kind == "update" and not file.pieces and file.move is None:
            raise ToolFailure(f"The patch says nothing of what to change in {file.path}.")


_READERS = {"add": _add, "delete": _delete, "update": _update}


def _wrong(number: int, line: str, why: str) -> ToolFailure:
    return ToolFailure(f"Line {number} of the patch is wrong, {why}: {line[:200]!r}")
