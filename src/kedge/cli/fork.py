"""`kedge fork`: makes a copy of a session, whole or up to a turn."""

import argparse

from kedge.cli.consent import refuse_agents
from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE
from kedge.cli.json_output import show_json
from kedge.cli.location import add_location, open_engine
from kedge.cli.parser import add_json
from kedge.cli.screen import GREEN, one_line, output
from kedge.cli.selection import add_session, find_session, short
from kedge.cli.turns import find_message

ABOUT = """\
Make a new session with the messages of another one, or with those before a turn. Files are not
touched.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_session(command)
    command.add_argument("--before", metavar="TURN", help="only the messages before this turn")
    add_json(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_fork(options))


async def _fork(options: argparse.Namespace) -> int:
    screen = output()
    async with open_engine(options) as engine:
        await refuse_agents(engine.processes, "kedge fork")
        session = await find_session(engine, options.session)
        before = None if options.before is None else await find_message(session, options.before)
        fork = await session.fork(before)
    if options.json:
        show_json(screen, fork.info)
    elif screen.is_terminal:
        screen.line(f"{screen.paint('✓', GREEN)} {short(fork.id)}  {one_line(fork.title)}")
    else:
        screen.line(fork.id)
    return DONE
