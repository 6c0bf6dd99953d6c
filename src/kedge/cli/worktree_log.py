"""What `kedge log --all` shows: everything that was done to the files of a worktree."""

import argparse
import os
import re
import time
from datetime import datetime
from typing import TYPE_CHECKING

from kedge.cli.exit_codes import DONE
from kedge.cli.json_output import show_json
from kedge.cli.location import look
from kedge.cli.run_end import SIGNS
from kedge.cli.screen import BOLD, CYAN, DIM, RED, YELLOW, Screen, errors, one_line, output
from kedge.cli.selection import find_session, short
from kedge.cli.times import ago, iso, many

if TYPE_CHECKING:
    from kedge.domain.timeline import TimelineEntry, TimelineFile

_LIMIT = 50
_MOST_FILES = 5
_AGO = re.compile(r"(\d{1,6})(min|h|d)")
_SECONDS = {"min": 60, "h": 3600, "d": 86400}
_UNKNOWN = ("?", RED)


def point_in_time(text: str) -> float:
    """A time in milliseconds, from a date, a date with a time, or how long ago it was."""
    if found := _AGO.fullmatch(text):
        return (time.time() - int(found[1]) * _SECONDS[found[2]]) * 1000
    try:
        return datetime.fromisoformat(text).timestamp() * 1000
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; 2026-11-19, 2026-11-19T15:00, 30min, 2h and 3d are"
        ) from None


def add_worktree_log(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument(
        "--all",
        "-a",
        action="store_true",
        help="all that was done to the files here, by whatever session, newest first",
    )
    command.add_argument(
        "--path", metavar="FILE", help="with --all: only this file, or what is in this folder"
    )
    command.add_argument(
        "--since", type=point_in_time, metavar="TIME", help="with --all: a date, or 30min, 2h, 3d"
    )
    command.add_argument("--until", type=point_in_time, metavar="TIME", help="the same for the end")


def is_wanted(options: argparse.Namespace) -> bool:
    """Whether it is asked for."""
    return options.all or any(
        each is not None for each in (options.path, options.since, options.until)
    )


async def show_worktree_log(options: argparse.Namespace) -> int:
    """Show it."""
    async with look(options) as engine:
        session = None
        if options.session is not None:
            session = (await find_session(engine, options.session)).id
        page = await engine.timeline.list(
            path=None if options.path is None else os.fsencode(options.path),
            session=session,
            since=options.since,
            until=options.until,
            limit=options.limit or _LIMIT,
        )
    screen = output()
    if options.json:
        show_json(screen, page.entries)
    elif not page.entries:
        errors().line("nothing was done to these files")
    elif screen.is_terminal:
        for entry in page.entries:
            _show(screen, entry, whole=options.files)
    else:
        for entry in page.entries:
            _pipe(screen, entry)
    if page.cursor is not None and not options.json:
        errors().line("there is more; --limit shows it")
    return DONE


def _show(screen: Screen, entry: "TimelineEntry", *, whole: bool) -> None:
    when = "" if entry.time is None else ago(entry.time, time.time() * 1000)
    if entry.kind == "outside":
        who = screen.paint("outside", YELLOW)
        when = f"found {when}" if when else ""
    else:
        does = one_line(entry.tool or "call") if entry.kind == "session" else entry.kind
        title = one_line(entry.title or "")
        who = f"{screen.paint(short(entry.sessionID or ''), CYAN)} {screen.paint(does, BOLD)}"
        who = f"{who}  {title}" if title else who
    screen.line(f"{who}  {screen.paint(when, DIM)}".rstrip())
    shown = entry.files if whole else entry.files[:_MOST_FILES]
    for file in shown:
        sign, style = SIGNS.get(file.status, _UNKNOWN)
        screen.line(f"  {screen.paint(sign, style)} {one_line(file.path)}")
    rest = len(entry.files) - len(shown) + (entry.more or 0)
    if rest:
        screen.line(screen.paint(f"  … {many(rest, 'more file')}", DIM))


def _pipe(screen: Screen, entry: "TimelineEntry") -> None:
    """A line for each file; one without a file for what touched none."""
    when = "" if entry.time is None else iso(entry.time)
    ids = (entry.sessionID, entry.promptID, entry.partID, entry.tool)
    files: list[TimelineFile | None] = [*entry.files] or [None]
    for file in files:
        about = ("", "") if file is None else (file.status, file.path)
        values = (when, entry.kind, *(each or "" for each in ids), *about)
        screen.line("\t".join(map(one_line, values)))
