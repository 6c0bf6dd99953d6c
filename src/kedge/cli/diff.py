"""`kedge diff`: what a turn or a session changed."""

import argparse

from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE, USAGE
from kedge.cli.failure import CommandFailure
from kedge.cli.json_output import show_json
from kedge.cli.location import add_location, look
from kedge.cli.parser import add_json
from kedge.cli.patches import show_patch
from kedge.cli.run_end import show_files
from kedge.cli.screen import errors, one_line, output
from kedge.cli.selection import add_session, find_session
from kedge.cli.turns import find_message

ABOUT = """\
Show what a turn changed, by default the last one that is not undone: only its session's own lines,
not what others did meanwhile.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument(
        "message", nargs="?", metavar="TURN", help="number of a turn, or a message's id"
    )
    command.add_argument("--all", "-a", action="store_true", help="the whole session's changes")
    command.add_argument("--until", metavar="TURN", help="all changes from TURN up to this one")
    command.add_argument("--stat", action="store_true", help="only the names, and how many lines")
    command.add_argument(
        "--undone", action="store_true", help="what a pending undo did to the files"
    )
    add_session(command, option=True)
    add_json(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    _check(options)
    return run_async(_diff(options))


def _check(options: argparse.Namespace) -> None:
    if options.message is not None and (options.all or options.undone):
        raise CommandFailure("give a TURN, --all or --undone, and only one of them", USAGE)
    if options.until is not None and options.message is None:
        raise CommandFailure("--until needs the TURN to begin with", USAGE)


async def _diff(options: argparse.Namespace) -> int:
    screen = output()
    async with look(options) as engine:
        session = await find_session(engine, options.session)
        if options.undone:
            patch = await session.reverted_diff()
            if options.json:
                show_json(screen, {"patch": patch})
            else:
                show_patch(screen, patch)
            return DONE
        wanted: str | None = None
        if options.message is not None:
            wanted = await find_message(session, options.message)
        elif not options.all and (wanted := await session.turn_to_undo()) is None:
            raise CommandFailure("there is no turn in this session that is not undone")
        until = None if options.until is None else await find_message(session, options.until)
        files = await session.diff(wanted, until=until)
    if options.json:
        show_json(screen, files)
    elif not files:
        errors().line("no file was changed")
    elif options.stat:
        show_files(screen, files)
    else:
        for each in files:
            if each.patch is None:
                errors().line(f"note: {one_line(each.file or '')} is too large to be shown")
            else:
                show_patch(screen, each.patch)
    return DONE
