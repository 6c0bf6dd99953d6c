"""`kedge stats`: tokens and cost by day, model or project."""

import argparse
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE
from kedge.cli.json_output import show_json
from kedge.cli.location import add_location, look
from kedge.cli.parser import add_json, count
from kedge.cli.progress import Progress
from kedge.cli.screen import BOLD, DIM, errors, output
from kedge.cli.table import Cell, Column, Table
from kedge.cli.times import moment
from kedge.cli.turns import all_messages

if TYPE_CHECKING:
    from kedge.domain.messages import AssistantMessage
    from kedge.domain.sessions import SessionInfo
    from kedge.engine.engine import Engine

ABOUT = """\
Show tokens and cost by day, model or project: of this project, or of all.
"""
_DAY = 86_400_000
_WAYS = ("day", "model", "project")


@dataclass(slots=True)
class _Sum:
    messages: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    cost: float = 0.0

    def add(self, info: "AssistantMessage") -> None:
        """Count a message."""
        self.messages += 1
        self.input += info.tokens.input
        self.output += info.tokens.output + info.tokens.reasoning
        self.cached += info.tokens.cache.read
        self.cost += info.cost


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("--by", choices=_WAYS, default="day", help="the rows (%(default)s)")
    command.add_argument(
        "--days", type=count, default=30, metavar="N", help="so many days back (%(default)s)"
    )
    command.add_argument("--all", "-a", action="store_true", help="all projects")
    add_json(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_stats(options))


async def _stats(options: argparse.Namespace) -> int:
    since = max(0.0, time.time() * 1000 - options.days * _DAY)
    screen = output()
    async with look(options) as engine:
        sums = await _sums(engine, since, options)
    if options.json:
        show_json(screen, [{options.by: key, **_plain(each)} for key, each in sorted(sums.items())])
        return DONE
    if not sums:
        errors().line(f"nothing was asked in the last {options.days} days")
        return DONE
    numbers = ("answers", "tokens in", "cached", "out", "cost")
    table = Table(
        Column(options.by, gives_way=options.by != "day"),
        *(Column(name, is_number=True) for name in numbers),
    )
    total = _Sum()
    for key, each in sorted(sums.items()):
        table.add(key, *_cells(each))
        for name in total.__slots__:
            setattr(total, name, getattr(total, name) + getattr(each, name))
    if screen.is_terminal and len(sums) > 1:
        table.add(Cell("in all", BOLD), *_cells(total))
    table.show(screen)
    return DONE


def _plain(each: _Sum) -> dict[str, float]:
    return {name: getattr(each, name) for name in each.__slots__}


def _cells(each: _Sum) -> list[Cell]:
    counts = (each.messages, each.input, each.cached, each.output)
    cost = Cell(f"${each.cost:.2f}" if each.cost else "", DIM, piped=f"{each.cost:.6f}")
    return [*(Cell(f"{number:,}", piped=str(number)) for number in counts), cost]


async def _sums(engine: "Engine", since: float, options: argparse.Namespace) -> dict[str, _Sum]:
    from kedge.domain.messages import AssistantMessage

    infos = await _sessions(engine, since, options)
    sums: dict[str, _Sum] = defaultdict(_Sum)
    with Progress("reading sessions", len(infos)) as progress:
        for done, info in enumerate(infos):
            progress.at(done)
            session = await engine.sessions.get(info.id)
            # What a fork copied was paid for in the session that it was copied from.
            first = max(since, info.time.created if info.fork else 0)
            for message in await all_messages(session):
                found = message.info
                if isinstance(found, AssistantMessage) and found.time.created >= first:
                    sums[_key(found, info, options.by)].add(found)
    return sums


async def _sessions(
    engine: "Engine", since: float, options: argparse.Namespace
) -> list["SessionInfo"]:
    found: list[SessionInfo] = []
    cursor: str | None = None
    while True:
        page = await engine.sessions.list(
            everywhere=options.all, start=since, limit=1000, cursor=cursor
        )
        found += [session.info for session in page.sessions]
        cursor = page.cursor
        if cursor is None:
            return found


def _key(message: "AssistantMessage", info: "SessionInfo", by: str) -> str:
    if by == "day":
        return f"{moment(message.time.created):%Y-%m-%d}"
    if by == "model":
        return f"{message.providerID}/{message.modelID}"
    return info.worktree
