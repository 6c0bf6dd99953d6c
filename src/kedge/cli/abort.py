"""`kedge abort`: stops what runs in a session, in whatever process."""

import argparse

from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE, FAILED
from kedge.cli.location import add_location, open_engine
from kedge.cli.screen import GREEN, errors, one_line, output
from kedge.cli.selection import add_session, find_session

ABOUT = """\
Stop what runs in a session and its subtasks, in whatever process, and wait until it has ended.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_session(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_abort(options))


async def _abort(options: argparse.Namespace) -> int:
    from kedge.domain.sessions import Idle

    screen = output()
    async with open_engine(options) as engine:
        session = await find_session(engine, options.session)
        ran = not isinstance(await session.status(), Idle)
        is_idle = await session.abort()
    title = one_line(session.title)
    if not is_idle:
        errors().line(f"kedge: {title} still runs; its process does not answer, try again later")
        return FAILED
    screen.line(f"{screen.paint('✓', GREEN)} {'stopped' if ran else 'nothing runs in'}: {title}")
    return DONE
