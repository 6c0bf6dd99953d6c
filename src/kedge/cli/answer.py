"""`kedge answer`: answers what runs ask people, in whatever process they are."""

import argparse
from typing import TYPE_CHECKING

from kedge.cli.answers import Answers, chosen_answers, keyboard
from kedge.cli.consent import refuse_agents
from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE
from kedge.cli.failure import CommandFailure
from kedge.cli.json_output import show_json
from kedge.cli.location import add_location, open_engine
from kedge.cli.parser import add_json
from kedge.cli.screen import CYAN, DIM, GREEN, errors, one_line, output
from kedge.cli.table import Cell, Column, Table

if TYPE_CHECKING:
    from kedge.domain.permissions import PermissionRequest
    from kedge.domain.questions import QuestionRequest
    from kedge.engine.engine import Engine

    Request = PermissionRequest | QuestionRequest

ABOUT = """\
Answer the permissions and questions that runs wait for: all of them in turn at a terminal, or one
by its id. REPLY to a permission is yes, always, no, or what to do instead; to a question the number
of an answer, or your own words (several questions: one REPLY each).
"""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("id", nargs="?", metavar="ID", help="id, as the list shows it")
    command.add_argument("reply", nargs="*", metavar="REPLY", help="the answer")
    command.add_argument("--list", action="store_true", help="only list what waits")
    add_json(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(_answer(options))


async def _answer(options: argparse.Namespace) -> int:
    screen = output()
    async with open_engine(options) as engine:
        waiting = await waiting_in(engine)
        if options.id is not None:
            await refuse_agents(engine.processes, "kedge answer")
            await _one(engine, _meant(waiting, options.id), options.reply)
            screen.line(f"{screen.paint('✓', GREEN)} answered")
            return DONE
        if options.json:
            show_json(screen, waiting)
            return DONE
        if not waiting:
            errors().line("nothing waits for an answer in this folder")
            return DONE
        terminal = None if options.list else keyboard()
        if terminal is None or not screen.is_terminal:
            waiting_table(waiting).show(screen)
            return DONE
        await refuse_agents(engine.processes, "kedge answer")
        answers = Answers(engine.asks, screen, _Page(), terminal, is_own=False)
        for request in waiting:
            await _ask(answers, request)
    return DONE


class _Page:
    """There is nothing else on the screen."""

    def pause(self) -> None:
        """Do nothing."""


async def waiting_in(engine: "Engine") -> "list[Request]":
    """What waits for a person in the engine's directory."""
    place = engine.place.directory
    found: list[Request] = [*await engine.asks.permissions(directory=place)]
    return [*found, *await engine.asks.questions(directory=place)]


def waiting_table(waiting: "list[Request]") -> Table:
    """What waits, one request a line."""
    table = Table(Column("waits"), Column("for"), Column("what", gives_way=True))
    for request in waiting:
        kind, what = described(request)
        table.add(Cell(request.id, CYAN), Cell(kind, DIM), Cell(what))
    return table


def described(request: "Request") -> tuple[str, str]:
    """What kind of request it is, and what it is about."""
    from kedge.domain.permissions import PermissionRequest

    if isinstance(request, PermissionRequest):
        command = request.metadata.get("command")
        about = command if isinstance(command, str) else ", ".join(request.patterns)
        return request.permission, about
    return "question", " ".join(question.question for question in request.questions)


async def _ask(answers: Answers, request: "Request") -> None:
    from kedge.domain.errors import NotFound
    from kedge.domain.permissions import PermissionRequest

    try:
        if isinstance(request, PermissionRequest):
            await answers.permission(request)
        else:
            await answers.question(request)
    except NotFound:
        errors().line("it was answered elsewhere meanwhile")


def _meant(waiting: "list[Request]", id: str) -> "Request":
    found = [each for each in waiting if each.id.startswith(id)]
    if len(found) != 1:
        trouble = "several requests begin with" if found else "nothing waits under"
        raise CommandFailure(f"{trouble} {one_line(id)}; `kedge answer --list` lists what waits")
    return found[0]


async def _one(engine: "Engine", request: "Request", reply: list[str]) -> None:
    from kedge.domain.permissions import PermissionRequest

    if not reply:
        raise CommandFailure("give the answer, too: kedge answer ID yes|always|no|WORDS")
    if not isinstance(request, PermissionRequest):
        words = reply if len(request.questions) > 1 else [" ".join(reply)]
        if len(words) != len(request.questions):
            raise CommandFailure(
                f"there are {len(request.questions)} questions; give one REPLY for each"
            )
        found = [chosen_answers(*each) for each in zip(request.questions, words, strict=True)]
        answers = [each for each in found if each is not None]
        if len(answers) < len(found):
            raise CommandFailure("that is none of the answers; give a number, or words of your own")
        await engine.asks.reply_question(request.id, answers)
        return
    match " ".join(reply).lower():
        case "yes" | "y" | "once":
            await engine.asks.reply_permission(request.id, "once")
        case "always":
            await engine.asks.reply_permission(request.id, "always", lasting=True)
        case "no" | "n" | "reject":
            await engine.asks.reply_permission(request.id, "reject")
        case _:
            await engine.asks.reply_permission(request.id, "reject", " ".join(reply))
