"""A catalog whose one provider is a scripted server, and how a test asks it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kedge.config.values import Config, CostConfig, LimitConfig, ModelConfig, ProviderConfig
from kedge.model.catalog import Catalog
from kedge.model.port import (
    Finished,
    Model,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    Text,
    TextDelta,
    ToolSpec,
    UserTurn,
)
from tests.support.model_server import ModelServer, Script

CHAT = "@ai-sdk/openai-compatible"
ANTHROPIC = "@ai-sdk/anthropic"
KEY = "sk-very-secret-key"

RESPONSES = "@ai-sdk/openai"
GOOGLE = "@ai-sdk/google"

both_protocols = pytest.mark.parametrize("npm", [CHAT, ANTHROPIC], ids=["chat", "anthropic"])
every_protocol = pytest.mark.parametrize(
    "npm",
    [CHAT, ANTHROPIC, RESPONSES, GOOGLE],
    ids=["chat", "anthropic", "responses", "google"],
)

READ = ToolSpec(
    name="read",
    description="Reads a file.",
    parameters={
        "type": "object",
        "properties": {"filePath": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["filePath"],
    },
)


def config_for(url: str, npm: str, **model: Any) -> Config:  # noqa: ANN401
    """A configuration with one provider `fake` and one model `fake-model`."""
    described: dict[str, Any] = {
        "attachment": True,
        "cost": CostConfig(input=1, output=2, cache_read=0.5, cache_write=4),
        "limit": LimitConfig(context=100_000, output=10_000),
        **model,
    }
    provider = ProviderConfig(
        npm=npm,
        options={"baseURL": url, "apiKey": KEY},
        models={"fake-model": ModelConfig(**described)},
    )
    return Config(provider={"fake": provider})


@asynccontextmanager
async def scripted(
    script: Script,
    npm: str = CHAT,
    **model: Any,  # noqa: ANN401
) -> AsyncIterator[tuple[ModelServer, Model]]:
    """A server with a script, and a model that is answered by it."""
    async with ModelServer(script) as server:
        catalog = Catalog(config_for(server.url, npm, **model), {})
        try:
            yield server, catalog.open(catalog.model("fake", "fake-model"))
        finally:
            await catalog.aclose()


def asking(text: str = "hello", **more: Any) -> ModelRequest:  # noqa: ANN401
    """A request with one prompt."""
    turns = (UserTurn(content=(Text(text=text),)),)
    return ModelRequest(**{"system": ("Be brief.",), "turns": turns, **more})


async def ask(model: Model, request: ModelRequest | None = None) -> list[ModelEvent]:
    """All events of one answer."""
    async with model.stream(request or asking()) as events:
        return [event async for event in events]


def text_of(events: list[ModelEvent]) -> str:
    """All that was said."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def thought_of(events: list[ModelEvent]) -> str:
    """All that was thought."""
    return "".join(event.text for event in events if isinstance(event, ReasoningDelta))


def finish_of(events: list[ModelEvent]) -> Finished:
    """The last event."""
    assert isinstance(events[-1], Finished)
    return events[-1]
