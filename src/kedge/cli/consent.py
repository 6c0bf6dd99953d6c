"""Asks a person at the terminal, and refuses what an agent's own commands must not do."""

import os
import signal
import sys
from typing import TYPE_CHECKING

from kedge.cli.exit_codes import DECLINED, REFUSED
from kedge.cli.failure import Failure
from kedge.cli.screen import DIM, errors

if TYPE_CHECKING:
    from kedge.engine.processes import Processes


async def refuse_agents(processes: "Processes", command: str) -> None:
    """Refuse a command that grants or destroys something, inside of an agent's own call."""
    if (call := await processes.call_around()) is not None:
        raise Failure(
            f"{command} is for people: this runs inside of an agent's call ({call}), which must"
            " not decide that; run it in a terminal of your own",
            REFUSED,
        )


def can_ask() -> bool:
    """Whether there is a person to ask."""
    return sys.stdin.isatty()


def agrees(question: str, *, enter: bool = False) -> bool:
    """Whether a person says yes; `enter` is what the key alone means. Without a terminal this fails
    and says how to do without."""
    if not can_ask():
        raise Failure("nothing was changed; to go on, use a terminal or --yes", DECLINED)
    screen = errors()
    # Python can miss a Ctrl-C right before it starts to wait; nothing is open here.
    before = signal.signal(signal.SIGINT, _leave)
    try:
        screen.write(f"{question} {screen.paint('[Y/n]' if enter else '[y/N]', DIM)} ")
        answer = sys.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, before)
    if not answer:
        # Ctrl-D leaves the cursor behind the question.
        screen.line()
        return False
    said = answer.strip().lower()
    return enter if not said else said in ("y", "yes")


def _leave(*_: object) -> None:
    os.write(2, b"\nkedge: interrupted; nothing was changed\n")
    os._exit(130)
