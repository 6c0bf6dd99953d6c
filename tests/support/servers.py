"""Servers as people start them, in processes of their own; what they answer is for the tests."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from tests.support import environment, opencode
from tests.support.timeouts import PATIENCE

MODEL = "kedge/offline"
"""The model that answers on either server."""

_ROOT = Path(__file__).parents[2]
_LISTENING = re.compile(r"http://127\.0\.0\.1:\d+")
_AWAKE = (http.HTTPStatus.OK, http.HTTPStatus.UNAUTHORIZED)
_LOOK = 0.05
_QUIET = ("OPENCODE_PURE", "OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_AUTOUPDATE")


class Served:
    """A server that listens."""

    def __init__(self, process: subprocess.Popen[str], url: str, code: int) -> None:
        self._process = process
        self._code = code
        self.url = url

    def stop(self) -> None:
        """Ask it to go; it has to go quietly and with the right exit code."""
        self._process.terminate()
        rest, _ = self._process.communicate(timeout=PATIENCE)
        assert (self._process.returncode, rest) == (self._code, "")


class Serve(Protocol):
    """Starts the server, each time with the data that it had before."""

    def __call__(self, **variables: str) -> Served:
        """Start it, with further environment variables."""


@contextmanager
def kedge_serving(folder: Path, directory: Path) -> Iterator[Serve]:
    """kedge, with the offline model that it comes with."""
    command = [sys.executable, "-m", "kedge", "serve", "--port", "0"]
    command += ["--data", str(folder / "data"), str(directory)]
    environ = scratch(folder / "server")
    with _starting(command, directory, environ, code=0) as serve:
        yield serve


@contextmanager
def opencode_serving(folder: Path, directory: Path) -> Iterator[Serve]:
    """The real OpenCode, with the same model; to see whether a test asks for too much."""
    environ = scratch(folder / "server")
    # Without this one it would fetch a ripgrep of its own.
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    command = [str(opencode.install()), "serve", "--hostname", "127.0.0.1", "--port", "0"]
    with ExitStack() as stack:
        model = stack.enter_context(_model())
        config = Path(environ["XDG_CONFIG_HOME"], "opencode", "opencode.json")
        config.parent.mkdir()
        config.write_text(json.dumps(_configuration(model)))
        yield stack.enter_context(_starting(command, directory, environ, code=-signal.SIGTERM))


def scratch(home: Path) -> dict[str, str]:
    """The variables of a process that has a home of its own and leaves the network alone."""
    variables = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
    environment.set_home(variables, home)
    environment.remove_git_variables(variables)
    return variables | dict.fromkeys(_QUIET, "1")


@contextmanager
def _starting(
    command: list[str], directory: Path, environ: Mapping[str, str], *, code: int
) -> Iterator[Serve]:
    log = Path(environ["HOME"], "complaints")
    with ExitStack() as stack:

        def serve(**variables: str) -> Served:
            complaints = stack.enter_context(log.open("a"))
            process = subprocess.Popen(
                command,
                cwd=directory,
                env={**environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return Served(process, _listening(process, log), code)

        yield serve


def _listening(process: subprocess.Popen[str], log: Path) -> str:
    """Where it says that it is to be found, when it is."""
    assert process.stdout is not None
    said = ""
    while (found := _LISTENING.search(said)) is None:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server ended: {said}{log.read_text()}")
        said += line
    _until_healthy(found[0])
    return found[0]


def _until_healthy(url: str) -> None:
    """Return when it answers: OpenCode never answers what is asked while it starts."""
    until = time.monotonic() + PATIENCE
    while True:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=5)
        try:
            connection.request("GET", "/global/health")
            if connection.getresponse().status in _AWAKE:
                return
        except OSError:
            if time.monotonic() > until:
                raise
        finally:
            connection.close()
        time.sleep(_LOOK)


@contextmanager
def _model() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.support.clients_model"]
    with subprocess.Popen(
        command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


def _configuration(model: str) -> dict[str, Any]:
    provider, _, name = MODEL.partition("/")
    described = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "kedge",
        "options": {"baseURL": model, "apiKey": "none"},
        "models": {name: {"name": "Offline", "limit": {"context": 200_000, "output": 8_000}}},
    }
    return {"model": MODEL, "small_model": MODEL, "provider": {provider: described}}
