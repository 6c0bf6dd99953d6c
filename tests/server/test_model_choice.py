"""Who answers when the model that should is not there: another one, and those who listen are told;
or nobody, and the client is. Nothing is stored that nobody answers."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kedge.domain.events import SessionErrored, SessionIdle
from tests.agent.world import Heard, World, listening
from tests.server.world import Reply, Served, serve
from tests.support.model_server import ModelServer, Text, Wait, answer

ROUTES = ["message", "prompt_async"]


def said(text: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """The body of a prompt."""
    return {"parts": [{"type": "text", "text": text}], **more}


class Stage:
    """A served world whose models can be taken away."""

    def __init__(self, served: Served, server: ModelServer, heard: Heard) -> None:
        self.served = served
        self.server = server
        self.heard = heard

    def configure(self, *models: str, **said: Any) -> None:  # noqa: ANN401 - any configuration
        """Have these models of `scripted`, the first of which is the default."""
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": self.server.url, "apiKey": "none"},
            "models": {name: {} for name in models},
        }
        model = f"scripted/{models[0]}"
        self.served.world.configure(**{"model": model, "provider": {"scripted": provider}, **said})

    async def session(self) -> str:
        """A session with a title."""
        made = await self.served.post("/session", {"title": "Given"})
        return str(made.json["id"])

    async def ask(self, session: str, route: str = "message", **more: Any) -> Reply:  # noqa: ANN401
        """Send a prompt."""
        return await self.served.post(f"/session/{session}/{route}", said("go", **more))

    async def answered_by(self, session: str, **more: Any) -> str:  # noqa: ANN401
        """The model that answers a prompt."""
        reply = await self.ask(session, **more)
        assert reply.status == 200, reply
        assert any(part.get("text") == "hello" for part in reply.json["parts"])
        return f"{reply.json['info']['providerID']}/{reply.json['info']['modelID']}"

    async def told(self) -> list[str]:
        """What those who listen were told since the last call."""
        await self.heard.caught_up()
        errors = [event.error for event in self.heard.of(SessionErrored)]
        self.heard.events.clear()
        return [str(error.data["message"]) for error in errors if error is not None]


@pytest.fixture
async def stage(served: Served) -> AsyncIterator[Stage]:
    """Two models, and somebody who listens."""
    async with _staged(served) as made:
        yield made


@asynccontextmanager
async def _staged(served: Served) -> AsyncIterator[Stage]:
    async with (
        ModelServer(lambda _: answer(Text.of("hello"))) as server,
        listening(served.running.backend.engine) as heard,
    ):
        made = Stage(served, server, heard)
        made.configure("one", "two")
        yield made


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("model", "near"),
    [
        ({"providerID": "scripted", "modelID": "twoo"}, "scripted/two"),
        ({"providerID": "scriptd", "modelID": "one"}, "scripted/one"),
        ({"providerID": "nobody", "modelID": "two"}, "scripted/two"),
        ({"providerID": "antropic", "modelID": "claude-sonnet-5-5"}, "anthropic/claude-sonnet-5-5"),
        ({"providerID": "openai", "modelID": "gpt-6.1-soll"}, "openai/gpt-6.1-sol"),
    ],
)
async def test_a_model_that_was_asked_for(
    stage: Stage, route: str, model: dict[str, str], near: str
) -> None:
    """The client hears that it is not there, with similar names; nothing is stored, and the session
    goes on with the model that it had."""
    session = await stage.session()
    assert await stage.answered_by(session) == "scripted/one"
    reply = await stage.ask(session, route, model=model)
    assert (reply.status, reply.json["name"]) == (400, "ProviderModelNotFoundError")
    data = reply.json["data"]
    assert {key: data[key] for key in ("providerID", "modelID")} == model
    assert near in data["near"]
    assert await stage.told() == [reply.json["data"]["message"]]
    stored = await stage.served.get(f"/session/{session}/message")
    assert len(stored.json) == 2
    assert await stage.answered_by(session) == "scripted/one"
    assert await stage.told() == []


async def test_the_model_that_a_session_had(stage: Stage) -> None:
    """The default answers instead, and that is said once."""
    session = await stage.session()
    two = {"providerID": "scripted", "modelID": "two"}
    assert await stage.answered_by(session, model=two) == "scripted/two"
    stage.configure("one", "twain")
    assert await stage.answered_by(session) == "scripted/one"
    (told,) = await stage.told()
    for word in ("session", "scripted/two", "scripted/one"):
        assert word in told
    assert await stage.answered_by(session) == "scripted/one"
    assert await stage.told() == []


async def test_a_model_whose_provider_lost_its_key(stage: Stage) -> None:
    """That of a session is not asked any more; one that is asked for says what is missing."""
    session = await stage.session()
    claude = {"providerID": "anthropic", "modelID": "claude-sonnet-5-5"}
    reply = await stage.ask(session, model=claude)
    assert reply.status == 200
    assert reply.json["info"]["error"]["name"] == "ProviderAuthError"
    assert "ANTHROPIC_API_KEY" in reply.json["info"]["error"]["data"]["message"]
    await stage.told()
    assert await stage.answered_by(session) == "scripted/one"
    (told,) = await stage.told()
    assert "ANTHROPIC_API_KEY" in told


async def test_a_key_that_is_missing_and_nothing_else_to_ask(stage: Stage) -> None:
    """The offline model, which takes words for commands, does not answer for the one that a session
    had: its own answer says which key is missing, as often as it is asked."""
    claude = {"providerID": "anthropic", "modelID": "claude-sonnet-5-5"}
    session = await stage.session()
    await stage.ask(session, model=claude)
    stage.served.world.configure()
    for _ in range(2):
        reply = await stage.ask(session)
        assert reply.status == 200
        info = reply.json["info"]
        assert (info["providerID"], info["modelID"]) == tuple(claude.values())
        assert info["error"]["name"] == "ProviderAuthError"
        assert "ANTHROPIC_API_KEY" in info["error"]["data"]["message"]


@pytest.mark.parametrize("route", ROUTES)
async def test_a_model_that_is_gone_and_nothing_else_to_ask(stage: Stage, route: str) -> None:
    """The client hears that it is not there, and with the configuration the model is back."""
    session = await stage.session()
    assert await stage.answered_by(session) == "scripted/one"
    stage.served.world.configure()
    reply = await stage.ask(session, route)
    assert (reply.status, reply.json["name"]) == (400, "ProviderModelNotFoundError")
    assert "scripted/one" in reply.json["data"]["message"]
    stage.configure("one")
    assert await stage.answered_by(session) == "scripted/one"


async def test_the_model_of_an_agent_and_nothing_else_to_ask(stage: Stage) -> None:
    """An agent with a model of its own is not answered for by the offline one either."""
    stage.served.world.configure(agent={"build": {"model": "scripted/one"}})
    reply = await stage.ask(await stage.session())
    assert (reply.status, reply.json["name"]) == (400, "ProviderModelNotFoundError")


async def test_the_offline_model_as_the_default(stage: Stage) -> None:
    """Who configured it as the default wants it to answer."""
    session = await stage.session()
    assert await stage.answered_by(session) == "scripted/one"
    stage.served.world.configure(model="kedge/offline")
    reply = await stage.served.post(f"/session/{session}/message", said("say hello"))
    assert reply.json["info"]["modelID"] == "offline"
    (told,) = await stage.told()
    assert "scripted/one" in told


async def test_the_model_of_an_agent(stage: Stage) -> None:
    """The default answers instead, and that is said once."""
    stage.configure("one", "two", agent={"build": {"model": "scripted/thre"}})
    session = await stage.session()
    assert await stage.answered_by(session) == "scripted/one"
    (told,) = await stage.told()
    assert "agent build" in told
    assert "scripted/thre" in told
    assert await stage.answered_by(session) == "scripted/one"
    assert await stage.told() == []


@pytest.mark.parametrize("route", ROUTES)
async def test_the_default_model(stage: Stage, route: str) -> None:
    """Nobody is asked instead of a default that is not there: the client hears of it."""
    stage.configure("one", model="scripted/onne")
    session = await stage.session()
    reply = await stage.ask(session, route)
    assert (reply.status, reply.json["data"]["near"]) == (400, ["scripted/one"])
    assert (await stage.served.get(f"/session/{session}/message")).json == []
    two = {"providerID": "scripted", "modelID": "one"}
    assert await stage.answered_by(session, model=two) == "scripted/one"


async def test_a_command_of_a_person_needs_no_model(stage: Stage) -> None:
    """Neither does a prompt that is only stored."""
    stage.configure("one", model="scripted/onne")
    session = await stage.session()
    body = {"agent": "build", "command": "echo $((6*7))"}
    ran = await stage.served.post(f"/session/{session}/shell", body)
    assert ran.status == 200
    assert "42" in json.dumps(ran.json["parts"])
    assert (await stage.ask(session, noReply=True)).status == 200


async def test_a_prompt_for_a_model_that_what_runs_does_not_know(stage: Stage) -> None:
    """A run keeps the configuration that it began with: its default answers, and that is said."""
    script = [answer(Wait(), Text.of("first")), answer(Text.of("second"))]
    async with ModelServer(script) as slow:
        stage.server = slow
        stage.configure("one")
        session = await stage.session()
        two = {"providerID": "scripted", "modelID": "two"}
        assert (await stage.ask(session, "prompt_async")).status == 204
        await slow.reached()
        stage.configure("one", "two")
        assert (await stage.ask(session, "prompt_async", model=two)).status == 204
        slow.release()
        await stage.heard.until(lambda event: isinstance(event, SessionIdle))
        assert [each.body["model"] for each in slow.requests] == ["one", "one"]
        (told,) = await stage.told()
        assert "scripted/two" in told


async def test_an_agent_that_is_misspelt(stage: Stage) -> None:
    """The client hears whom it may have meant."""
    reply = await stage.ask(await stage.session(), agent="biuld")
    assert reply.status == 400
    assert "did you mean build?" in reply.json["data"]["message"]


async def test_names_that_are_no_names(stage: Stage) -> None:
    """However long or odd they are."""
    session = await stage.session()
    for name in ("x" * 100_000, "/", " ", "\U0001f600", "é/é/é"):
        reply = await stage.ask(session, model={"providerID": name, "modelID": name})
        assert reply.status == 400, name[:10]


async def test_a_restart_without_the_model(world: World) -> None:
    """The default answers, and that is said."""
    async with serve(world) as served, _staged(served) as stage:
        session = await stage.session()
        two = {"providerID": "scripted", "modelID": "two"}
        assert await stage.answered_by(session, model=two) == "scripted/two"
    async with serve(world) as served, _staged(served) as stage:
        stage.configure("one")
        assert await stage.answered_by(session) == "scripted/one"
        assert len(await stage.told()) == 1
