"""`kedge unrevert`: brings back all that is undone in a session."""

import argparse
from typing import TYPE_CHECKING

from kedge.cli.consent import refuse_agents
from kedge.cli.event_loop import run_async
from kedge.cli.location import add_location, open_engine
from kedge.cli.receipts import add_consent, carry_out
from kedge.cli.redo import NOTHING
from kedge.cli.selection import add_session, check_idle, find_session
from kedge.cli.turns import announce_turn

if TYPE_CHECKING:
    from kedge.domain.receipts import Receipt

ABOUT = """\
Bring back all turns that are undone in a session, with their changes to files. What people changed
meanwhile stays.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_session(command)
    add_consent(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_unrevert(options))


async def _unrevert(options: argparse.Namespace) -> int:
    async with open_engine(options) as engine:
        await refuse_agents(engine.processes, "kedge unrevert")
        session = await find_session(engine, options.session)
        await check_idle(session)
        if session.info.revert is None:
            raise NOTHING
        await announce_turn(session, session.info.revert.messageID, "bring back everything from")

        async def act(dry_run: bool) -> "Receipt":
            return await session.unrevert(dry_run=dry_run)

        return await carry_out(
            act, options, question="Bring it back?", done="back", again="kedge undo takes it out"
        )
