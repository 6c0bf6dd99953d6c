"""`kedge restore`: brings back a deleted session, or a tail."""

import argparse
from typing import TYPE_CHECKING

from kedge.cli.consent import refuse_agents
from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE
from kedge.cli.failure import CommandFailure
from kedge.cli.json_output import show_json
from kedge.cli.location import add_location, open_engine
from kedge.cli.parser import add_json
from kedge.cli.screen import GREEN, one_line, output
from kedge.cli.selection import add_session, ambiguous, find_session, short

if TYPE_CHECKING:
    from kedge.domain.sessions import SessionInfo
    from kedge.engine.engine import Engine
    from kedge.engine.session import Session

ABOUT = """\
Bring back a deleted session, as `kedge sessions --deleted` lists them; or, with the id of a tail,
make a new session with the messages that a prompt after an undo removed (`kedge tails` lists them).
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("what", metavar="SESSION|TAIL", help="id or beginning of an id")
    add_session(command, option=True)
    add_json(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_restore(options))


async def _restore(options: argparse.Namespace) -> int:
    screen = output()
    async with open_engine(options) as engine:
        await refuse_agents(engine.processes, "kedge restore")
        if options.what.startswith("tail_"):
            session = await _tail(engine, options)
        else:
            session = await engine.sessions.restore(await _deleted(engine, options.what))
    if options.json:
        show_json(screen, session.info)
    else:
        screen.line(
            f"{screen.paint('✓', GREEN)} restored  {short(session.id)}  {one_line(session.title)}"
        )
    return DONE


async def _deleted(engine: "Engine", name: str) -> str:
    whole = f"ses_{name.removeprefix('ses_')}"
    found: list[SessionInfo] = []
    cursor: str | None = None
    while True:
        page = await engine.sessions.deleted(limit=1000, cursor=cursor)
        found += [each.info for each in page.sessions if each.info.id.startswith(whole)]
        cursor = page.cursor
        if cursor is None:
            break
    if len(found) > 1:
        raise CommandFailure(ambiguous(name, found))
    if not found:
        raise CommandFailure(
            f"no session {one_line(name)} is deleted; `kedge sessions --deleted` lists them"
        )
    return found[0].id


async def _tail(engine: "Engine", options: argparse.Namespace) -> "Session":
    session = await find_session(engine, options.session)
    ids = [tail.id for tail in await session.tails() if tail.id.startswith(options.what)]
    if len(ids) != 1:
        found = "several tails of this session begin" if ids else "no tail of this session begins"
        raise CommandFailure(f"{found} with {one_line(options.what)}; `kedge tails` lists them")
    return await session.restore_tail(ids[0])
