"""`kedge revert`: takes a session back to before any of its messages."""

import argparse
from functools import partial

from kedge.cli.consent import refuse_agents
from kedge.cli.event_loop import run_async
from kedge.cli.location import add_location, open_engine
from kedge.cli.receipts import add_choice, add_consent, carry_out
from kedge.cli.selection import add_session, check_idle, find_session
from kedge.cli.turns import announce_turn, find_message
from kedge.cli.undo import revert

ABOUT = """\
Take a session back to before a message: that message and all after it are hidden, and their changes
to files go. `kedge unrevert` brings all of it back, until the next prompt.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("message", metavar="TURN", help="number of a turn, or a message's id")
    add_session(command, option=True)
    add_choice(command)
    add_consent(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_revert(options))


async def _revert(options: argparse.Namespace) -> int:
    async with open_engine(options) as engine:
        await refuse_agents(engine.processes, "kedge revert")
        session = await find_session(engine, options.session)
        await check_idle(session)
        message = await find_message(session, options.message)
        await announce_turn(session, message, "revert to before")
        act = partial(revert, session, message, options)
        return await carry_out(
            act,
            options,
            question="Take it back?",
            done="reverted",
            again="kedge unrevert brings it back",
        )
