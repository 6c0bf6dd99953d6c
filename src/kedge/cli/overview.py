"""`kedge` alone: what runs and waits in this project, its last sessions, and what to type next."""

import argparse
import os
from typing import TYPE_CHECKING

from kedge._version import __version__
from kedge.cli.answer import waiting_in, waiting_table
from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE
from kedge.cli.json_output import show_json
from kedge.cli.location import add_location, look
from kedge.cli.parser import add_json
from kedge.cli.screen import BOLD, DIM, GREEN, YELLOW, Screen, one_line, output
from kedge.cli.sessions import session_table

if TYPE_CHECKING:
    from kedge.cli.answer import Request
    from kedge.domain.sessions import SessionInfo
    from kedge.engine.engine import Engine
    from kedge.engine.session import Session

ABOUT = """\
Show what runs and what waits for you in this project, its last sessions, whether its files are
protected, and what to type next. `kedge --help` lists all commands.
"""
_SESSIONS = 5


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_json(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_overview(options))


async def _overview(options: argparse.Namespace) -> int:
    from kedge.server.registry import running_servers

    screen = output()
    async with look(options) as engine:
        place = engine.place
        page = await engine.sessions.list(roots=True, archived=False, limit=_SESSIONS)
        running = await engine.statuses()
        waiting = await waiting_in(engine)
        why = await unprotected(engine, page.sessions[0] if page.sessions else None)
        servers = [each.url for each in running_servers(engine.data, engine.store.location)]
        infos = [session.info for session in page.sessions]
        active = [info for info in infos if info.id in running]
        if options.json:
            show_json(
                screen,
                {
                    "version": __version__,
                    "directory": place.directory,
                    "worktree": place.worktree,
                    "unprotected": why,
                    "servers": servers,
                    "running": sorted(running),
                    "waiting": waiting,
                    "sessions": infos,
                },
            )
            return DONE
    _head(screen, place.worktree, why, servers)
    if waiting:
        _title(screen, "waits for you")
        waiting_table(waiting).show(screen, _indent(screen))
    if infos:
        _title(screen, "last sessions")
        session_table([(0, info) for info in infos], running).show(screen, _indent(screen))
    if screen.is_terminal:
        _next(screen, infos, active, waiting)
    return DONE


async def unprotected(engine: "Engine", last: "Session | None") -> str | None:
    """Why changes to files here cannot be undone; None if they can."""
    from kedge.agent import Agent
    from kedge.cli.turns import turns_of
    from kedge.domain.parts import StepStartPart

    place = engine.place
    async with Agent(engine) as agent:
        around = await agent.surroundings_of(place.directory, place.worktree)
    if not around.config.snapshot:
        return 'the configuration says "snapshot": false'
    status = (await engine.snapshots()).status()
    if status.protection in ("refused", "declared", "degraded"):
        return status.reason
    turns = await turns_of(last) if last is not None else []
    starts = [
        part
        for turn in turns[-1:]
        for answer in turn.answers
        for part in answer.parts
        if isinstance(part, StepStartPart)
    ]
    if starts and all(part.snapshot is None for part in starts):
        return "no snapshot could be taken in the last turn; its receipt says why"
    return None


def _head(screen: Screen, worktree: str, why: str | None, servers: list[str]) -> None:
    home = os.path.expanduser("~")
    shown = f"~{worktree.removeprefix(home)}" if f"{worktree}/".startswith(f"{home}/") else worktree
    screen.line(
        f"{screen.paint('kedge', BOLD)} {screen.paint(__version__, DIM)}  {one_line(shown)}"
    )
    if why is None:
        screen.line(f"  {screen.paint('●', GREEN)} protected: what agents change can be undone")
    else:
        screen.line(f"  {screen.paint('○', YELLOW)} not protected: {one_line(why)}")
    for url in servers:
        screen.line(f"  {screen.paint('●', GREEN)} served on {url}")


def _title(screen: Screen, text: str) -> None:
    screen.line()
    screen.line(screen.paint(text, BOLD))


def _indent(screen: Screen) -> str:
    return "  " if screen.is_terminal else ""


def _next(
    screen: Screen,
    infos: list["SessionInfo"],
    active: list["SessionInfo"],
    waiting: list["Request"],
) -> None:
    """What to type next, by what there is."""
    hints: list[tuple[str, str]] = []
    if waiting:
        hints.append(("kedge answer", "answer what waits"))
    if active:
        hints.append(("kedge abort", "stop what runs"))
    if infos and infos[0].revert is not None:
        hints.append(("kedge redo", "bring back what is undone"))
    elif infos:
        hints.append(("kedge undo", "take back the last turn"))
    if infos:
        hints.append(("kedge log", "the turns of the last session"))
        hints.append(('kedge run -c "…"', "go on with it"))
    else:
        hints.append(('kedge run "…"', "give an agent a prompt"))
        hints.append(("kedge attach", "open OpenCode's terminal UI"))
    hints.append(("kedge --help", "all commands"))
    _title(screen, "next")
    width = max(len(command) for command, _ in hints) + 2
    for command, about in hints:
        screen.line(f"  {command:{width}}{screen.paint(about, DIM)}")
