"""`kedge config`: prints the merged configuration of a folder, as JSON with comments, and the
permissions that users gave there."""

import argparse
import json
import os
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from kedge.cli.event_loop import run_async
from kedge.cli.json_output import show_json
from kedge.cli.location import add_place, open_place
from kedge.cli.parser import add_json
from kedge.cli.screen import output

if TYPE_CHECKING:
    from kedge.config.files import LoadedFile
    from kedge.config.values import Config
    from kedge.domain.permissions import AllowedPermission

ABOUT = """\
Print the configuration of a folder as kedge has merged it, without secrets: JSON, and as comments
the files it comes from (the last wins), what of them is ignored, and which model answers when
neither a prompt nor the session names one.

This does not include what you allowed with "always" while an agent worked: --allowed lists that.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_place(command)
    what = command.add_mutually_exclusive_group()
    add_json(what)
    what.add_argument(
        "--allowed", action="store_true", help='list what was allowed in this project by "always"'
    )
    what.add_argument("--forget", metavar="ID", help="revoke one entry of that list")
    what.add_argument("--forget-all", action="store_true", help="revoke all entries of that list")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.json:
        show_json(output(), run_async(_described(options)))
        return 0
    if options.allowed:
        lines = _allowed(options)
    elif options.forget is not None or options.forget_all:
        lines = _forget(options)
    else:
        lines = _lines(options)
    for line in run_async(lines):
        print(line)
    return 0


async def _allowed(options: argparse.Namespace) -> list[str]:
    import kedge
    from kedge.config.display import printable

    async with kedge.open(
        options.directory, data_dir=options.data, database=options.database
    ) as engine:
        found = await engine.asks.allowed()
        worktree = engine.place.worktree
    if not found:
        return [printable(f"nothing is allowed in {worktree} beyond its configuration")]
    lines = []
    for each in found:
        since = datetime.fromtimestamp(each.time / 1000).astimezone()
        until = "for good" if each.lasting else "until its server ends"
        lines.append(f"{each.id}  {_named(each)}  {until}, since {since:%Y-%m-%d %H:%M}")
    return lines


async def _forget(options: argparse.Namespace) -> list[str]:
    import kedge
    from kedge.domain.errors import NotFound

    async with kedge.open(
        options.directory, data_dir=options.data, database=options.database
    ) as engine:
        found = await engine.asks.allowed()
        await engine.asks.forget_allowed(id=options.forget)
    gone = [each for each in found if options.forget in (None, each.id)]
    if options.forget is not None and not gone:
        raise NotFound("Permission rule", options.forget)
    return [f"revoked: {_named(each)}" for each in gone]


def _named(allowed: "AllowedPermission") -> str:
    from kedge.config.display import printable

    return printable(f"{allowed.permission}: {allowed.pattern}")


async def _loaded(options: argparse.Namespace) -> "tuple[list[LoadedFile], Config]":
    from kedge.config.files import home_of
    from kedge.config.load import config_of

    async with open_place(options) as place:
        files = await place.trusting.files(place.directory, place.worktree)
    return files, config_of(files, home_of(os.environ))


async def _described(options: argparse.Namespace) -> dict[str, object]:
    """All of it for programs."""
    from kedge.config.display import redacted

    files, config = await _loaded(options)
    return {
        "files": [
            {"path": str(file.path), "own": file.root is None, "trusted": file.trusted}
            for file in files
        ],
        "notices": list(map(str, config.notices)),
        "restrictions": [line.strip() for line in _restrictions(config)],
        "model": _model(config),
        "config": redacted(config.raw),
    }


async def _lines(options: argparse.Namespace) -> list[str]:
    from kedge.config.display import printable, redacted

    files, config = await _loaded(options)
    lines = ["files:"] if files else ["there are no configuration files"]
    for file in files:
        whose = "yours" if file.root is None else "trusted" if file.trusted else "not trusted"
        lines.append(f"  {file.path} ({whose})")
    if config.notices:
        lines += ["notices:", *(f"  {notice}" for notice in config.notices)]
    if strict := list(_restrictions(config)):
        lines += ["rules of untrusted files, which can only make permissions stricter:", *strict]
    lines.append(f"default model: {_model(config)}")
    comments = [f"// {printable(line)}" for line in lines]
    return [*comments, json.dumps(redacted(config.raw), indent=2)]


def _model(config: "Config") -> str:
    """The model for a first prompt that names neither an agent nor a model."""
    from kedge.domain.agents import BUILD
    from kedge.model.catalog import Catalog

    agent = config.agent.get(config.default_agent or BUILD)
    own = None if agent is None else agent.model
    return own or config.model or "/".join(Catalog(config, os.environ).default())


def _restrictions(config: "Config") -> Iterator[str]:
    from kedge.config.display import dotted

    found = [((), rules) for rules in config.restrictions]
    of_agents = [
        (("agent", name), rules)
        for name, each in config.agent.items()
        for rules in each.restrictions
    ]
    for where, rules in (*found, *of_agents):
        for rule in rules:
            key = dotted((*where, "permission", rule.permission, rule.pattern))
            yield f"  {key}: {rule.action}"
