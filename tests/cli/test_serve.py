"""`kedge serve` as people start and stop it."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import Terminal, command
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[2]


class Server:
    """A server in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.connections = ExitStack()
        self.line = process.stdout.readline()
        found = re.fullmatch(r"kedge listening on http://127\.0\.0\.1:(\d+)\n", self.line)
        assert found is not None, (self.line, process.communicate())
        self.port = int(found[1])

    def ask(self, method: str, path: str, body: Any = None) -> HTTPResponse:  # noqa: ANN401 - any JSON
        """Ask for something; the answer may be read later."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        self.connections.callback(connection.close)
        headers = {"content-type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return self.connections.enter_context(connection.getresponse())

    def stop(self, number: signal.Signals) -> tuple[int, str, str]:
        """Send a signal and wait for the end; gives the exit code, and what was said since."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


@contextmanager
def started(terminal: Terminal, *words: str) -> Iterator[Server]:
    """Start a server."""
    process = subprocess.Popen(
        [*words, "serve", "--port", "0"],
        cwd=terminal.project,
        env={**terminal.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            server = Server(process)
            with server.connections:
                yield server
        finally:
            process.kill()


def test_a_server_from_start_to_end(terminal: Terminal) -> None:
    """One line when it is ready; a signal ends it, whatever runs and whoever listens; what ran is
    recorded."""
    with started(terminal, *command([])) as server:
        assert server.ask("GET", "/global/health").status == 200
        session = json.load(server.ask("POST", "/session", {}))["id"]
        events = server.ask("GET", "/event")
        body = {"parts": [{"type": "text", "text": "bash sleep 1000"}]}
        assert server.ask("POST", f"/session/{session}/prompt_async", body).status == 204
        while b'"status":"running"' not in events.readline():
            pass
        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            slow.send(b"GET /glo")
            assert server.stop(signal.SIGTERM) == (0, "", "")
    with started(terminal, *command([])) as server:
        assert json.load(server.ask("GET", "/session/status")) == {}
        _, answer = json.load(server.ask("GET", f"/session/{session}/message"))
        assert answer["info"]["error"]["name"] == "MessageAbortedError"
        assert "completed" in answer["info"]["time"]
        assert server.stop(signal.SIGINT) == (0, "", "")


def test_a_second_interruption_is_obeyed_at_once(terminal: Terminal) -> None:
    """Whatever the server still does."""
    with started(terminal, sys.executable, "-m", "tests.cli.hanging", str(PATIENCE)) as server:
        events = server.ask("GET", "/event")
        server.process.send_signal(signal.SIGINT)
        events.fp.read()
        assert server.stop(signal.SIGINT) == (130, "", "")


def test_a_server_that_cannot_end_ends(terminal: Terminal) -> None:
    """What hangs is left behind; everything that was acknowledged is stored."""
    with started(terminal, sys.executable, "-m", "tests.cli.hanging", "0.1") as server:
        assert server.stop(signal.SIGTERM) == (0, "", "")


@pytest.mark.parametrize("fault", ["database", "port"])
def test_a_server_that_cannot_start(terminal: Terminal, fault: str) -> None:
    """It says why in one line, without a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] if fault == "port" else 0
        database = terminal.project / "kedge.db"
        if fault == "database":
            database.write_text("this is no database, but it is long enough to look like one" * 99)
        done = terminal.run("serve", "--port", str(port), "--database", str(database))
    assert (done.code, done.out) == (1, "")
    assert re.fullmatch(r"kedge: [^\n]+\n", done.err), done.err
    assert (str(port) if fault == "port" else "kedge.db") in done.err


def test_a_server_outside_of_its_root(terminal: Terminal) -> None:
    """It is told at once that clients which name no directory would all be refused."""
    done = terminal.run("serve", "--port", "0", "--root", str(terminal.home))
    assert (done.code, done.out) == (1, "")
    assert f"{terminal.project} is outside of the root" in done.err
    assert str(terminal.home) in done.err
