"""`kedge sessions`: lists and searches sessions."""

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE, USAGE
from kedge.cli.failure import CommandFailure
from kedge.cli.json_output import as_json, show_json
from kedge.cli.location import add_location, look
from kedge.cli.parser import add_json, count
from kedge.cli.progress import Progress
from kedge.cli.screen import BOLD, CYAN, DIM, GREEN, YELLOW, Screen, errors, one_line, output
from kedge.cli.selection import SHORT, short, telling_apart
from kedge.cli.table import Cell, Column, Table
from kedge.cli.times import ago, iso, many

if TYPE_CHECKING:
    from kedge.domain.sessions import SearchHit, SessionInfo, SessionStatus
    from kedge.engine.engine import Engine

ABOUT = """\
List the sessions of this project, the one used last first, or search in what was said and done.
Subtasks are shown below the session that they work for with --tree, else left out.
"""

_PAGE = 1000


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("words", nargs="*", metavar="WORD", help="search for these words")
    command.add_argument("--all", "-a", action="store_true", help="those of all projects")
    which = command.add_mutually_exclusive_group()
    which.add_argument("--archived", action="store_true", help="those that are archived")
    which.add_argument("--deleted", action="store_true", help="those that can be restored")
    command.add_argument("--tree", action="store_true", help="with their subtasks and forks")
    command.add_argument(
        "--limit", "-n", type=count, default=20, metavar="N", help="at most so many (%(default)s)"
    )
    add_json(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    run_async(_show(options))
    return DONE


async def _show(options: argparse.Namespace) -> None:
    if options.words and (options.archived or options.deleted or options.tree):
        raise CommandFailure(
            "words are searched for in all sessions, without --archived, --deleted and --tree",
            USAGE,
        )
    screen = output()
    async with look(options) as engine:
        if options.words:
            await _search(engine, screen, options)
            return
        if options.deleted:
            await _deleted(engine, screen, options)
            return
        infos = await _infos(engine, options)
        running = await engine.statuses()
    if options.json:
        show_json(screen, [_described(info, running) for info in infos])
    elif not infos:
        errors().line(f"no sessions {_where(options)}; `kedge run` or `kedge serve` begins one")
    else:
        rows = _with_depth(infos) if options.tree else [(0, info) for info in infos]
        session_table(rows, running, with_place=options.all).show(screen)


async def _infos(engine: "Engine", options: argparse.Namespace) -> list["SessionInfo"]:
    infos: list[SessionInfo] = []
    cursor: str | None = None
    while len(infos) < options.limit:
        page = await engine.sessions.list(
            everywhere=options.all,
            roots=True,
            archived=options.archived,
            limit=min(_PAGE, options.limit - len(infos)),
            cursor=cursor,
        )
        infos += [session.info for session in page.sessions]
        cursor = page.cursor
        if cursor is None:
            break
    if options.tree:
        with Progress("reading sessions") as progress:
            # It grows: subtasks have subtasks.
            for number, info in enumerate(infos):
                progress.at(number, len(infos))
                session = await engine.sessions.get(info.id)
                infos += [child.info for child in await session.children()]
    return infos


def _where(options: argparse.Namespace) -> str:
    if options.archived:
        return "are archived"
    return "yet" if options.all else "in this project yet"


def _described(info: "SessionInfo", running: dict[str, "SessionStatus"]) -> object:
    status = running.get(info.id)
    return {**as_json(info), "status": as_json(status) if status else {"type": "idle"}}


def _with_depth(infos: Sequence["SessionInfo"]) -> list[tuple[int, "SessionInfo"]]:
    """Every session behind the one that it belongs to, and how deep it stands."""
    known = {info.id for info in infos}
    below: dict[str, list[SessionInfo]] = {}
    for info in infos:
        parent = info.parentID or (info.fork.sessionID if info.fork else "")
        below.setdefault(parent if parent in known else "", []).append(info)
    found: list[tuple[int, SessionInfo]] = []
    left = [(0, info) for info in reversed(below.get("", []))]
    while left:
        depth, info = left.pop()
        found.append((depth, info))
        left += [(depth + 1, each) for each in reversed(below.get(info.id, []))]
    return found


def session_table(
    rows: Sequence[tuple[int, "SessionInfo"]],
    running: dict[str, "SessionStatus"],
    *,
    with_place: bool = False,
) -> Table:
    """Sessions, one a line."""
    place = [Column("directory", gives_way=True)] if with_place else []
    table = Table(
        Column("session"),
        Column("title", gives_way=True),
        Column("changed"),
        Column("used"),
        *place,
    )
    now = time.time() * 1000
    letters = telling_apart([info.id for _, info in rows])
    for depth, info in rows:
        table.add(
            id_cell(info.id, letters),
            Cell(
                f"{'  ' * max(0, depth - 1)}{'└ ' if depth else ''}{info.title}", piped=info.title
            ),
            changed_cell(info),
            used_cell(info, running, now),
            *([Cell(info.directory, DIM)] if with_place else []),
        )
    return table


def id_cell(id: str, letters: int = SHORT, *, with_kind: bool = False) -> Cell:
    """An id: so much of it as must be typed, which is with its kind if it is not a session's."""
    kind = f"{id.partition('_')[0]}_" if with_kind else ""
    return Cell(f"{kind}{short(id, letters)}", CYAN, piped=id)


def changed_cell(info: "SessionInfo") -> Cell:
    """How many files a session changed."""
    summary = info.summary
    files = summary.files if summary else 0
    shown = many(files, "file") if files else ""
    return Cell(shown, "", piped=str(files))


def used_cell(info: "SessionInfo", running: dict[str, "SessionStatus"], now: float) -> Cell:
    """When a session was used last, and what it does now."""
    piped = iso(info.time.updated)
    if info.id in running:
        return Cell("running", GREEN, piped)
    if info.revert is not None:
        return Cell(f"{ago(info.time.updated, now)}, undone", YELLOW, piped)
    return Cell(ago(info.time.updated, now), DIM, piped)


async def _search(engine: "Engine", screen: Screen, options: argparse.Namespace) -> None:
    words = " ".join(options.words)
    found = await engine.sessions.search(words, everywhere=options.all, limit=options.limit)
    if options.json:
        show_json(screen, found.hits)
        return
    if not found.hits:
        errors().line(f"nothing was found for {one_line(words)}")
    table = Table(
        Column("session"), Column("title", gives_way=True), Column("found", gives_way=True)
    )
    for hit in found.hits:
        table.add(id_cell(hit.session.id), Cell(hit.session.title, BOLD), _excerpt(hit))
    table.show(screen)


def _excerpt(hit: "SearchHit") -> Cell:
    return (
        Cell("in its title", DIM, "")
        if hit.messageID is None
        else Cell(" ".join(hit.excerpt.split()))
    )


async def _deleted(engine: "Engine", screen: Screen, options: argparse.Namespace) -> None:
    page = await engine.sessions.deleted(limit=options.limit)
    if options.json:
        show_json(screen, page.sessions)
        return
    if not page.sessions:
        errors().line("no session is deleted")
        return
    table = Table(Column("session"), Column("title", gives_way=True), Column("deleted"))
    now = time.time() * 1000
    for each in page.sessions:
        when = Cell(ago(each.time_deleted, now), DIM, iso(each.time_deleted))
        table.add(id_cell(each.info.id), each.info.title, when)
    table.show(screen)
    errors().line("`kedge restore SESSION` brings one back")
