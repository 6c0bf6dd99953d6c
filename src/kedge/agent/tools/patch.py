"""Patches: parses their text, and fits each of their pieces to the file it changes.

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
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kedge.agent.tools.edit import KEYS, MOST_PLACES, indented, places_of_lines
from kedge.agent.tools.text_file import FileText
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
class Hunk:
    """Consecutive lines, and their changes."""

    anchors: list[str] = field(default_factory=list)
    """Lines that come somewhere before, in this order."""
    line: int | None = None
    """The number of the first line, if the patch gives it."""
    lines: list[tuple[Literal[" ", "-", "+"], str]] = field(default_factory=list)
    at_end: bool = False
    """Whether the lines are the last ones of the file."""
    blank: int = 0
    """How many of the last lines are completely empty, without even the blank of an unchanged
    line."""

    @property
    def old(self) -> list[str]:
        """The lines that must be there."""
        return [text for kind, text in self.lines if kind != "+"]

    @property
    def new(self) -> list[str]:
        """The lines that replace them."""
        return [text for kind, text in self.lines if kind == "+"]


@dataclass(slots=True)
class FilePatch:
    """What a patch does to one file."""

    kind: Kind
    path: str
    move: str | None = None
    pieces: list[Hunk] = field(default_factory=list)
    line_end: bool | None = None
    """Whether the last line should end with a line end; None leaves that as it is."""


def parse(text: str) -> list[FilePatch]:
    """The files of a patch; raises `ToolFailure` that names the wrong line."""
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
            file.pieces.append(Hunk())
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
        file.pieces.append(Hunk())
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
        file.pieces.append(piece := Hunk())
    match line[:1]:
        case "-":
            piece.lines.append(("-", line[1:]))
        case "+":
            piece.lines.append(("+", line[1:]))
        case _:
            piece.lines.append((" ", line[1:]))
    piece.blank = 0 if line else piece.blank + 1


def _no_line_end(file: FilePatch) -> None:
    """The marker is about the line before it: a removed one had no line end, and the next one
    has."""
    lines = _piece(file).lines
    file.line_end = bool(lines) and lines[-1][0] == "-"


def _piece(file: FilePatch) -> Hunk:
    if not file.pieces:
        file.pieces.append(Hunk())
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


Scope: TypeAlias = list[range]
"""Parts of a file, as ranges of line numbers from 0."""


def anchored(lines: Sequence[str], anchors: Sequence[str], cursor: int, path: str) -> list[int]:
    """The lines that the last of the anchors may mean, each after the ones before it; none if there
    are no anchors. Raises `ToolFailure` if one is not found."""
    starts: list[int] = []
    for anchor in anchors:
        found = _found(lines, starts, cursor, lambda line: line.strip() == anchor)  # noqa: B023
        if not found:
            found = _found(lines, starts, cursor, lambda line: anchor in line)  # noqa: B023
            if len(found) > 1:
                raise _unclear(path, anchor, len(found))
        if not found:
            raise ToolFailure(
                f'The patch does not fit {path}: there is no line "@@ {anchor}"'
                f"{after(starts[0] + 1 if starts else cursor)}. "
                "Read the file again; nothing was changed."
            )
        if len(found) > MOST_PLACES:
            raise _unclear(path, anchor, len(found))
        starts = found
    return starts


def scopes(lines: Sequence[str], starts: Sequence[int], cursor: int) -> Iterator[Scope]:
    """Where to look for lines that belong to anchors, the nearest first: in what is indented below
    them, in the rest of the same block, and in everything after them."""
    if starts:
        for slack in (1, 0):
            ends = _ends(lines, starts, slack)
            yield [range(start + 1, ends[start]) for start in starts]
    yield [range(starts[0] + 1 if starts else cursor, len(lines))]


def within(scope: Scope, places: Sequence[int]) -> list[int]:
    """Those of some sorted positions that lie in the scope."""
    found = {
        at
        for part in scope
        for at in places[bisect_left(places, part.start) : bisect_left(places, part.stop)]
    }
    return sorted(found)


def after(first: int) -> str:
    """A description of the scope that was searched."""
    return f" after line {first}" if first else ""


def _found(
    lines: Sequence[str], starts: Sequence[int], cursor: int, means: Callable[[str], bool]
) -> list[int]:
    places = [at for at in range(cursor, len(lines)) if means(lines[at])]
    return next(
        filter(None, (within(scope, places) for scope in scopes(lines, starts, cursor))), []
    )


def _ends(lines: Sequence[str], starts: Sequence[int], slack: int) -> dict[int, int]:
    """For each of the lines the first one after it that is indented less; with slack, not more."""
    ends = dict.fromkeys(starts, len(lines))
    open: list[tuple[int, int]] = []
    for at in range(starts[0], len(lines)):
        bare = lines[at].lstrip()
        if not bare:
            continue
        indent = len(lines[at]) - len(bare)
        while open and indent < open[-1][0] + slack:
            ends[open.pop()[1]] = at
        if at in ends:
            open.append((indent, at))
    return ends


def _unclear(path: str, anchor: str, count: int) -> ToolFailure:
    return ToolFailure(
        f'The patch does not say clearly where to change {path}: "@@ {anchor}" is in {count} '
        "lines. Give a whole line that is there once, or several, from the outside in; nothing was "
        "changed."
    )


_BOM = "\ufeff"
_SHOWN = 3


def _exactly(line: str) -> str:
    return line


_KEYS = (_exactly, *KEYS)


def patched(text: FileText, file: FilePatch) -> FileText:
    """The text with all hunks of a patch applied; raises `ToolFailure` if one does not fit."""
    mark = _BOM if text.whole.startswith(_BOM) else ""
    raw = text.whole.removeprefix(_BOM).split("\n")
    had_end = raw[-1] == ""
    if had_end:
        raw.pop()
    lines = [line.removesuffix("\r") for line in raw]
    ends = ["\r\n" if line.endswith("\r") else "\n" for line in raw]
    if not had_end:
        lines[-1], ends[-1] = raw[-1], text.line_end
    made: list[str] = []
    cursor = 0
    for piece in file.pieces:
        at = _place(lines, piece, cursor, file.path)
        made += _joined(lines, ends, cursor, at)
        cursor = _apply(piece, lines, ends, at, text.line_end, made)
    made += _joined(lines, ends, cursor, len(lines))
    keeps_end = had_end if file.line_end is None else file.line_end
    return FileText(mark + _finished("".join(made), text.line_end, keeps_end))


def new_text(file: FilePatch) -> FileText:
    """The content of a file that a patch adds."""
    lines = [line for piece in file.pieces for _, line in piece.lines]
    return FileText("\n".join(lines) + ("\n" if lines and file.line_end is not False else ""))


def _joined(lines: Sequence[str], ends: Sequence[str], first: int, after: int) -> list[str]:
    return [line + end for line, end in zip(lines[first:after], ends[first:after], strict=True)]


def _apply(
    piece: Hunk, lines: Sequence[str], ends: Sequence[str], at: int, end: str, made: list[str]
) -> int:
    """Add the result of a hunk; unchanged lines are kept as the file has them."""
    old = piece.old
    new = iter(indented(piece.new, old, lines[at : at + len(old)]))
    for kind, _ in piece.lines:
        if kind == "+":
            made.append(next(new) + end)
            continue
        if kind == " ":
            made.append(lines[at] + ends[at])
        at += 1
    return at


def _finished(text: str, line_end: str, keeps_end: bool) -> str:
    if keeps_end or not text.endswith("\n"):
        return text
    return text.removesuffix("\n").removesuffix("\r") if line_end == "\r\n" else text[:-1]


def _place(lines: Sequence[str], piece: Hunk, cursor: int, path: str) -> int:
    """The number of the line, from 0, at which a hunk applies."""
    starts = anchored(lines, piece.anchors, cursor, path)
    if not piece.old:
        return _of_new_lines(lines, piece, starts, cursor, path)
    first = starts[0] + 1 if starts else cursor
    by_key = [
        [first + at for at in places_of_lines(lines[first:], piece.old, key)] for key in _KEYS
    ]
    where = list(scopes(lines, starts, cursor))
    # The end of the file and a number are more precise than the block of an anchor.
    for scope in where[-1:] if piece.at_end or piece.line is not None else where:
        for places in by_key:
            if found := within(scope, places):
                return _chosen(found, lines, piece, path)
    raise ToolFailure(
        f"The patch does not fit {path}: these lines are not there{after(first)}:\n"
        + "\n".join(piece.old[:_SHOWN])
        + "\nRead the file again; nothing was changed."
    )


def _of_new_lines(
    lines: Sequence[str], piece: Hunk, starts: list[int], cursor: int, path: str
) -> int:
    """Lines without context go after their anchor, to their number, or to the end."""
    if starts:
        return _chosen([start + 1 for start in starts], lines, piece, path)
    if piece.line is not None and cursor <= piece.line <= len(lines):
        return piece.line
    return len(lines)


def _chosen(found: list[int], lines: Sequence[str], piece: Hunk, path: str) -> int:
    last = len(lines) - len(piece.old)
    if piece.at_end and last in found:
        return last
    if piece.line is not None and piece.line - 1 in found:
        return piece.line - 1
    if len(found) == 1:
        return found[0]
    numbers = ", ".join(str(at + 1) for at in found[:_SHOWN])
    more = ", ..." if len(found) > _SHOWN else ""
    raise ToolFailure(
        f"The patch does not say clearly where to change {path}: its lines are there {len(found)} "
        f"times (at lines {numbers}{more}). Give more lines around them, or lines that stand "
        "before them after @@, from the outside in; nothing was changed."
    )
