"""`kedge archive`: puts sessions out of the way, or back."""

import argparse

from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE
from kedge.cli.location import add_location, open_engine
from kedge.cli.screen import GREEN, one_line, output
from kedge.cli.selection import find_session, short

ABOUT = """\
Put sessions and their subtasks out of the way: lists leave them out. Nothing is lost.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument(
        "sessions", nargs="+", metavar="SESSION", help="id or beginning of an id, or `last`"
    )
    command.add_argument("--back", action="store_true", help="list them again")
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_archive(options))


async def _archive(options: argparse.Namespace) -> int:
    screen = output()
    async with open_engine(options) as engine:
        # All are found before one is changed.
        for session in [await find_session(engine, name) for name in options.sessions]:
            await session.update(archived=not options.back)
            verb = "listed again" if options.back else "archived"
            done = f"{screen.paint('✓', GREEN)} " if screen.is_terminal else ""
            screen.line(f"{done}{verb}  {short(session.id)}  {one_line(session.title)}")
    return DONE
