"""`kedge config`: the merged configuration of a folder, as JSON with comments."""

import argparse
import asyncio
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kedge.cli.places import add_place, open_place

if TYPE_CHECKING:
    from kedge.config.values import Config

_ABOUT = """\
Print the configuration of a folder as kedge has merged it, without secrets: JSON, and as comments
the files it comes from (the last wins), what of them is ignored, and which model answers when
neither a prompt nor the session names one.
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Tell the parser."""
    command = commands.add_parser(
        "config", help="print the merged configuration of a folder", description=_ABOUT
    )
    add_place(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Carry it out."""
    for line in asyncio.run(_lines(options)):
        print(line)
    return 0


async def _lines(options: argparse.Namespace) -> list[str]:
    from kedge.config.files import home_of
    from kedge.config.loading import config_of
    from kedge.config.naming import printable
    from kedge.config.redacting import redacted

    async with open_place(options) as place:
        files = await place.trusting.files(place.directory, place.worktree)
    config = config_of(files, home_of(os.environ))
    lines = ["files:"] if files else ["there are no configuration files"]
    for file in files:
        whose = "yours" if file.root is None else "trusted" if file.trusted else "not trusted"
        lines.append(f"  {file.path} ({whose})")
    if config.notices:
        lines += ["notices:", *(f"  {notice}" for notice in config.notices)]
    if strict := list(_restrictions(config)):
        lines += ["rules of untrusted files, which only make stricter what holds:", *strict]
    lines.append(f"without another choice, prompts are answered by {_model(config)}")
    comments = [f"// {printable(line)}" for line in lines]
    return [*comments, json.dumps(redacted(config.raw), indent=2)]


def _model(config: "Config") -> str:
    """Who answers a first prompt that names neither an agent nor a model."""
    from kedge.domain.agents import BUILD
    from kedge.model.catalog import Catalog

    agent = config.agent.get(config.default_agent or BUILD)
    own = None if agent is None else agent.model
    return own or config.model or "/".join(Catalog(config, os.environ).default())


def _restrictions(config: "Config") -> Iterator[str]:
    from kedge.config.naming import dotted

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
