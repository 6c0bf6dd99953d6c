"""What reaches a provider, from request to request of a session: what was sent once is sent again
byte for byte, because a provider's cache knows a conversation by its first bytes."""

import asyncio
import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from kedge.agent import Agent
from tests.agent.world import World
from tests.model.prompt_cache import PromptCache
from tests.support.model_server import (
    Call,
    ModelServer,
    Refusal,
    Reply,
    Request,
    Text,
    Thinking,
    Wait,
    answer,
)

WIRES = ["openai-compatible", "anthropic", "openai", "google"]
_HISTORY = ("messages", "input", "contents")
_LISTS = ("content", "parts")


def _steps() -> list[Reply]:
    """Three prompts: thoughts, words, several calls at once, a call that fails, changed files."""
    thought = Thinking.of("hm ", "yes", signature="c2VhbGVk")
    return [
        answer(
            thought,
            Text.of("I look."),
            Call.of("read", filePath="a.txt"),
            Call.of("glob", pattern="*.txt"),
        ),
        answer(Call.of("write", filePath="new.txt", content="é\n"), Call.of("nothing")),
        answer(Text.of("Done.")),
        answer(thought, Call.of("bash", command="echo $((6*7)); exit 3", description="d")),
        answer(Text.of("42.")),
        answer(Call.of("read", filePath="new.txt")),
        answer(thought, Text.of("Still there.")),
    ]


def _rest(request: Request) -> str:
    """Everything but the conversation, as it was sent."""
    body = {key: value for key, value in request.body.items() if key not in _HISTORY}
    return json.dumps(_unmarked(body))


def _conversation(request: Request) -> list[str]:
    """The conversation block by block, as it was sent."""
    history = next(request.body[key] for key in _HISTORY if key in request.body)
    blocks: list[str] = []
    for message in _unmarked(history):
        inner = next((key for key in _LISTS if isinstance(message.get(key), list)), None)
        alone = {key: value for key, value in message.items() if key != inner}
        for block in message[inner] if inner else [None]:
            blocks.append(json.dumps([alone, block]))
    return blocks


def _unmarked(node: Any) -> Any:  # noqa: ANN401 - any JSON
    """Without the marks of a cache, which move on and are not part of what is cached."""
    if isinstance(node, list):
        return [_unmarked(each) for each in node]
    if isinstance(node, dict):
        return {key: _unmarked(each) for key, each in node.items() if key != "cache_control"}
    return node


@pytest.mark.parametrize("npm", WIRES)
async def test_what_was_sent_is_sent_again(world: World, npm: str) -> None:
    """Over the steps of a prompt, the prompts of a session and a restart of the process."""
    async with ModelServer(_steps()) as server:
        world.use(server, npm=npm)
        async with world.at_work() as scene:
            await scene.prompt("look around")
            world.put("by-hand.txt", "meanwhile\n")
            await scene.prompt("and how much is it?")
            id = scene.session.id
        async with world.open() as engine, Agent(engine, environ=world.environ) as agent:
            await agent.prompt(await engine.sessions.get(id), "once more")
        assert len(server.requests) == 7
        _check_growth(server.requests[:5])
        # How git stands is read anew by each process, and here files were written.
        _check_growth(server.requests, but=re.compile("<git>.*?</git>"))


@pytest.mark.parametrize("npm", WIRES)
async def test_what_was_sent_stays_where_it_was(world: World, npm: str) -> None:
    """Also where a prompt comes in the middle of a turn, and where one fails."""
    script: list[Reply] = [
        answer(Text.of("I look."), Wait(), Call.of("read", filePath="a.txt")),
        answer(Call.of("read", filePath="b.txt")),
        Refusal(status=400, message="no"),
        answer(Text.of("Done.")),
        answer(Text.of("Again.")),
    ]
    async with ModelServer(script) as server:
        world.use(server, npm=npm)
        async with world.at_work() as scene:
            first = asyncio.create_task(scene.prompt("look"))
            await server.reached()
            await scene.agent.submit(scene.session, "and be quick")
            server.release()
            await first
            await scene.prompt("go on")
            await scene.prompt("once more")
        assert len(server.requests) == 5
        assert "and be quick" in json.dumps(server.requests[1].body)
        _check_growth(server.requests)


def _check_growth(requests: Sequence[Request], but: re.Pattern[str] = re.compile("(?!)")) -> None:
    """Each request begins with all of the one before it, `but` for what may differ."""
    assert len({but.sub("", _rest(each)) for each in requests}) == 1
    sent = [[but.sub("", block) for block in _conversation(each)] for each in requests]
    for before, after in itertools.pairwise(sent):
        assert after[: len(before)] == before
        assert len(after) > len(before)


@pytest.mark.parametrize("npm", WIRES[:2])
async def test_claude_reads_what_it_read_before_from_its_cache(world: World, npm: str) -> None:
    """However many blocks a step adds: each request finds all of the one before it."""
    cache = PromptCache()

    def script(request: Request) -> Reply:
        cache.ask(request)
        if request.rounds == 2 or not request.may_call:
            return answer(Text.of("Done."))
        # Further than the cache looks back.
        calls = [Call.of("read", filePath="a.txt", offset=n + 1) for n in range(30)]
        return answer(Thinking.of("hm", signature="c2VhbGVk"), *calls)

    async with ModelServer(script) as server:
        models = {"claude": {"id": "anthropic/claude-sonnet-5.5"}}
        options = {"baseURL": server.url, "apiKey": "none"}
        provider = {"npm": f"@ai-sdk/{npm}", "options": options, "models": models}
        world.configure(model="scripted/claude", provider={"scripted": provider})
        async with world.at_work() as scene:
            await scene.prompt("look around")
            await scene.prompt("look again")
    assert len(cache.found) == 6
    assert cache.sizes[1] > cache.sizes[0] + 2 * 20
    assert cache.found[1:] == cache.sizes[:-1]
