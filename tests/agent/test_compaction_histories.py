"""Long sessions over a small context, with everything that happens in sessions, at a server that
counts: each request fits, is one that its provider takes, and holds what was kept."""

import json
import random
from typing import Any

import pytest

from kedge.agent.model_input import SUMMARY_ASKED
from kedge.domain.events import SessionCompacted
from kedge.domain.messages import AssistantMessage, MessageWithParts, UserMessage
from kedge.domain.parts import CompactionPart, TextPart
from kedge.engine.session import Session
from kedge.testing.replay import both
from tests.agent.test_attachments import PNG
from tests.agent.test_compaction import is_summary, url_of
from tests.agent.test_model_input import check_accepted
from tests.agent.test_structured_output import WIRES
from tests.agent.world import Scene, World, check_closed, info_of
from tests.support.model_server import (
    Call,
    ModelServer,
    Refusal,
    Reply,
    Request,
    Text,
    Thinking,
    Usage,
    answer,
)

CONTEXT = 20_000
"""Tokens; kedge's own instructions and tools are a quarter of it."""


class CountingModel:
    """Answers at random, counts four characters as a token, and refuses what is too long."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.refused = 0

    def __call__(self, request: Request) -> Reply:
        tokens = len(json.dumps(request.body)) // 4
        if tokens > CONTEXT:
            self.refused += 1
            return Refusal(status=400, message="prompt is too long", code="context_length_exceeded")
        if is_summary(request):
            items: tuple[Any, ...] = (Text.of(f"## Objective\nsummary {'s' * 400}"),)
        elif self._chance.random() < 0.4:
            items = (Text.of("done " * self._chance.randrange(1, 300)),)
        else:
            items = self._work()
        if items == ():
            return Refusal(status=400, message="no, for another reason")
        output = sum(len(str(item)) for item in items) // 4
        return answer(*items, usage=Usage(input=tokens, output=output))

    def _work(self) -> tuple[Any, ...]:
        big = Call.of("bash", command="cat big.txt")
        small = Call.of("read", filePath="a.txt")
        wrong = Call.of("edit", filePath="a.txt", oldString="nowhere", newString="x")
        unknown = Call.of("frobnicate", x=1)
        thinks = Thinking.of("Hm. ")
        return self._chance.choice(
            [
                (Text.of("I know."),),
                (Text.of("I look."), big),
                (big, small),
                (thinks, Text.of("So."), wrong),
                (unknown,),
                (),
            ]
        )


def configure(world: World, server: ModelServer, npm: str) -> None:
    """Use a scripted server as a model with a small context."""
    model = {
        "limit": {"context": CONTEXT, "output": 1000},
        "attachment": True,
        "modalities": {"input": ["text", "image"], "output": ["text"]},
    }
    provider = {
        "npm": f"@ai-sdk/{npm}",
        "options": {"baseURL": server.url, "apiKey": "none"},
        "models": {"spoken": model},
    }
    # Nobody is there to be asked about the same call again and again.
    rules = {"doom_loop": "allow"}
    world.configure(model="scripted/spoken", provider={"scripted": provider}, permission=rules)


def check_wire(request: Request) -> None:
    """Hold a request to what its provider demands of a conversation."""
    if "contents" in request.body:
        _check_google(request.body["contents"])
    elif "input" in request.body:
        _check_responses(request.body["input"])
    else:
        check_accepted(request)


def _check_google(contents: list[dict[str, Any]]) -> None:
    assert [each["role"] for each in contents] == [
        ("user", "model")[n % 2] for n in range(len(contents))
    ]
    open_calls: list[str] = []
    for each in contents:
        answered = [
            part["functionResponse"] for part in each["parts"] if "functionResponse" in part
        ]
        assert [one["name"] for one in answered] == open_calls
        open_calls = [
            part["functionCall"]["name"] for part in each["parts"] if "functionCall" in part
        ]
        assert each["parts"]
    assert open_calls == []
    assert contents[-1]["role"] == "user"


def _check_responses(items: list[dict[str, Any]]) -> None:
    open_calls: list[str] = []
    first = next(item for item in items if item.get("role") not in ("system", "developer"))
    assert first["role"] == "user"
    for item in items:
        if item.get("type") == "function_call":
            open_calls.append(item["call_id"])
        elif item.get("type") == "function_call_output":
            open_calls.remove(item["call_id"])
        elif item.get("role") == "user":
            assert open_calls == []
    assert open_calls == []
    assert items[-1].get("role") != "assistant"


class Story:
    """What happens in one session after another."""

    def __init__(self, scene: Scene, server: ModelServer, chance: random.Random) -> None:
        self.scene = scene
        self.session = scene.session
        self._server = server
        self._chance = chance
        self._prompts = 0

    async def go_on(self) -> None:
        """One thing more."""
        doing = [self.ask] * 6 + [self.summarize, self.undo, self.undo_and_back, self.fork]
        await self._chance.choice(doing)()

    async def ask(self) -> None:
        """A prompt, short or long, or with a picture."""
        self._prompts += 1
        text = f"<p{self._prompts}> " + "word " * self._chance.choice([1, 50, 400, 1200])
        parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
        if self._chance.random() < 0.2:
            picture = {"type": "file", "mime": "image/png", "filename": "p", "url": url_of(PNG)}
            parts.append(picture)
        count = len(self._server.requests)
        said = await self.scene.prompt(parts, self.session)
        error = info_of(said).error
        assert error is None or "for another reason" in str(error.data), error
        await self.check(self._server.requests[count:])

    async def summarize(self) -> None:
        """A compaction by hand."""
        await self.scene.agent.summarize(self.session)

    async def undo(self) -> None:
        """Some turns; the next prompt makes that final."""
        if prompts := await self._asked():
            await self.session.revert(self._chance.choice(prompts[-4:]).info.id)

    async def undo_and_back(self) -> None:
        """Some turns, and then not."""
        await self.undo()
        await self.session.unrevert()

    async def fork(self) -> None:
        """Go on in a copy of all or of a part."""
        prompts = await self._asked()
        before = self._chance.choice([None, *(each.info.id for each in prompts[1:])])
        if (await self.session.refresh()).info.revert is None:
            self.session = await self.session.fork(before)

    async def check(self, requests: list[Request]) -> None:
        """Hold the requests of a prompt to their provider's rules, the last one to the store."""
        for each in requests:
            check_wire(each)
        told = json.dumps(requests[-1].body)
        messages = await _messages(self.session)
        first = _first_kept(messages)
        assert (SUMMARY_ASKED in told) is (first is not None)
        for message in messages[first or 0 :]:
            for part in message.parts:
                if isinstance(part, TextPart) and isinstance(message.info, UserMessage):
                    assert part.text.split(" ")[0] in told

    async def _asked(self) -> list[MessageWithParts]:
        """The prompts, oldest first."""
        return [
            each for each in await _messages(self.session) if isinstance(each.info, UserMessage)
        ]


