"""Chosen calls of a session, as people name them: the second call of the third turn is `3.2`."""

import argparse
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from kedge.cli.failure import CommandFailure
from kedge.cli.receipts import carry_out, chosen_paths
from kedge.cli.screen import BOLD, DIM, clip, errors, one_line
from kedge.cli.selection import short
from kedge.cli.times import many
from kedge.cli.turns import TurnOfSession, find_message, turns_of

if TYPE_CHECKING:
    from kedge.domain.parts import ToolPart
    from kedge.domain.receipts import Receipt, RevertStrategy
    from kedge.engine.session import Session

_SHOWN = 8


def add_calls(command: argparse.ArgumentParser, *, verb: str) -> None:
    """Add the options that name calls."""
    command.add_argument(
        "--calls",
        nargs="+",
        metavar="CALL",
        help=f"{verb} only these calls: 3.2 is the second of turn 3 (`kedge log --full`); or ids",
    )
    command.add_argument(
        "--turns",
        nargs="+",
        metavar="TURN",
        help=f"{verb} only the calls of these turns: numbers, or ids of messages",
    )
    command.add_argument(
        "--all", action="store_true", help=f"{verb} all calls of the session; see --files"
    )


def are_chosen(options: argparse.Namespace) -> bool:
    """Whether calls are named; if not, the last turn is meant."""
    return bool(options.calls or options.turns or options.all)


def calls_of(turn: TurnOfSession) -> "Iterator[tuple[str, ToolPart]]":
    """The calls of a turn that have ended, with their names."""
    from kedge.domain.parts import ToolPart

    parts = (part for answer in turn.answers for part in answer.parts)
    calls = (part for part in parts if isinstance(part, ToolPart))
    for number, part in enumerate(calls, start=1):
        yield f"{turn.number}.{number}", part


async def carry_out_calls(session: "Session", options: argparse.Namespace, *, is_redo: bool) -> int:
    """Undo or redo the calls that the options name: preview, question, receipt."""
    named = await _named(session, options)
    paths = chosen_paths(options)
    if paths is not None or options.all:
        named["files"] = [session.worktree] if paths is None else paths
    act = partial(_act, session, named, options.strategy, is_redo)
    _announce(session, named, "redo" if is_redo else "undo")
    return await carry_out(
        act,
        options,
        question="Put it back?" if is_redo else "Undo it?",
        done="back" if is_redo else "undone",
        again=f"kedge {'undo' if is_redo else 'redo'} with the same options"
        f" {'takes it out' if is_redo else 'brings it back'}",
    )


async def _act(
    session: "Session",
    named: dict[str, Any],
    strategy: "RevertStrategy",
    is_redo: bool,
    dry_run: bool,
) -> "Receipt":
    act = session.redo if is_redo else session.undo
    return await act(**named, strategy=strategy, dry_run=dry_run)


async def _named(session: "Session", options: argparse.Namespace) -> dict[str, Any]:
    if options.all and (options.calls or options.turns):
        raise CommandFailure("--all means all calls: leave out --calls and --turns")
    named: dict[str, Any] = {}
    if options.calls:
        turns = await turns_of(session)
        named["parts"] = [_find_call(turns, name) for name in options.calls]
    if options.turns:
        named["messages"] = [await find_message(session, name) for name in options.turns]
    return named


def _find_call(turns: list[TurnOfSession], name: str) -> str:
    """The part of the call that is meant: by its number, or an id of it or the beginning of one."""
    calls = [each for turn in turns for each in calls_of(turn)]
    whole = f"prt_{name.removeprefix('prt_')}"
    exact = [part.id for number, part in calls if name in (number, part.callID, part.id)]
    found = exact or [part.id for _, part in calls if part.id.startswith(whole)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise CommandFailure(
            f"there is no call {one_line(name)}; `kedge log --full` shows the calls with their"
            " numbers"
        )
    numbers = [number for number, part in calls if part.id in found]
    shown = ", ".join(numbers[:_SHOWN]) + (", …" if len(numbers) > _SHOWN else "")
    raise CommandFailure(f"{one_line(name)} may be {shown}; name one of these")


def _announce(session: "Session", named: dict[str, Any], verb: str) -> None:
    """Say on standard error what a command is about."""
    screen = errors()
    counts = [(len(named.get("parts", ())), "call"), (len(named.get("messages", ())), "turn")]
    what = " and ".join(many(count, noun) for count, noun in counts if count) or "all calls"
    title = f"in {clip(one_line(session.title), 60)} ({short(session.id)})"
    screen.line(f"{verb} {screen.paint(what, BOLD)} {screen.paint(title, DIM)}")
