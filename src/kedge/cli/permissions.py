"""`kedge permissions`: what was allowed in this project by `always`, and how to revoke it."""

import argparse
import time
from typing import TYPE_CHECKING

from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE
from kedge.cli.failure import CommandFailure
from kedge.cli.json_output import show_json
from kedge.cli.location import add_location, look, open_engine
from kedge.cli.parser import add_json
from kedge.cli.screen import BOLD, DIM, errors, one_line, output
from kedge.cli.selection import telling_apart
from kedge.cli.sessions import id_cell
from kedge.cli.table import Cell, Column, Table
from kedge.cli.times import ago, iso

if TYPE_CHECKING:
    from kedge.domain.permissions import AllowedPermission

ABOUT = """\
List what people allowed in this project with "always" while an agent worked, or revoke it. Rules of
the configuration are in `kedge config`.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    what = command.add_mutually_exclusive_group()
    what.add_argument("--revoke", metavar="ID", help="revoke one of them")
    what.add_argument("--revoke-all", action="store_true", help="revoke all of them")
    add_json(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_revoke(options) if options.revoke or options.revoke_all else _list(options))


async def _list(options: argparse.Namespace) -> int:
    screen = output()
    async with look(options) as engine:
        allowed = await engine.asks.allowed()
    if options.json:
        show_json(screen, allowed)
        return DONE
    if not allowed:
        errors().line("nothing is allowed in this project beyond its configuration")
    table = Table(
        Column("id"),
        Column("permission"),
        Column("pattern", gives_way=True),
        Column("until"),
        Column("since"),
    )
    letters = telling_apart([each.id for each in allowed])
    now = time.time() * 1000
    for each in allowed:
        table.add(
            id_cell(each.id, letters, with_kind=True),
            Cell(each.permission, BOLD),
            Cell(each.pattern),
            Cell("revoked" if each.lasting else "its server ends", DIM),
            Cell(ago(each.time, now), DIM, iso(each.time)),
        )
    table.show(screen)
    return DONE


async def _revoke(options: argparse.Namespace) -> int:
    screen = output()
    async with open_engine(options) as engine:
        gone = _meant(await engine.asks.allowed(), options)
        for each in gone:
            await engine.asks.forget_allowed(id=each.id)
            screen.line(f"revoked: {one_line(each.permission)} {one_line(each.pattern)}")
    if options.json:
        show_json(screen, gone)
    return DONE


def _meant(
    allowed: "list[AllowedPermission]", options: argparse.Namespace
) -> "list[AllowedPermission]":
    if options.revoke_all:
        return allowed
    found = [each for each in allowed if each.id.startswith(options.revoke)]
    if len(found) != 1:
        trouble = "several ids begin with" if found else "there is nothing to revoke called"
        raise CommandFailure(
            f"{trouble} {one_line(options.revoke)}; `kedge permissions` lists them"
        )
    return found
