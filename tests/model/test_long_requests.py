"""A conversation is handed to the connection without being looked through value by value."""

import importlib
from typing import Any

import pytest

from tests.model.scene import CHAT, RESPONSES, ask, scripted, text_of
from tests.support.model_server import Text, answer

_RESOURCES = {
    CHAT: ("openai.resources.chat.completions.completions", "messages"),
    RESPONSES: ("openai.resources.responses.responses", "input"),
}


@pytest.mark.parametrize("npm", _RESOURCES)
async def test_the_conversation_is_not_looked_through(
    npm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library would take most of a millisecond for each message, on the event loop."""
    name, field = _RESOURCES[npm]
    module: Any = importlib.import_module(name)
    transform = module.async_maybe_transform
    seen: list[object] = []

    async def watched(body: dict[str, Any], expected: object) -> object:
        seen.append(body[field])
        return await transform(body, expected)

    monkeypatch.setattr(module, "async_maybe_transform", watched)
    async with scripted([answer(Text.of("hello"))], npm) as (server, model):
        assert text_of(await ask(model)) == "hello"
        assert seen == [[]]
        assert server.requests[0].prompt == "hello"
