"""`kedge attach`: opens OpenCode's terminal UI on the sessions of this folder."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from kedge.cli.event_loop import run_async
from kedge.cli.failure import CommandFailure
from kedge.cli.location import add_location, look
from kedge.cli.screen import DIM, errors, one_line
from kedge.cli.selection import add_session, find_session

if TYPE_CHECKING:
    from kedge.server.registry import KnownServer

ABOUT = """\
Open OpenCode's terminal UI on the sessions of this folder: with the server that runs already, or
with one that ends with the UI.
"""
INSTALL = (
    "there is no program opencode, which has the terminal UI; install it with `npm install -g"
    " opencode-ai`, or use `kedge run`"
)
_PATIENCE = 6.0
"""Seconds in which a server should end that was told to."""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_session(command)
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    program = shutil.which("opencode")
    if program is None:
        raise CommandFailure(INSTALL)
    directory, session, known = run_async(_around(options))
    words = [program, "attach", "{url}", "--dir", directory]
    words += ["--session", session] if session else []
    if known is not None:
        errors().line(errors().paint(f"attaching to {known.url}", DIM))
        return _run_ui([word.replace("{url}", known.url) for word in words])
    with _server(options, directory) as url:
        return _run_ui([word.replace("{url}", url) for word in words])


async def _around(options: argparse.Namespace) -> "tuple[str, str | None, KnownServer | None]":
    """The directory, the session if one was named, and the server that serves them."""
    from kedge.server.registry import running_servers

    async with look(options) as engine:
        session = None
        if options.session is not None:
            session = (await find_session(engine, options.session)).id
        place = engine.place.directory
        servers = [
            each
            for each in running_servers(engine.data, engine.store.location)
            if each.root is None or f"{place}/".startswith(f"{each.root.rstrip('/')}/")
        ]
    return place, session, servers[0] if servers else None


def _run_ui(words: list[str]) -> int:
    environ = dict(os.environ)
    if password := environ.get("KEDGE_SERVER_PASSWORD"):
        environ.setdefault("OPENCODE_SERVER_PASSWORD", password)
    # Ctrl-C is for the UI.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with subprocess.Popen(words, env=environ) as ui:
            try:
                code = ui.wait()
            except BaseException:
                ui.terminate()
                raise
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


@contextmanager
def _server(options: argparse.Namespace, directory: str) -> Iterator[str]:
    """A server of our own; its address."""
    words = [sys.executable, "-m", "kedge", "serve", "--port", "0", directory]
    words += ["--data", options.data] if options.data else []
    words += ["--database", options.database] if options.database else []
    for number in (signal.SIGTERM, signal.SIGHUP):
        # So that the server ends, too.
        signal.signal(number, _leave)
    with (
        tempfile.TemporaryFile() as said,
        # In a session of its own: keys at the terminal are for the UI.
        subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            start_new_session=True,
        ) as server,
    ):
        try:
            assert server.stdout is not None
            line = server.stdout.readline().strip()
            if not line:
                raise CommandFailure(f"the server did not start: {_tail(said)}")
            yield line.rpartition(" ")[2]
        finally:
            _stop(server)


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _stop(server: "subprocess.Popen[str]") -> None:
    if server.poll() is None:
        server.send_signal(signal.SIGINT)
    try:
        server.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        server.kill()


def _tail(said: IO[bytes]) -> str:
    said.seek(0)
    text = said.read().decode(errors="replace").strip()
    return one_line(text.removeprefix("kedge: ")[-1000:]) or "it said nothing"
