"""A terminal for each test of the command line."""

from pathlib import Path

import pytest

from tests.cli.terminal import Terminal


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """A home and a project without any files."""
    return Terminal(tmp_path)
