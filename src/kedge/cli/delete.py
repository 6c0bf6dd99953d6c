"""`kedge delete`: deletes sessions, which can be restored for some days."""

import argparse

from kedge.cli.consent import agrees, refuse_agents
from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DECLINED, DONE
from kedge.cli.location import add_location, open_engine
from kedge.cli.screen import DIM, GREEN, errors, one_line, output
from kedge.cli.selection import find_session, short
from kedge.cli.times import many

ABOUT = """\
Delete sessions and their subtasks; what runs in them is stopped. Files stay as they are. `kedge
restore` brings a session back for seven days, then its history is gone.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument(
        "sessions", nargs="+", metavar="SESSION", help="id or beginning of an id, or `last`"
    )
    command.add_argument("--yes", "-y", action="store_true", help="do it without asking")
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_delete(options))


async def _delete(options: argparse.Namespace) -> int:
    screen = output()
    async with open_engine(options) as engine:
        await refuse_agents(engine.processes, "kedge delete")
        sessions = [await find_session(engine, name) for name in options.sessions]
        for session in sessions:
            screen.line(f"  {short(session.id)}  {one_line(session.title)}")
        screen.flush()
        if not options.yes and not agrees(f"Delete {many(len(sessions), 'session')}?"):
            errors().line("nothing was changed")
            return DECLINED
        for session in sessions:
            await session.delete()
    hint = screen.paint("kedge restore brings it back for seven days", DIM)
    screen.line(f"{screen.paint('✓', GREEN)} deleted  {hint}")
    return DONE
