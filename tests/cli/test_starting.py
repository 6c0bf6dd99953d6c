"""What a command imports before it is used for more: starting must stay quick."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from kedge.cli.commands import COMMANDS
from tests.support import environment
from tests.support.timeouts import PATIENCE

PROVIDERS = {
    "anthropic",
    "google",
    "griffe",
    "openai",
    "opentelemetry",
    "pydantic_ai",
    "requests",
    "tiktoken",
}
"""What talking to a provider's model takes: seconds to import, and most of the packages."""

PRICES = {"genai_prices", "httpx2", "pydantic", "pydantic_core"}
"""What the list of models and prices takes, which is read for providers that have a key."""

SERVING = {"asyncio", "granian", "msgspec", "sqlite3"}


def imported(told: str) -> set[str]:
    """The packages that `-X importtime` told of."""
    return set(re.findall(r"^import time:.*\|\s+(\w+)", told, re.MULTILINE))


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """That of a new user."""
    variables = {"PATH": os.environ["PATH"]}
    environment.set_home(variables, tmp_path / "home")
    return variables


COMMAND = [sys.executable, "-X", "importtime", "-m", "kedge"]


HELP = {"argparse", "asyncio", "contextlib", "dataclasses", "json", "pathlib", "re", "typing"}
"""What takes longer to import than Python takes to start."""


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_imports_nothing(argument: str, environ: dict[str, str]) -> None:
    """The table of commands is all that it is made of."""
    nothing = [sys.executable, "-X", "importtime", "-c", "pass"]
    bare = subprocess.run(nothing, env=environ, capture_output=True, text=True, check=True)
    done = subprocess.run(
        [*COMMAND, argument], env=environ, capture_output=True, text=True, check=True
    )
    # `-m` takes contextlib, and an editable installation more.
    assert (imported(done.stderr) - imported(bare.stderr)) & (HELP - {"contextlib"}) == set()
    assert "kedge" in imported(done.stderr)


@pytest.mark.parametrize(
    "arguments", [[command.name, "--help"] for command in COMMANDS], ids=lambda words: words[0]
)
def test_help_imports_neither_a_server_nor_a_model(
    arguments: list[str], environ: dict[str, str]
) -> None:
    """Who asks for help gets it at once."""
    command = [*COMMAND, *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert imported(done.stderr) & (PROVIDERS | PRICES | SERVING - {"asyncio"}) == set()
    assert "argparse" in imported(done.stderr)


@pytest.mark.parametrize(
    ("keys", "model", "spared"),
    [
        ({}, "kedge/offline", PROVIDERS | PRICES),
        ({"ANTHROPIC_API_KEY": "sk-not-a-key"}, "anthropic/", PROVIDERS),
    ],
)
def test_a_server_imports_a_provider_when_it_is_asked(
    keys: dict[str, str], model: str, spared: set[str], environ: dict[str, str], tmp_path: Path
) -> None:
    """Not for its start, not for its overview, and not for a prompt that another model answers."""
    told = tmp_path / "told"
    with (
        told.open("w") as file,
        subprocess.Popen(
            [*COMMAND, "serve", "--port", "0", str(tmp_path)],
            env=environ | keys,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        ) as server,
    ):
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            with httpx2.Client(base_url=url, timeout=PATIENCE) as client:
                overview = client.get("/", headers={"accept": "application/json"}).json()
                assert overview["model"].startswith(model)
                session = client.post("/session").json()["id"]
                offline = {"providerID": "kedge", "modelID": "offline"}
                prompt = {"model": offline, "parts": [{"type": "text", "text": "say hello"}]}
                answer = client.post(f"/session/{session}/message", json=prompt).json()
                assert "hello" in str(answer["parts"])
        finally:
            server.send_signal(signal.SIGINT)
    assert imported(told.read_text()) & spared == set()
    assert imported(told.read_text()) >= SERVING
