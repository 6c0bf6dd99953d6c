"""`kedge gc`: what takes the space of snapshots, and freeing what nothing needs."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from kedge.cli.consent import refuse_agents_of
from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE, INCOMPLETE
from kedge.cli.json_output import show_json
from kedge.cli.location import add_data
from kedge.cli.parser import add_json
from kedge.cli.progress import bars
from kedge.cli.screen import BOLD, DIM, Screen, errors, one_line, output
from kedge.cli.selection import short
from kedge.cli.table import Cell, Column, Table
from kedge.cli.times import many, size

if TYPE_CHECKING:
    from kedge.maintenance import Held, ProjectCollected, ProjectSpace

ABOUT = """\
Show how much space the snapshots of each project take, what could be freed, and why the rest stays:
which session holds how much, and what is too young or being written. With --yes, free it. Nothing
that a session needs is ever removed, and servers and agents may go on meanwhile.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("--yes", "-y", action="store_true", help="free the space")
    command.add_argument(
        "--all", "-a", action="store_true", help="show all sessions, small ones too"
    )
    add_json(command)
    add_data(command)


_SHOWN = 10


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_collect(options) if options.yes else _survey(options))


async def _survey(options: argparse.Namespace) -> int:
    from kedge.maintenance import survey_space

    with bars() as tell:
        found = await survey_space(data_dir=options.data, database=options.database, progress=tell)
    screen = output()
    if options.json:
        show_json(screen, [_described(each) for each in found])
        return DONE
    if not found:
        errors().line("there are no snapshots")
    for each in found:
        _show(screen, each, _SHOWN if not options.all else len(each.held))
    if sum(each.freed for each in found):
        errors().line("`kedge gc --yes` frees it")
    return DONE


def _show(screen: Screen, project: "ProjectSpace", limit: int) -> None:
    name = project.worktree or f"{project.project} (not known to the database)"
    screen.line(screen.paint(one_line(name), BOLD))
    table = Table(Column("", is_number=True), Column("", wraps=True))
    for count, what in _rows(project):
        table.add(Cell(size(count), piped=str(count)), what)
    held = _joined(project.held)
    for each in held[:limit]:
        table.add(Cell(size(each.alone), piped=str(each.alone)), _named(each))
    table.show(screen, "  " if screen.is_terminal else "")
    if len(held) > limit:
        errors().line(errors().paint(f"  … and {len(held) - limit} more: --all", DIM))
    if project.missing:
        screen.line(f"  {project.missing} objects are missing, so nothing is freed: `kedge doctor`")


def _rows(project: "ProjectSpace") -> list[tuple[int, str]]:
    rows = [
        (project.freed, "can be freed now"),
        (project.young, "needed by nothing, but too young: a process may be about to use it"),
        (project.scattered, "needed by nothing, in packs that are not worth rewriting yet"),
        (project.journals, f"being written, by {many(project.writers, 'process')}"),
        (project.shared, "held by several of those below"),
    ]
    return [row for n, row in enumerate(rows) if row[0] or n == 0]


def _joined(held: "list[Held]") -> "list[Held]":
    """Those of no session as one for each reason."""
    sums: dict[tuple[str, str, str], Held] = {}
    for each in held:
        key = (each.what, each.title, each.why)
        one = sums.get(key)
        sums[key] = (
            each
            if one is None
            else replace(
                one, snapshots=one.snapshots + each.snapshots, alone=one.alone + each.alone
            )
        )
    return sorted(sums.values(), key=lambda each: -each.alone)


def _named(held: "Held") -> str:
    what = f"{short(held.what)} {held.title}" if held.title else held.what
    return f"{what}: {held.why} ({many(held.snapshots, 'snapshot')})"


def _described(project: "ProjectSpace") -> dict[str, object]:
    return {
        "project": project.project,
        "worktree": project.worktree or None,
        "packs": project.packs,
        "journals": project.journals,
        "freed": project.freed,
        "young": project.young,
        "scattered": project.scattered,
        "shared": project.shared,
        "writers": project.writers,
        "missing": project.missing,
        "released": project.released,
        "held": project.held,
    }


async def _collect(options: argparse.Namespace) -> int:
    from kedge.maintenance import collect_space

    await refuse_agents_of(options, "kedge gc --yes")
    with bars() as tell:
        done = await collect_space(data_dir=options.data, database=options.database, progress=tell)
    screen = output()
    if options.json:
        show_json(screen, done)
    else:
        for each in done:
            _tell(screen, each)
    return INCOMPLETE if any(each.failure for each in done) else DONE


def _tell(screen: Screen, done: "ProjectCollected") -> None:
    said = done.failure or done.skipped
    name = one_line(done.worktree or done.project)
    line = f"{name}: {size(done.freed)} freed"
    screen.line(f"{line}; {one_line(said)}" if said else line)
