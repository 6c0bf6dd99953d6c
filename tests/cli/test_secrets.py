"""Secrets of a server that its own commands could look for: in its environment, its command line
and its memory."""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from socket import create_server

import pytest

from kedge.cli.secrets import without_password
from tests.cli.terminal import Terminal
from tests.support.timeouts import PATIENCE
from tests.support.unprivileged import RUN_UNPRIVILEGED

ROOT = Path(__file__).parents[2]
PASSWORD = "hunter2 ü"
BASIC = base64.b64encode(f"opencode:{PASSWORD}".encode()).decode()
SCRIPT = str(Path(sys.executable).parent / "kedge")
WAYS = {
    "module": [sys.executable, "-m", "kedge"],
    "flags": [sys.executable, "-O", "-X", "utf8", "-W", "ignore", "-m", "kedge"],
    "script": [SCRIPT],
    "older script": [sys.executable, "-c", "from kedge.cli.main import run; run()"],
}
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@contextmanager
def serving(
    terminal: Terminal, words: Sequence[str], *more: str, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """A server in a process of its own."""
    with subprocess.Popen(
        [*words, "serve", "--port", "0", *more],
        cwd=terminal.project,
        env={**terminal.environ, "PYTHONPATH": str(ROOT), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def url_of(process: subprocess.Popen[str]) -> str:
    """Where a server listens, when it does."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("kedge listening on "), process.communicate()
    return line.split()[-1]


def ask(url: str, path: str, body: object = None) -> object:
    """Ask with the password."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Basic {BASIC}", "content-type": "application/json"}
    request = urllib.request.Request(url + path, data, headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


@pytest.mark.parametrize("variable", ["KEDGE_SERVER_PASSWORD", "OPENCODE_SERVER_PASSWORD"])
@pytest.mark.parametrize("way", WAYS)
def test_the_password_is_not_in_the_environment(
    terminal: Terminal, way: str, variable: str
) -> None:
    """However the server is started it keeps its process and its arguments, and has the password;
    but the system does not show it."""
    with serving(terminal, WAYS[way], **{variable: PASSWORD}) as process:
        url = url_of(process)
        proc = Path("/proc", str(process.pid))
        assert PASSWORD.encode() not in proc.joinpath("environ").read_bytes()
        assert b"KEDGE_DATA_DIR=" in proc.joinpath("environ").read_bytes()
        shown = proc.joinpath("cmdline").read_bytes().split(b"\0")[:-1]
        assert shown[-3:] == [b"serve", b"--port", b"0"]
        assert [word.decode() for word in shown[1:-3]][-len(WAYS[way][1:]) or 99 :] == WAYS[way][1:]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{url}/session", timeout=PATIENCE)
        assert ask(url, "/session") == []
        process.terminate()
        out, err = process.communicate(timeout=PATIENCE)
        assert out == ""
        assert PASSWORD not in err
        assert "Traceback" not in err
        assert process.returncode == 0


def test_a_command_cannot_read_the_password(terminal: Terminal) -> None:
    """Neither in its own environment nor in those of the processes above it, nor is there a
    descriptor left that it could be read from."""
    config = terminal.home / ".config" / "kedge" / "kedge.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"permission": "allow"}')
    with serving(terminal, WAYS["module"], KEDGE_SERVER_PASSWORD=PASSWORD) as process:
        url = url_of(process)
        session = ask(url, "/session", {})
        assert isinstance(session, dict)
        command = "env; cat /proc/$PPID/environ; ls -l /proc/$PPID/fd /proc/self/fd; echo $PPID"
        text = f"bash {command}\nshow"
        parts = [{"type": "text", "text": text}]
        ask(url, f"/session/{session['id']}/message", {"parts": parts})
        messages = json.dumps(ask(url, f"/session/{session['id']}/message"), ensure_ascii=False)
        assert str(process.pid) in messages
        assert "KEDGE_CALL=" in messages
        assert PASSWORD not in messages
        assert "KEDGE_SECRETS_FD" not in messages.partition("KEDGE_CALL=")[0]


@pytest.mark.parametrize("wrapper", [[], ["/bin/sh", "-c", '"$@"; exit', "sh"]])
def test_a_wrapper_that_shows_the_password_is_named(terminal: Terminal, wrapper: list[str]) -> None:
    """Its environment is not kedge's to change."""
    words = [*wrapper, *WAYS["module"]]
    with serving(terminal, words, KEDGE_SERVER_PASSWORD=PASSWORD) as process:
        url_of(process)
        os.killpg(process.pid, signal.SIGTERM)
        told = process.communicate()[1]
    assert (f"process {process.pid} (sh)" in told) == bool(wrapper)
    assert PASSWORD not in told


@pytest.mark.parametrize("password", ["", PASSWORD])
def test_a_server_without_input_and_output(terminal: Terminal, password: str) -> None:
    """As daemons are started; what it opens does not take their places."""
    closing = [
        sys.executable,
        "-c",
        "import os, sys; os.closerange(0, 3); os.execv(sys.argv[1], sys.argv[1:])",
    ]
    with create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = [*closing, *WAYS["module"]]
    more = ["--port", str(port)]
    variables = {"KEDGE_SERVER_PASSWORD": password}
    with serving(terminal, words, *more, **variables) as process:
        while process.poll() is None:
            try:
                assert ask(f"http://127.0.0.1:{port}", "/session") == []
                break
            except OSError:
                threading.Event().wait(0.05)
        assert process.poll() is None


def test_the_memory_of_a_server_is_closed(terminal: Terminal) -> None:
    """A process of the same user without further rights cannot look into it; into others it can."""
    ordinary = [sys.executable, "-c", RUN_UNPRIVILEGED]
    with (
        serving(terminal, [*ordinary, *WAYS["module"]]) as process,
        subprocess.Popen(
            [*ordinary, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other,
    ):
        try:
            url_of(process)
            assert other.stdin is not None
            assert other.stdout is not None
            other.stdin.write(b"begun\n")
            other.stdin.flush()
            other.stdout.readline()
            for pid, can in ((process.pid, False), (other.pid, True)):
                for name in ("environ", "maps", "fd/0"):
                    program = ["readlink"] if name == "fd/0" else ["cat"]
                    done = subprocess.run(
                        [*ordinary, *program, f"/proc/{pid}/{name}"],
                        capture_output=True,
                        check=False,
                    )
                    assert (done.returncode == 0) is can, (pid, name, done)
        finally:
            other.kill()


@pytest.mark.parametrize("form", ["--database {}", "--database={}", "KEDGE_DATABASE_URL"])
def test_the_password_of_a_database_is_not_shown(terminal: Terminal, form: str) -> None:
    """Neither as a variable nor on the command line, which every user can see; the database is
    asked for as it was said."""
    with create_server(("127.0.0.1", 0)) as database:
        url = f"postgresql://me:{PASSWORD.split()[0]}@127.0.0.1:{database.getsockname()[1]}/kedge"
        variables = {form: url} if form.isupper() else {}
        more = [] if form.isupper() else form.format(url).split()
        with serving(terminal, WAYS["module"], *more, **variables) as process:
            database.settimeout(PATIENCE)
            # The server ends when its database hangs up.
            with database.accept()[0]:
                proc = Path("/proc", str(process.pid))
                for name in ("environ", "cmdline"):
                    assert b"hunter2" not in proc.joinpath(name).read_bytes()
                if more:
                    shown = proc.joinpath("cmdline").read_bytes()
                    assert b"postgresql://me:***@127.0.0.1" in shown


def test_what_is_no_secret_begins_nothing_again(terminal: Terminal) -> None:
    """Who has set no password is not started twice."""
    database = str(terminal.project / "kedge.db")
    with serving(terminal, WAYS["module"], KEDGE_DATABASE_URL=database) as process:
        url_of(process)
        environ = Path("/proc", str(process.pid), "environ").read_bytes()
        assert b"KEDGE_SECRETS_FD" not in environ
        assert os.fsencode(database) in environ


@pytest.mark.parametrize("handed", ["", "x", "99", "-1"])
def test_a_descriptor_that_is_none_is_said(terminal: Terminal, handed: str) -> None:
    """One line instead of a server without its password."""
    done = terminal.run("serve", "--port", "0", environ={"KEDGE_SECRETS_FD": handed})
    assert done.code == 1
    assert done.err == "kedge: KEDGE_SECRETS_FD is set, and there is nothing to read; unset it\n"


def test_a_password_that_is_too_long_is_said(terminal: Terminal) -> None:
    """It must not hang, nor be cut."""
    done = terminal.run("serve", environ={"KEDGE_SERVER_PASSWORD": "x" * 100_000})
    assert (done.code, done.err) == (1, "kedge: the password, or the command line, is too long\n")


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("postgresql://me:pw@host/db", "postgresql://me:***@host/db"),
        ("postgres://me:p@w:d@host:1/db", "postgres://me:***@host:1/db"),
        ("--database=postgresql://:pw@/db", "--database=postgresql://:***@/db"),
        ("postgresql:///db?password=pw&user=me", "postgresql:///db?password=***&user=me"),
        ("postgresql://host/db?user=me&PASSWORD=pw", "postgresql://host/db?user=me&PASSWORD=***"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("/home/me:x@y", "/home/me:x@y"),
        ("kedge.db", "kedge.db"),
    ],
)
def test_addresses_are_shown_without_passwords(word: str, shown: str) -> None:
    """All else of them stays, and so does everything that is no address of a database."""
    assert without_password(word) == shown
