"""Ctrl-C while a command waits for what another process holds."""

import signal

import pytest

from tests.cli.locks import held
from tests.cli.projects import prompts
from tests.cli.terminal import Terminal


@pytest.mark.parametrize("times", [1, 2])
async def test_a_locked_database_keeps_nobody_waiting(terminal: Terminal, times: int) -> None:
    """It is said who has it locked; one Ctrl-C ends the wait soon, a second one at once."""
    await prompts(terminal, "write a.txt one")
    database = terminal.data / "kedge.db"
    with held(database), terminal.keyboard("undo", "--yes") as keyboard:
        keyboard.until("is locked by")
        for _ in range(times):
            keyboard.type(b"\x03")
            keyboard.until("stopping; Ctrl-C again leaves at once")
        done = keyboard.end()
    assert done.code == 128 + signal.SIGINT
    assert "Traceback" not in done.out
    assert (terminal.project / "a.txt").read_text() == "one\n"
    assert terminal.run("undo", "--yes").code == 0
