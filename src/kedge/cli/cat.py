"""`kedge cat`: a file as it was at a message."""

import argparse
import os
import sys

from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE
from kedge.cli.location import add_location, look
from kedge.cli.screen import output, safe
from kedge.cli.selection import add_session, find_session
from kedge.cli.turns import end_of_turn, find_message

ABOUT = """\
Print a file as it was when a turn was over, whoever had changed it; --before: as it was when the
turn began. Piped, these are its bytes.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("file", metavar="FILE", help="the file, as seen from here")
    command.add_argument(
        "--at",
        default="last",
        metavar="TURN",
        help="number of a turn, or a message (default: last)",
    )
    command.add_argument("--before", action="store_true", help="as it was before the turn")
    add_session(command, option=True)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_cat(options))


async def _cat(options: argparse.Namespace) -> int:
    async with look(options) as engine:
        session = await find_session(engine, options.session)
        message = await find_message(session, options.at)
        if not options.before:
            message = await end_of_turn(session, message)
        content = await session.file(message, _path(options))
    screen = output()
    if screen.is_terminal:
        text = safe(content.decode(errors="replace"))
        screen.write(text if text.endswith("\n") or not text else f"{text}\n")
    else:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    return DONE


def _path(options: argparse.Namespace) -> bytes:
    """The file, from the folder where the command was run."""
    folder = os.path.realpath(options.directory)
    return os.fsencode(os.path.normpath(os.path.join(folder, options.file)))
