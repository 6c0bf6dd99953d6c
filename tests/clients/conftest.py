"""A project, a server that serves it, and the clients; a client that is missing is told loudly."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.workspace import Workspace, prepared
from tests.support import clients, environment, servers, terminal
from tests.support.clients_npm import or_skip

SETTING = "KEDGE_TEST_SERVER"
"""`opencode`: the same tests at the real server, to see whether one of them asks for too much."""


def server_name() -> str:
    """Which of the two servers is tested."""
    return os.environ.get(SETTING, "kedge")


@pytest.fixture(scope="session")
def opencode() -> Path:
    """OpenCode's program."""
    return or_skip(clients.install_program)


@pytest.fixture(scope="session")
def sdk() -> Path:
    """A folder whose `node_modules` has OpenCode's SDK."""
    return or_skip(clients.install_sdk)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A project under git, and homes for a server and a client."""
    return prepared(tmp_path)


@pytest.fixture
def serve(workspace: Workspace) -> Iterator[servers.Serve]:
    """Starts the server; again, when it was stopped, with the data that it had."""
    with serving(workspace) as serve:
        yield serve


@contextmanager
def serving(workspace: Workspace) -> Iterator[servers.Serve]:
    """What starts the server of a workspace."""
    is_real = server_name() == "opencode"
    serving = servers.opencode_serving if is_real else servers.kedge_serving
    with serving(workspace.folder, workspace.project) as serve:
        yield serve


@pytest.fixture
def window() -> Iterator[terminal.Terminal]:
    """A terminal of the test's own."""
    with opened_window() as opened:
        yield opened


@contextmanager
def opened_window() -> Iterator[terminal.Terminal]:
    """A terminal; without tmux the test is skipped."""
    or_skip(lambda: clients.require("tmux"))
    folder = tempfile.mkdtemp(prefix="tmux-", dir=environment.run_folder())
    with terminal.opened(Path(folder)) as opened:
        yield opened
