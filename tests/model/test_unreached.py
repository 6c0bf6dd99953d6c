"""Providers that cannot be asked at all: the failure says where, why, and what to look at."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.config.files import nobody
from kedge.config.load import load_config
from kedge.config.values import Config, ModelConfig, ProviderConfig
from kedge.model.catalog import Catalog
from kedge.model.port import ModelFailure
from tests.model.scene import CHAT, KEY, ask, every_protocol

_REQUEST = """
import asyncio, sys, threading
from tests.model.scene import ask, scripted
from tests.support.model_server import Text, answer

heavy = ("pydantic_ai", "openai", "anthropic", "google", "httpx2")
held_up = []

class Watching:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in heavy:
            if threading.current_thread() is threading.main_thread():
                held_up.append(name)

async def main():
    async with scripted([answer(Text.of("hi"))], sys.argv[1]) as (_, model):
        sys.meta_path.insert(0, Watching())
        await ask(model)

asyncio.run(main())
print(*held_up)
"""


async def failure_of(catalog: Catalog, provider_id: str, model_id: str) -> ModelFailure:
    """Why a model cannot be asked."""
    try:
        with pytest.raises(ModelFailure) as caught:
            await ask(catalog.open(catalog.model(provider_id, model_id)))
    finally:
        await catalog.aclose()
    return caught.value


@every_protocol
async def test_a_server_that_is_not_there(npm: str) -> None:
    """Nothing was lost: the address is named, without its secrets, and what to check."""
    # Bound, but not listening: nobody else can answer there.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        url = f"http://me:hidden-word@{address}/secret-path/v1?token=secret-token"
        provider = ProviderConfig(
            npm=npm, options={"baseURL": url, "apiKey": KEY}, models={"m": ModelConfig()}
        )
        failed = await failure_of(Catalog(Config(provider={"fake": provider}), {}), "fake", "m")
    message = failed.failure.data["message"]
    assert failed.retryable
    assert message.startswith(f"fake could not be reached at http://{address}/: ")
    assert "provider.fake.options.baseURL" in message
    for secret in ("hidden-word", "secret-path", "secret-token", KEY):
        assert secret not in repr(failed.failure)


def _untrusted(folder: Path, provider: dict[str, object]) -> Catalog:
    home = folder / "home"
    project = folder / "project"
    home.mkdir()
    project.mkdir()
    (project / "kedge.json").write_text(json.dumps({"provider": provider}))
    config = load_config(project, project, environ={"HOME": str(home)}, is_trusted=nobody)
    return Catalog(config, {})


async def test_an_address_that_nobody_trusts(tmp_path: Path) -> None:
    """It stands in the file, so the error does not ask for it but for trust."""
    lab = {
        "options": {"baseURL": "http://127.0.0.1:9/v1"},
        "models": {"m": {"cost": {"input": 1}}},
    }
    failed = await failure_of(_untrusted(tmp_path, {"lab": lab, "other": lab}), "lab", "m")
    message = failed.failure.data["message"]
    assert "provider.lab.options.baseURL is ignored" in message
    assert "kedge.json" in message
    assert "`kedge trust`" in message
    assert "is missing" not in message
    assert "other" not in message
    assert "cost" not in message


async def test_a_key_that_nobody_trusts(tmp_path: Path) -> None:
    """Who wrote a key into the project's file hears why it does not count."""
    said = {"options": {"apiKey": KEY}, "models": {"m": {}}}
    failed = await failure_of(_untrusted(tmp_path, {"anthropic": said}), "anthropic", "m")
    assert failed.failure.name == "ProviderAuthError"
    assert "provider.anthropic.options.apiKey is ignored" in failed.failure.data["message"]
    assert "`kedge trust`" in failed.failure.data["message"]
    assert KEY not in repr(failed.failure)


async def test_an_address_that_nobody_wrote() -> None:
    """Where no file says it, the error asks for it."""
    provider = ProviderConfig(npm=CHAT, models={"m": ModelConfig()})
    failed = await failure_of(Catalog(Config(provider={"lab": provider}), {}), "lab", "m")
    assert "provider.lab.options.baseURL is missing" in failed.failure.data["message"]


@every_protocol
def test_the_first_request_holds_nothing_up(npm: str) -> None:
    """The libraries, which take seconds, are imported beside the event loop."""
    command = [sys.executable, "-c", _REQUEST, npm]
    folder = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
