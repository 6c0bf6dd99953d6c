"""What commands are told of the environment: no keys of model providers, unless somebody wants
that, and no secrets of kedge's own."""

import json
import os

import pytest

from kedge.model.registry import KNOWN
from tests.agent.world import Scene, World, tools_of

SECRET = "sk-very-secret"
KEYS = [name for provider in KNOWN.values() for name in provider.env]


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person with every key there is, and two of their own names."""
    own = ("LAB_KEY", "PROXY_HEADER", "KEDGE_SERVER_PASSWORD", "OPENCODE_SERVER_PASSWORD")
    for name in (*KEYS, *own, "KEDGE_DATABASE_URL", "ORDINARY_TOKEN"):
        monkeypatch.setenv(name, f"{SECRET}-{name}")


async def told(scene: Scene) -> set[str]:
    """The variables that a real command of the agent is told."""
    await scene.prompt("bash env")
    found = [call for message in await scene.answers() for call in tools_of(message)]
    output = found[-1].state.output  # type: ignore[union-attr]  # it has run
    return {line.partition("=")[0] for line in output.splitlines() if SECRET in line}


async def test_commands_are_told_no_key_of_a_provider(world: World) -> None:
    """None that the catalogue knows, nor the passwords of the server and of the database; what is
    not known as a key stays."""
    assert len(KEYS) > 5
    async with world.at_work() as scene:
        assert await told(scene) == {"LAB_KEY", "PROXY_HEADER", "ORDINARY_TOKEN"}


async def test_keys_that_the_configuration_names_are_withheld(world: World) -> None:
    """A provider's own list of variables, and those that anything of it is taken from."""
    lab = {"npm": "@ai-sdk/openai-compatible", "env": ["LAB_KEY"], "models": {"m": {}}}
    headers = {"x-key": "Bearer {env:PROXY_HEADER}"}
    proxy = {"npm": "@ai-sdk/openai", "options": {"headers": headers}, "models": {"m": {}}}
    world.configure(model="kedge/offline", provider={"lab": lab, "proxy": proxy})
    async with world.at_work() as scene:
        assert await told(scene) == {"ORDINARY_TOKEN"}


async def test_some_can_be_kept(world: World) -> None:
    """By the person's own configuration; never kedge's own secrets."""
    kept = ["OPENAI_API_KEY", "KEDGE_SERVER_PASSWORD", "KEDGE_DATABASE_URL"]
    world.configure(keep_env=kept)
    async with world.at_work() as scene:
        found = await told(scene)
        assert found == {"OPENAI_API_KEY", "LAB_KEY", "PROXY_HEADER", "ORDINARY_TOKEN"}


async def test_a_project_cannot_keep_any(world: World) -> None:
    """An untrusted file is ignored, and says so."""
    world.put("opencode.json", json.dumps({"keep_env": ["OPENAI_API_KEY"], "key_variables": []}))
    async with world.at_work() as scene:
        assert "OPENAI_API_KEY" not in await told(scene)
        await scene.heard.caught_up()
        assert "keep_env is ignored until" in scene.errors()[0]


async def test_a_notice_names_what_is_withheld(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are set, once, and how to keep them; nothing if there is none."""
    for name in KEYS:
        if name != "GROQ_API_KEY":
            monkeypatch.delenv(name)
    async with world.at_work() as scene:
        await scene.prompt("bash true")
        await scene.prompt("bash true")
        await scene.heard.caught_up()
        [notice] = scene.errors()
        assert "do not get GROQ_API_KEY, " in notice
        assert "keep_env" in notice
        assert SECRET not in notice
    monkeypatch.delenv("GROQ_API_KEY")
    async with world.at_work() as scene:
        await scene.prompt("bash true")
        await scene.heard.caught_up()
        assert scene.errors() == []


async def test_a_persons_own_command_is_told_keys(world: World) -> None:
    """Whoever types it could type the key as well; kedge's own secrets are no use to it."""
    async with world.at_work() as scene:
        answer = await scene.agent.shell(scene.session, "env")
        output = tools_of(answer)[0].state.output  # type: ignore[union-attr]  # it has run
        named = {line.partition("=")[0] for line in output.splitlines() if SECRET in line}
        assert named == {*KEYS, "LAB_KEY", "PROXY_HEADER", "ORDINARY_TOKEN"}
        assert os.environ["KEDGE_SERVER_PASSWORD"]
