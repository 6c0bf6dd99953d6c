"""The providers and models that clients are told of."""

import subprocess
import sys

import pytest

from kedge.model.registry import KNOWN
from tests.agent.world import World
from tests.server.world import Served, serve


async def test_without_any_key_there_is_the_offline_model(served: Served) -> None:
    """It is the default, and providers that lack a key are listed without models."""
    connected = (await served.get("/config/providers")).json
    (provider,) = connected["providers"]
    assert (provider["id"], list(provider["models"])) == ("kedge", ["offline"])
    assert connected["default"] == {"kedge": "offline"}
    every = (await served.get("/provider")).json
    assert (every["connected"], every["default"]) == (["kedge"], {"kedge": "offline"})
    others = {each["id"]: each["models"] for each in every["all"][1:]}
    assert others == {id: {} for id, known in KNOWN.items() if known.needs_key}
    logins = (await served.get("/provider/auth")).json
    assert set(logins) == {"kedge", *others}
    assert logins["openai"][0]["label"] == "Set OPENAI_API_KEY and start kedge again"
    # Nobody would take a key that a client asks for.
    assert {each["type"] for methods in logins.values() for each in methods} == {"oauth"}


async def test_a_model_has_the_form_that_clients_know(served: Served) -> None:
    """Every key that OpenCode requires of a provider and of a model is there."""
    (provider,) = (await served.get("/config/providers")).json["providers"]
    assert set(provider) == {"id", "name", "source", "env", "options", "models"}
    model = provider["models"]["offline"]
    wanted = {
        "id",
        "providerID",
        "api",
        "name",
        "family",
        "capabilities",
        "cost",
        "limit",
        "status",
    }
    assert wanted | {"options", "headers", "release_date", "variants"} <= set(model)


async def test_the_provider_of_the_default_model_comes_first(served: Served) -> None:
    """Terminal UIs take the first provider's default model if nobody chose one."""
    one = {"options": {"baseURL": "http://127.0.0.1:1/v1"}, "models": {"a": {}, "b": {}}}
    served.world.configure(provider={"one": one, "two": one, "none": {}}, model="two/b")
    found = (await served.get("/config/providers")).json
    assert [each["id"] for each in found["providers"]] == ["two", "one", "none", "kedge"]
    assert found["default"] == {"two": "b", "one": "a", "kedge": "offline"}
    assert next(iter(found["default"])) == "two"
    assert found["providers"][0]["models"]["a"]["family"] == ""


async def test_a_key_connects_a_provider_and_is_not_shown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its models are there, with the one that kedge would take as default."""
    monkeypatch.setattr(World, "environ", {**world.environ, "ANTHROPIC_API_KEY": "SECRET"})
    async with serve(world) as served:
        reply = await served.get("/provider")
        assert b"SECRET" not in reply.body
        found = reply.json
        assert found["connected"] == ["anthropic", "kedge"]
        default = found["default"]["anthropic"]
        assert default == KNOWN["anthropic"].default
        assert [each["id"] for each in found["all"]].count("anthropic") == 1
        newer = (await served.get("/api/integration")).json["data"][0]
        assert newer["connections"] == [{"type": "env", "name": "ANTHROPIC_API_KEY"}]


def test_the_routes_do_not_wait_for_what_talks_to_models() -> None:
    """pydantic-ai takes seconds to import, and clients ask for models when they start."""
    code = (
        "import sys, kedge.server.routes.models as m; from kedge.model.catalog import Catalog;"
        "from kedge.config.values import Config;"
        "m.shown_providers(Catalog(Config(), {'ANTHROPIC_API_KEY': 'x'}));"
        "print('pydantic_ai' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
