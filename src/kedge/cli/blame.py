"""`kedge blame`: who wrote each line of a file."""

import argparse
import os
import time
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE
from kedge.cli.json_output import show_json
from kedge.cli.location import add_location, look
from kedge.cli.parser import add_json
from kedge.cli.screen import CYAN, DIM, YELLOW, Screen, errors, one_line, output, safe
from kedge.cli.selection import short
from kedge.cli.table import Cell, Column, Table
from kedge.cli.times import ago, iso

if TYPE_CHECKING:
    from kedge.domain.blame import Blame, LineOrigin

ABOUT = """\
Show who wrote each line of a file as it is now: which call of which session; or another program or
person, several sessions at once, or somebody before kedge. Lines that an undo brought back are
their authors', not those of who undid something.
"""
_TAB = 4
_NARROW = 60
"""Cells of a line in which turn and time would leave no room for the text."""
_NAMES = {"before": "before kedge", "unrecorded": "not recorded yet"}


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("file", metavar="FILE", help="the file, as seen from here")
    add_json(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_blame(options))


async def _blame(options: argparse.Namespace) -> int:
    async with look(options) as engine:
        blame = await engine.blame(os.fsencode(options.file))
    screen = output()
    if options.json:
        show_json(screen, blame)
    elif not blame.lines:
        errors().line("the file is empty")
    elif screen.is_terminal:
        _show_table(screen, blame)
    else:
        for line in _piped(blame):
            screen.line(line)
    return DONE


def _piped(blame: "Blame") -> Iterator[str]:
    """Lines for programs; the text is last, as it may hold tabs."""
    for number, line in enumerate(blame.lines, start=1):
        origin = blame.origins[line.origin]
        call = (origin.sessionID, origin.promptID, origin.partID, origin.tool)
        when = "" if origin.time is None else iso(origin.time)
        values = (origin.kind, *(each or "" for each in call), when, str(number))
        yield "\t".join((*map(one_line, values), safe(line.text)))


def _show_table(screen: Screen, blame: "Blame") -> None:
    now = time.time() * 1000
    # Of who wrote it; on a narrow terminal not all has room.
    shown = [0, 2] if screen.width < _NARROW else [0, 1, 2, 3]
    titles = ("session", "turn", "call", "when")
    table = Table(
        *(Column(titles[n], gives_way=n in (0, 2)) for n in shown),
        Column("line", is_number=True),
        Column("", gives_way=True),
    )
    lines = enumerate(blame.lines, start=1)
    for origin, group in groupby(lines, lambda each: each[1].origin):
        # Said once for neighbouring lines.
        cells = _cells(blame.origins[origin], now)
        who = [cells[n] for n in shown]
        for number, line in group:
            table.add(*who, Cell(str(number), DIM), Cell(line.text.expandtabs(_TAB)))
            who = [Cell("")] * len(who)
    table.show(screen)


def _cells(origin: "LineOrigin", now: float) -> list[Cell]:
    when = "" if origin.time is None else ago(origin.time, now)
    if origin.kind != "session":
        style = DIM if origin.kind == "before" else YELLOW
        return [Cell(_NAMES.get(origin.kind, origin.kind), style), *[Cell("")] * 2, Cell(when, DIM)]
    return [
        Cell(short(origin.sessionID or ""), CYAN),
        Cell(short(origin.promptID or "")),
        Cell(origin.tool or ""),
        Cell(when, DIM),
    ]
