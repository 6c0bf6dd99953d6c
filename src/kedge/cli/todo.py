"""`kedge todo`: the todo list of a session."""

import argparse

from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE
from kedge.cli.json_output import show_json
from kedge.cli.location import add_location, look
from kedge.cli.parser import add_json
from kedge.cli.screen import errors, one_line, output
from kedge.cli.selection import add_session, find_session
from kedge.cli.tool_calls import todo_line

ABOUT = """\
Show the todo list that the agent keeps in a session.
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_session(command)
    add_json(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_todo(options))


async def _todo(options: argparse.Namespace) -> int:
    screen = output()
    async with look(options) as engine:
        session = await find_session(engine, options.session)
        todos = await session.todos()
    if options.json:
        show_json(screen, todos)
    elif not todos:
        errors().line("there is no todo list in this session")
    for todo in [] if options.json else todos:
        if screen.is_terminal:
            screen.line(todo_line(screen, todo.content, todo.status, todo.priority))
        else:
            screen.line("\t".join(map(one_line, (todo.status, todo.priority, todo.content))))
    return DONE
