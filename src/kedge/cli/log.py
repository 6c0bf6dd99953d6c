"""`kedge log`: the turns of a session, or all that was done to the files of a worktree."""

import argparse
import time
from typing import TYPE_CHECKING

from kedge.cli.calls import calls_of
from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE
from kedge.cli.json_output import as_json, show_json
from kedge.cli.location import add_location, look
from kedge.cli.parser import add_json, count
from kedge.cli.run_end import show_files
from kedge.cli.screen import BOLD, CYAN, DIM, RED, YELLOW, Screen, errors, output, safe
from kedge.cli.selection import add_session, find_session, short
from kedge.cli.table import Cell, Column, Table
from kedge.cli.times import ago, iso, many
from kedge.cli.tool_calls import show_call
from kedge.cli.turns import TurnOfSession, said, text_of, turns_of
from kedge.cli.worktree_log import add_worktree_log, is_wanted, show_worktree_log

if TYPE_CHECKING:
    from kedge.domain.messages import AssistantMessage, MessageWithParts
    from kedge.engine.session import Session

ABOUT = """\
Show the turns of a session: number, prompt, who answered, what it changed. The number names a turn
for `kedge diff`, `cat`, `revert` and `fork`. With --full, the number of each call names it for
`kedge undo --calls`. --all: what sessions, undos and others did to files.
"""
_LONGEST = 500


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_session(command)
    command.add_argument("--files", action="store_true", help="with the files of each turn")
    command.add_argument(
        "--full", action="store_true", help="with all that was said and called, newest last"
    )
    command.add_argument(
        "--limit",
        "-n",
        type=count,
        metavar="N",
        help="only the last N turns (default: all; of --all: 50)",
    )
    add_worktree_log(command)
    add_json(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_async(show_worktree_log(options) if is_wanted(options) else _log(options))


async def _log(options: argparse.Namespace) -> int:
    async with look(options) as engine:
        session = await find_session(engine, options.session)
        turns = await turns_of(session)
    shown = turns[-options.limit :] if options.limit else turns
    screen = output()
    if options.json:
        show_json(screen, [_described(turn) for turn in shown])
    elif not turns:
        errors().line("nothing was asked in this session yet")
    elif options.full:
        for number, turn in enumerate(shown):
            if number:
                screen.line()
            show_turn(screen, session, turn)
    else:
        _show_table(screen, shown, with_files=options.files)
    return DONE


def _described(turn: TurnOfSession) -> object:
    return {
        "turn": turn.number,
        "undone": turn.is_undone,
        "model": turn.model,
        "cost": turn.cost,
        "tokens": turn.tokens,
        "files": as_json(turn.files),
        "prompt": as_json(turn.prompt),
        "answers": as_json(turn.answers),
    }


def _show_table(screen: Screen, turns: list[TurnOfSession], *, with_files: bool) -> None:
    now = time.time() * 1000
    for_each = [turns] if not with_files else [[turn] for turn in turns]
    for group in for_each:
        table = Table(
            Column("turn" if not with_files else "", is_number=True),
            Column("prompt" if not with_files else "", gives_way=True),
            Column("by" if not with_files else "", gives_way=True),
            Column("changed" if not with_files else ""),
            Column("when" if not with_files else ""),
        )
        for turn in group:
            created = turn.prompt.info.time.created
            when = f"{ago(created, now)}, undone" if turn.is_undone else ago(created, now)
            style = YELLOW if turn.is_undone else DIM
            files = many(len(turn.files), "file") if turn.files else ""
            table.add(
                Cell(str(turn.number), CYAN),
                Cell(
                    said(turn.prompt, _LONGEST),
                    BOLD if with_files else "",
                    piped=" ".join(text_of(turn.prompt).split()),
                ),
                Cell(f"{turn.prompt.info.agent}, {turn.model}", DIM),
                Cell(files, piped=str(len(turn.files))),
                Cell(when, style, piped=iso(created)),
            )
        table.show(screen)
        if with_files:
            for turn in group:
                show_files(screen, list(turn.files))


def show_turn(screen: Screen, session: "Session", turn: TurnOfSession) -> None:
    """Everything that was said and done in a turn."""
    undone = screen.paint("  undone", YELLOW) if turn.is_undone else ""
    head = f"{turn.number}  {short(turn.prompt.info.id)}"
    screen.line(f"{screen.paint(head, CYAN)}{undone}")
    for line in safe(text_of(turn.prompt)).splitlines():
        screen.line(f"{screen.paint('│', CYAN)} {screen.paint(line, BOLD)}")
    numbers = {part.id: number for number, part in calls_of(turn)}
    for answer in turn.answers:
        _show_answer(screen, answer, session.info.directory, numbers)


def _show_answer(
    screen: Screen,
    answer: "MessageWithParts[AssistantMessage]",
    directory: str,
    numbers: dict[str, str],
) -> None:
    from kedge.domain.parts import TextPart, ToolPart, part_ended

    for part in answer.parts:
        if isinstance(part, TextPart) and part.text.strip():
            screen.line(safe(part.text.strip("\n")))
        elif isinstance(part, ToolPart) and part_ended(part):
            show_call(screen, part, directory, number=numbers.get(part.id))
    if answer.info.error is not None:
        message = str(answer.info.error.data.get("message") or answer.info.error.name)
        screen.line(f"{screen.paint('✗', RED)} {safe(message)}")
