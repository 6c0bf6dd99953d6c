"""Asks a person at the terminal, and refuses what an agent's own commands must not do."""

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.cli.exit_codes import DECLINED, REFUSED
from kedge.cli.failure import CommandFailure
from kedge.cli.screen import DIM, errors

if TYPE_CHECKING:
    from kedge.engine.processes import Processes


async def refuse_agents(processes: "Processes", command: str) -> None:
    """Refuse a command that grants or destroys something, inside of an agent's own call."""
    _refuse(command, await processes.call_around())


async def refuse_agents_of(options: argparse.Namespace, command: str) -> None:
    """The same for commands that work where no engine can be opened. Where the database cannot be
    asked, what the environment says is enough."""
    from kedge.domain.clock import SystemClock
    from kedge.domain.errors import StoreError
    from kedge.domain.ids import IdMaker
    from kedge.engine.open import open_store
    from kedge.engine.processes import Processes, marked_call
    from kedge.engine.settings import data_folder, database_address

    data, address = data_folder(options.data), database_address(options.database)
    file = data / "kedge.db" if address is None else Path(address)
    if "://" in (address or "") or file.exists():
        try:
            store = await open_store(address, data, IdMaker(SystemClock()))
        except StoreError:
            _refuse(command, marked_call())
            return
        try:
            await refuse_agents(Processes(store), command)
        finally:
            await store.close()
    else:
        _refuse(command, marked_call())


def _refuse(command: str, call: str | None) -> None:
    if call is not None:
        raise CommandFailure(
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
        raise CommandFailure("nothing was changed; to go on, use a terminal or --yes", DECLINED)
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
