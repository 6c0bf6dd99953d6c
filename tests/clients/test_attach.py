"""`kedge attach`: OpenCode's terminal UI with one command, beside a server and without one."""

import subprocess
import sys
from pathlib import Path

from tests.clients.screens import Screens
from tests.clients.workspace import Workspace
from tests.support import servers
from tests.support.terminal import Terminal

KEDGE = (sys.executable, "-m", "kedge")


def kedge(workspace: Workspace, environ: dict[str, str], *arguments: str) -> str:
    """What a command says."""
    done = subprocess.run(
        [*KEDGE, *arguments],
        cwd=workspace.project,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return done.stdout


def test_the_terminal_ui_with_one_command(
    opencode: Path, workspace: Workspace, window: Terminal
) -> None:
    """It starts a server that ends with it; the next one finds the server that runs."""
    environ = workspace.environ | {
        "PATH": f"{opencode.parent}:{workspace.environ['PATH']}",
        "KEDGE_DATA_DIR": str(workspace.folder / "data"),
    }
    window.run(*KEDGE, "attach", folder=workspace.project, environ=environ)
    screens = Screens(window, opencode, workspace)
    screens.until("Ask anything", "Offline kedge")
    assert "served on http://127.0.0.1:" in kedge(workspace, environ)
    screens.prompt("write a.txt one")
    screens.until("# Wrote a.txt", "Done: write.")
    # What another process undoes is seen at once.
    kedge(workspace, environ, "undo", "--yes")
    screens.until("1 message reverted", without=("Done: write.",))
    assert workspace.text("a.txt") is None
    screens.command("/exit")
    screens.until("Continue  opencode -s")
    while "served on" in kedge(workspace, environ):
        pass
    with servers.kedge_serving(workspace.folder, workspace.project) as serve:
        url = serve().url
        window.run(*KEDGE, "attach", "last", folder=workspace.project, environ=environ)
        screens.until("1 message reverted")
        assert kedge(workspace, environ).count("served on") == 1
        assert f"served on {url}" in kedge(workspace, environ)