async def _messages(session: Session) -> list[MessageWithParts]:
    return (await session.messages(limit=1000)).messages


def _first_kept(messages: list[MessageWithParts]) -> int | None:
    """Where what the model is told word by word begins, if there is a summary."""
    ids = [each.info.id for each in messages]
    whole = {
        each.info.parentID
        for each in messages
        if isinstance(each.info, AssistantMessage)
        and each.info.summary
        and each.info.finish
        and each.info.error is None
    }
    for n, message in reversed(list(enumerate(messages))):
        for part in message.parts:
            if isinstance(part, CompactionPart) and message.info.id in whole:
                tail = part.tail_start_id
                return ids.index(tail) if tail in ids else n
    return None


@pytest.mark.parametrize("npm", WIRES)
@pytest.mark.parametrize("length", [12, pytest.param(150, marks=pytest.mark.torture)])
async def test_histories(world: World, npm: str, length: int) -> None:
    """Whatever happened before: prompts are answered, the request of each is as it must be, and the
    log tells what is stored."""
    world.put("big.txt", "x" * 79 + "\n" + "y" * 8_000)
    chance = random.Random(f"{npm} {length}")
    model = CountingModel(chance)
    async with ModelServer(model) as server:
        configure(world, server, npm)
        async with world.at_work() as scene:
            story = Story(scene, server, chance)
            await story.ask()
            for _ in range(length):
                await story.go_on()
            await story.ask()
            await story.summarize()
            await story.ask()
            await scene.heard.caught_up()
            assert scene.heard.of(SessionCompacted)
            await check_closed(scene, story.session)
            log, stored = await both(scene.engine.store)
            assert log == stored
