"""`kedge tails`: what prompts after an undo removed from a session."""

import argparse
import time

from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE
from kedge.cli.json_output import show_json
from kedge.cli.location import add_location, look
from kedge.cli.parser import add_json
from kedge.cli.screen import DIM, errors, output
from kedge.cli.selection import add_session, find_session, telling_apart
from kedge.cli.sessions import id_cell
from kedge.cli.table import Cell, Column, Table
from kedge.cli.times import ago, iso, many

ABOUT = """\
List the tails of a session: messages that were undone, and removed by the prompt after that. `kedge
restore TAIL` makes a new session with one.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_session(command)
    add_json(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_tails(options))


async def _tails(options: argparse.Namespace) -> int:
    screen = output()
    async with look(options) as engine:
        session = await find_session(engine, options.session)
        tails = await session.tails()
    if options.json:
        show_json(screen, tails)
        return DONE
    if not tails:
        errors().line("no prompt has made an undo final in this session")
    table = Table(Column("tail"), Column("messages", is_number=True), Column("removed"))
    letters = telling_apart([tail.id for tail in tails])
    now = time.time() * 1000
    for tail in tails:
        table.add(
            id_cell(tail.id, letters, with_kind=True),
            Cell(many(tail.messages, "message"), piped=str(tail.messages)),
            Cell(ago(tail.time, now), DIM, iso(tail.time)),
        )
    table.show(screen)
    return DONE
