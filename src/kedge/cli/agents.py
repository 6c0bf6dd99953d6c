"""`kedge agents`: the agents that can be asked here."""

import argparse

from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE
from kedge.cli.json_output import show_json
from kedge.cli.location import add_location, look
from kedge.cli.parser import add_json
from kedge.cli.screen import CYAN, DIM, output
from kedge.cli.table import Cell, Column, Table

ABOUT = """\
List the agents of this folder: those that come with kedge, and those of the configuration.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_json(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_agents(options))


async def _agents(options: argparse.Namespace) -> int:
    from kedge.agent import Agent

    screen = output()
    async with look(options) as engine, Agent(engine) as agent:
        place = engine.place
        around = await agent.surroundings_of(place.directory, place.worktree)
        agents = [each for each in around.agents.list() if not each.hidden]
    if options.json:
        show_json(screen, agents)
        return DONE
    table = Table(
        Column("agent"), Column("for"), Column("model"), Column("what it does", wraps=True)
    )
    for each in agents:
        model = f"{each.model.providerID}/{each.model.modelID}" if each.model else ""
        use = {"primary": "prompts", "subagent": "tasks"}.get(each.mode, "both")
        table.add(Cell(each.name, CYAN), Cell(use, DIM), model, Cell(each.description or ""))
    table.show(screen)
    return DONE
