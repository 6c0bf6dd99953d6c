"""`kedge show`: one session, and its last turn."""

import argparse
import time
from typing import TYPE_CHECKING

from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE
from kedge.cli.json_output import as_json, show_json
from kedge.cli.location import add_location, look
from kedge.cli.log import show_turn
from kedge.cli.parser import add_json
from kedge.cli.screen import BOLD, GREEN, YELLOW, Screen, one_line, output
from kedge.cli.selection import add_session, find_session, short
from kedge.cli.table import pairs
from kedge.cli.times import ago, iso, many, moment
from kedge.cli.turns import turns_of

if TYPE_CHECKING:
    from kedge.domain.sessions import SessionInfo, SessionStatus

ABOUT = """\
Show one session: where it works, what it used and changed, and its last turn.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_session(command)
    add_json(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_show(options))


async def _show(options: argparse.Namespace) -> int:
    async with look(options) as engine:
        session = await find_session(engine, options.session)
        status = await session.status()
        children, forks = await session.children(), await session.forks()
        tails, todos = await session.tails(), await session.todos()
        turns = await turns_of(session)
    screen = output()
    if options.json:
        show_json(
            screen,
            {
                **as_json(session.info),
                "status": status,
                "turns": len(turns),
                "children": [each.id for each in children],
                "forks": [each.id for each in forks],
                "tails": tails,
                "todos": todos,
            },
        )
        return DONE
    open_todos = [todo for todo in todos if todo.status not in ("completed", "cancelled")]
    counts = (
        (len(children), "subtask"),
        (len(forks), "fork"),
        (len(tails), "tail"),
        (len(open_todos), "open todo"),
    )
    screen.line(screen.paint(one_line(session.title), BOLD))
    rows = _rows(screen, session.info, status)
    rows.append(("turns", str(len(turns))))
    if also := ", ".join(many(number, noun) for number, noun in counts if number):
        rows.append(("also", also))
    pairs(screen, rows, "  ")
    if turns:
        screen.line()
        show_turn(screen, session, turns[-1])
    return DONE


def _when(screen: Screen, time: float, now: float) -> str:
    told = f"{moment(time):%Y-%m-%d %H:%M}" if screen.is_terminal else iso(time)
    return f"{ago(time, now)} ({told})"


def _rows(screen: Screen, info: "SessionInfo", status: "SessionStatus") -> list[tuple[str, str]]:
    from kedge.domain.sessions import Idle

    now = time.time() * 1000
    used, tokens, summary = info.time, info.tokens, info.summary
    state = "idle" if isinstance(status, Idle) else screen.paint("running", GREEN)
    if info.revert is not None:
        state += screen.paint(f", undone from {short(info.revert.messageID)} on", YELLOW)
    if used.archived is not None:
        state += ", archived"
    rows = [
        ("session", info.id),
        ("folder", one_line(info.directory)),
        ("state", state),
        ("used", _when(screen, used.updated, now)),
        ("begun", _when(screen, used.created, now)),
    ]
    if info.fork is not None:
        rows.append(("fork of", info.fork.sessionID))
    if info.parentID is not None:
        rows.append(("subtask of", info.parentID))
    if info.model is not None:
        who = f"{info.agent}, " if info.agent else ""
        rows.append(("answered by", one_line(f"{who}{info.model.providerID}/{info.model.id}")))
    cost = f", ${info.cost:.4f}" if info.cost else ""
    rows.append(("tokens", f"{tokens.input:,} in, {tokens.output:,} out{cost}"))
    if summary is not None and summary.files:
        lines = f"+{summary.additions} -{summary.deletions}"
        rows.append(("changed", f"{many(summary.files, 'file')}, {lines}"))
    return rows
