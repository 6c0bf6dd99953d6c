"""`kedge redo`: brings back the turn that was undone last, or any undone calls."""

import argparse
from functools import partial
from typing import TYPE_CHECKING

from kedge.cli.calls import add_calls, are_chosen, carry_out_calls
from kedge.cli.consent import refuse_agents
from kedge.cli.event_loop import run_async
from kedge.cli.failure import CommandFailure
from kedge.cli.location import add_location, open_engine
from kedge.cli.receipts import add_consent, add_files, carry_out
from kedge.cli.selection import add_session, check_idle, find_session
from kedge.cli.turns import announce_turn

if TYPE_CHECKING:
    from kedge.domain.receipts import Receipt
    from kedge.engine.session import Session

ABOUT = """\
Bring back the turn that was undone last, with its messages and its changes to files. Again, and the
next one comes back. What people changed meanwhile stays.

With --calls, --turns or --all: bring back these calls, which `kedge undo` with the same option took
out.
"""

NOTHING = CommandFailure(
    "nothing is undone in this session; `kedge tails` lists what prompts made final"
)


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_session(command)
    add_calls(command, verb="redo")
    add_files(command)
    command.add_argument(
        "--strategy",
        choices=("merge", "abort"),
        default="merge",
        help="where others changed the same lines: leave the file, or do nothing at all; for calls",
    )
    add_consent(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_redo(options))


async def _redo(options: argparse.Namespace) -> int:
    async with open_engine(options) as engine:
        await refuse_agents(engine.processes, "kedge redo")
        session = await find_session(engine, options.session)
        await check_idle(session)
        if are_chosen(options):
            return await carry_out_calls(session, options, is_redo=True)
        if options.files or options.strategy != "merge":
            raise CommandFailure(
                "--files and --strategy are for calls: add --calls, --turns or --all"
            )
        if session.info.revert is None:
            raise NOTHING
        await announce_turn(session, session.info.revert.messageID, "redo")
        act = partial(_forth, session, await session.turn_to_redo())
        return await carry_out(
            act, options, question="Bring it back?", done="back", again="kedge undo takes it out"
        )


async def _forth(session: "Session", next_prompt: str | None, dry_run: bool) -> "Receipt":
    if next_prompt is None:
        return await session.unrevert(dry_run=dry_run)
    return await session.revert(next_prompt, dry_run=dry_run)
