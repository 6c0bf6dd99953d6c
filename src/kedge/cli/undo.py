"""`kedge undo`: takes back the last turn of a session, or any of its calls."""

import argparse
from functools import partial
from typing import TYPE_CHECKING

from kedge.cli.calls import add_calls, are_chosen, carry_out_calls
from kedge.cli.consent import refuse_agents
from kedge.cli.event_loop import run_async
from kedge.cli.failure import CommandFailure
from kedge.cli.location import add_location, open_engine
from kedge.cli.receipts import about_paths, add_choice, add_consent, carry_out, chosen_paths
from kedge.cli.selection import add_session, check_idle, find_session
from kedge.cli.turns import announce_turn

if TYPE_CHECKING:
    from kedge.domain.receipts import Receipt
    from kedge.engine.session import Session

ABOUT = """\
Take back the last turn of a session: its messages are hidden and its changes to files go, while
those of other sessions and of people stay. Again, and the turn before goes as well. `kedge redo`
brings turns back, until the next prompt.

With --calls, --turns or --all: take just these calls out of the files and leave all that came later
in place. No message is hidden, and `kedge redo` brings them back at any time.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_session(command)
    add_calls(command, verb="undo")
    add_choice(command)
    add_consent(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_undo(options))


async def _undo(options: argparse.Namespace) -> int:
    async with open_engine(options) as engine:
        await refuse_agents(engine.processes, "kedge undo")
        session = await find_session(engine, options.session)
        await check_idle(session)
        if are_chosen(options):
            if options.only:
                raise CommandFailure(
                    "--only is for turns; chosen calls leave all messages as they are"
                )
            return await carry_out_calls(session, options, is_redo=False)
        prompt = await session.turn_to_undo()
        if prompt is None:
            raise CommandFailure(
                "there is no turn to undo in this session; `kedge redo` brings back undone ones"
            )
        await announce_turn(session, prompt, "undo")
        act = partial(revert, session, prompt, options)
        return await carry_out(
            act, options, question="Undo it?", done="undone", again="kedge redo brings it back"
        )


async def revert(
    session: "Session", prompt: str, options: argparse.Namespace, dry_run: bool
) -> "Receipt":
    """Revert a session as the options say."""
    paths = chosen_paths(options)
    receipt = await session.revert(
        prompt,
        dry_run=dry_run,
        files=paths,
        strategy=options.strategy,
        scope=options.only or "all",
    )
    return receipt if paths is None else about_paths(receipt, paths, session.worktree)
