"""`kedge serve` as people start and stop it."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from tests.cli.locks import held
from tests.cli.terminal import Terminal, command
from tests.support.timeouts import PATIENCE

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
        self.explanation = "".join(self._explanation())

    def _explanation(self) -> Iterator[str]:
        """What it says on standard error as soon as it listens."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            yield line
            if line.startswith("kedge: attach with: "):
                return

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
def started(
    terminal: Terminal,
    *words: str,
    options: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Start a server."""
    process = subprocess.Popen(
        [*words, "serve", "--port", "0", *options],
        cwd=terminal.project,
        env={**terminal.environ, "PYTHONPATH": str(ROOT), **(environ or {})},
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


def test_a_server_without_a_model_says_what_to_do(terminal: Terminal) -> None:
    """Who answers, how to have another model, where sessions are, and how to attach."""
    with started(terminal, *command([])) as server:
        url = f"http://127.0.0.1:{server.port}"
        first, *rest = server.explanation.splitlines()
    assert first.startswith("kedge: no model is configured, so kedge/offline answers")
    assert "ANTHROPIC_API_KEY" in first
    assert rest == [
        f"kedge: sessions are kept in {terminal.data / 'kedge.db'}",
        f"kedge: attach with: opencode attach {url}",
    ]


def test_a_server_says_what_is_ignored(terminal: Terminal) -> None:
    """What of the configuration does not count; and that there is a password, but not which."""
    config = terminal.project / "opencode.json"
    config.write_text('{"mcp": {"a": {"command": ["b"]}}}')
    environ = {"KEDGE_SERVER_PASSWORD": "hunter2", "ANTHROPIC_API_KEY": "sk-private"}
    with started(terminal, *command([]), environ=environ) as server:
        said = server.explanation
        attach = f"opencode attach http://127.0.0.1:{server.port} --password ..."
    assert re.search(r"^kedge: prompts are answered by anthropic/\S+$", said, re.MULTILINE), said
    assert f"kedge: {config}: mcp.a is ignored until " in said
    assert f"kedge: attach with: {attach}\n" in said
    assert "hunter2" not in said
    assert "sk-private" not in said


def test_a_second_interruption_is_obeyed_at_once(terminal: Terminal) -> None:
    """Whatever the server still does."""
    with started(terminal, sys.executable, "-m", "tests.cli.hung_process", str(PATIENCE)) as server:
        events = server.ask("GET", "/event")
        server.process.send_signal(signal.SIGINT)
        events.fp.read()
        assert server.stop(signal.SIGINT) == (130, "", "")


def test_a_server_that_cannot_end_ends(terminal: Terminal) -> None:
    """What hangs is left behind; everything that was acknowledged is stored."""
    with started(terminal, sys.executable, "-m", "tests.cli.hung_process", "0.1") as server:
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


@pytest.mark.parametrize("is_new", [True, False])
def test_a_locked_database_is_waited_for_aloud(terminal: Terminal, is_new: bool) -> None:
    """A start says which file and which process it waits for, and Ctrl-C ends the wait."""
    terminal.data.mkdir()
    database = terminal.data / "kedge.db"
    if not is_new:
        assert terminal.run("config").code == 0
    with held(database) as holder, waiting(terminal) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert str(database) in said
        assert "60 seconds" in said
        if sys.platform == "linux":
            assert f"process {holder.pid} (" in said
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (130, "")
        assert err == "kedge: interrupted before it had started\n"


def test_a_database_that_is_free_again_is_served(terminal: Terminal) -> None:
    """Who waited for a lock starts as soon as it is gone."""
    assert terminal.run("config").code == 0
    with held(terminal.data / "kedge.db") as holder, waiting(terminal) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert "is locked by" in process.stderr.readline()
        holder.communicate()
        assert process.stdout.readline().startswith("kedge listening on ")


@contextmanager
def waiting(terminal: Terminal) -> Iterator[subprocess.Popen[str]]:
    """A server that is being started."""
    process = subprocess.Popen(
        command(["serve", "--port", "0"]),
        cwd=terminal.project,
        env=terminal.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_a_postgresql_server_that_is_away(terminal: Terminal) -> None:
    """One line that says where it was looked for and what to do, without the password."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    address = f"postgresql://me:very-secret@127.0.0.1:{port}/kedge"
    done = terminal.run("serve", "--port", "0", "--database", address)
    assert (done.code, done.out) == (1, "")
    assert re.fullmatch(r"kedge: [^\n]+\n", done.err), done.err
    assert f"127.0.0.1:{port}" in done.err
    assert "check that the server runs" in done.err
    assert "very-secret" not in done.err


def test_a_verbose_server_tells_of_requests(terminal: Terminal) -> None:
    """On standard error, with the time; standard output stays as it is."""
    with started(terminal, *command([]), options=("--verbose",)) as server:
        assert server.ask("GET", "/global/health").status == 200
        code, out, err = server.stop(signal.SIGTERM)
    assert (code, out) == (0, "")
    assert re.search(r"^\d{4}-\d\d-\d\d .* GET /global/health 200 ", err, re.MULTILINE), err
