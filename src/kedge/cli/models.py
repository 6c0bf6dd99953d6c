"""`kedge models`: the models that can be asked here."""

import argparse

from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE
from kedge.cli.failure import CommandFailure
from kedge.cli.json_output import show_json
from kedge.cli.location import add_location, look
from kedge.cli.parser import add_json
from kedge.cli.screen import CYAN, DIM, GREEN, errors, output
from kedge.cli.table import Cell, Column, Table

ABOUT = """\
List the models that can be asked in this folder: those of providers with a key, those that are
configured, and the offline one. Prices are dollars for a million tokens.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("provider", nargs="?", metavar="PROVIDER", help="only those of this one")
    add_json(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_models(options))


async def _models(options: argparse.Namespace) -> int:
    from kedge.agent import Agent

    screen = output()
    async with look(options) as engine, Agent(engine) as agent:
        place = engine.place
        around = await agent.surroundings_of(place.directory, place.worktree)
        providers = around.catalog.providers()
        default = "/".join(around.catalog.default())
    wanted = [each for each in providers if options.provider in (None, each.id)]
    if not wanted:
        known = ", ".join(each.id for each in providers)
        raise CommandFailure(f"no provider {options.provider} can be used here; there are {known}")
    models = [model for provider in wanted for model in provider.models.values()]
    if options.json:
        # Not whole: headers and options may hold secrets.
        fields = ("id", "providerID", "name", "cost", "limit", "capabilities", "variants")
        show_json(screen, [{name: getattr(each, name) for name in fields} for each in models])
        return DONE
    table = Table(
        Column("model"),
        Column("context", is_number=True),
        Column("in", is_number=True),
        Column("out", is_number=True),
        Column(),
    )
    for model in models:
        name = f"{model.providerID}/{model.id}"
        price = (model.cost.input, model.cost.output)
        context = model.limit.context
        table.add(
            Cell(name, CYAN),
            Cell(f"{context // 1000:,}k" if context else "", DIM, piped=str(context)),
            *(Cell(f"{each:g}" if any(price) else "", piped=f"{each:g}") for each in price),
            Cell("default" if name == default else "", GREEN),
        )
    table.show(screen)
    if around.catalog.is_bare and screen.is_terminal:
        errors().line("set a provider's key, such as ANTHROPIC_API_KEY, for others: docs/models.md")
    return DONE
