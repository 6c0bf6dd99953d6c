"""Ctrl-C in the middle of commands."""

import pytest

from tests.cli.terminal import Terminal


@pytest.mark.parametrize("command", ["undo --yes", "archive last", "doctor --repair --yes"])
def test_a_locked_database_keeps_nobody_waiting(terminal: Terminal, command: str) -> None:
    """The command says who has the lock, and Ctrl-C ends the wait within seconds."""
