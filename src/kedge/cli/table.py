"""Tables: aligned and fitted to the width on a terminal, tab-separated lines when piped.

What is piped has no head, is never cut, and has whole ids and times, so that other programs can
read it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kedge.cli.screen import DIM, Screen, cells, clip, one_line, pad, wrap

_GAP = 2
_LEAST = 8
"""Cells that a column which gives way keeps."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A value; its text may hold any characters."""

    text: str
    style: str = ""
    piped: str | None = None
    """What other programs get instead."""
    rest: str = ""
    """More of the text, shown dimmed: the part of an id that need not be typed."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; an empty title is not shown."""

    title: str = ""
    gives_way: bool = False
    """Whether it is cut where the width does not do."""
    is_number: bool = False
    """Whether it is aligned to the right."""
    wraps: bool = False
    """Whether it goes on in the next line where the width does not do; the last column can."""


class Table:
    """Rows of cells below their titles."""

    def __init__(self, *columns: Column) -> None:
        self._columns = columns
        self._rows: list[list[Cell]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, *row: Cell | str) -> None:
        """Add a row."""
        self._rows.append([Cell(each) if isinstance(each, str) else each for each in row])

    def show(self, screen: Screen, indent: str = "") -> None:
        """Write it."""
        if not screen.is_terminal:
            for row in self._rows:
                values = (
                    cell.text + cell.rest if cell.piped is None else cell.piped for cell in row
                )
                screen.line("\t".join(map(one_line, values)))
            return
        if not self._rows:
            return
        rows = [[(one_line(cell.text), one_line(cell.rest)) for cell in row] for row in self._rows]
        widths = self._widths(rows, screen.width - len(indent))
        if any(column.title for column in self._columns):
            titles = [(column.title, "") for column in self._columns]
            styles = [DIM] * len(titles)
            screen.line(indent + self._line(screen, titles, styles, widths))
        for row, texts in zip(self._rows, rows, strict=True):
            styles = [cell.style for cell in row]
            first, *more = wrap(texts[-1][0], widths[-1]) if self._columns[-1].wraps else [""]
            if self._columns[-1].wraps:
                texts[-1] = (first, "")
            screen.line(indent + self._line(screen, texts, styles, widths))
            margin = indent + " " * (sum(widths[:-1]) + _GAP * (len(widths) - 1))
            for line in more:
                screen.line(margin + screen.paint(line, styles[-1]))

    def _widths(self, rows: Sequence[Sequence[tuple[str, str]]], room: int) -> list[int]:
        widths = [
            max([cells(column.title), *(cells("".join(row[n])) for row in rows)])
            for n, column in enumerate(self._columns)
        ]
        yielding = [n for n, column in enumerate(self._columns) if column.gives_way or column.wraps]
        excess = sum(min(width, room) for width in widths) + _GAP * (len(widths) - 1) - room
        widths = [min(width, room) for width in widths]
        while excess > 0 and yielding:
            # The widest gives way first, so that no column is lost for another one.
            widest = max(yielding, key=widths.__getitem__)
            if widths[widest] <= _LEAST:
                break
            widths[widest] -= 1
            excess -= 1
        return widths

    def _line(
        self,
        screen: Screen,
        texts: Sequence[tuple[str, str]],
        styles: Sequence[str],
        widths: Sequence[int],
    ) -> str:
        shown = []
        for (text, rest), style, width, column in zip(
            texts, styles, widths, self._columns, strict=True
        ):
            first = clip(text, width)
            second = clip(rest, width - cells(first))
            blank = " " * (width - cells(first) - cells(second))
            whole = screen.paint(first, style) + screen.paint(second, DIM)
            shown.append(blank + whole if column.is_number else whole + blank)
        return (" " * _GAP).join(shown).rstrip()


def pairs(screen: Screen, rows: Sequence[tuple[str, str]], indent: str = "") -> None:
    """Write names and values that are safe already, one pair a line."""
    width = max((cells(name) for name, _ in rows), default=0) + _GAP
    for name, value in rows:
        screen.line(f"{indent}{screen.paint(pad(name, width), DIM)}{value}")
