"""From a prompt, or the end of a step, to the request that the model gets: it must not matter how
long the session is."""

import asyncio
import gc
import json
import os
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from unittest.mock import patch

import msgspec

import kedge
from bench.figures import Figure, figure_of, ratio
from bench.filled_database import new_message, new_part, store_all
from bench.scratch import Scratch
from kedge.agent import Agent, Call, Output, tool
from kedge.domain.messages import AssistantMessage, MessagePath, MessageTime
from kedge.domain.providers import ModelInfo
from kedge.domain.sessions import NO_TOKENS
from kedge.engine.session import Session
from kedge.model.catalog import Catalog
from kedge.model.port import Finished, ModelEvent, ModelRequest, TextDelta, ToolCalled
from kedge.store.queries.messages import put_message
from kedge.store.queries.parts import put_part
from kedge.store.transaction import ScriptMaker

_TARGET = 1.5
_WORDS = "The quick brown fox jumps over the lazy dog while it rains. " * 5
_TICK = 0.001
_IN_PROCESS = "in the process"
_AGENTS = 2
"""Each has a first prompt; those after it find what the agent has kept."""


@dataclass
class Provider:
    """A provider that answers each prompt with so many calls, and notes when requests came."""

    calls: int
    url: str = ""
    came: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    _left: int = 0

    def begin(self) -> None:
        """A prompt is about to be asked."""
        self.came, self.answered, self._left = [], [], self.calls

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                await reader.readexactly(size)
                self.came.append(time.perf_counter())
                writer.write(self._answer())
                await writer.drain()
                self.answered.append(time.perf_counter())
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def next_call(self) -> int | None:
        """The number of the next call; None if it was the last."""
        self._left -= 1
        return self._left if self._left >= 0 else None

    def _answer(self) -> bytes:
        delta: dict[str, object] = {"role": "assistant", "content": "Done."}
        finish = "stop"
        if (number := self.next_call()) is not None:
            call = {"name": "nothing", "arguments": json.dumps({"number": number})}
            called = {"index": 0, "id": f"c{number}", "type": "function", "function": call}
            delta, finish = {"role": "assistant", "tool_calls": [called]}, "tool_calls"
        chunks = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        ]
        common = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "spoken"}
        text = "".join(f"data: {json.dumps({**common, **each})}\n\n" for each in chunks)
        body = f"{text}data: [DONE]\n\n".encode()
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


@tool("nothing", description="Does nothing.")
async def nothing(call: Call, number: int) -> Output:
    """Do nothing."""
    return Output(text=f"nothing {number}")


@dataclass(frozen=True)
class Times:
    """What one prompt took, in seconds."""

    prompt: float
    """Until its first request came."""
    step: float
    """From an answer with a call until the next request, in the middle."""
    stall: float
    """The longest that the event loop did not come round."""


class Scripted:
    """The same provider as a model in this process."""

    def __init__(self, info: ModelInfo, provider: Provider) -> None:
        self.info = info
        self._provider = provider

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """Ask."""
        self._provider.came.append(time.perf_counter())
        yield self._events()
        self._provider.answered.append(time.perf_counter())

    async def _events(self) -> AsyncIterator[ModelEvent]:
        if (number := self._provider.next_call()) is None:
            yield TextDelta(text="Done.")
            yield Finished(reason="stop", tokens=NO_TOKENS, cost=0)
            return
        given = {"number": number}
        yield ToolCalled(call_id=f"c{number}", name="nothing", input=given, raw="")
        yield Finished(reason="tool-calls", tokens=NO_TOKENS, cost=0)


async def steps(scratch: Scratch) -> AsyncIterator[Figure]:
    """Sessions of three lengths: the first prompt after opening, and later ones."""
    sizes = [20, scratch.size(2_000, 40), scratch.size(20_000, 80)]
    settings = kedge.Settings(snapshots=False)
    async with _provider() as provider, scratch.engine(settings=settings) as engine:
        sessions = []
        for size in sizes:
            scratch.say(f"filling a session with {size:,} messages")
            session = await engine.sessions.create("Given")
            await _fill(engine, session, size)
            sessions.append(session)
        environ = _environ(scratch, provider)
        for how, opened, rounds in (
            (_IN_PROCESS, partial(Scripted, provider=provider), scratch.size(8, 1)),
            ("by HTTP", None, scratch.size(2, 1)),
        ):
            scratch.say(f"prompting a model {how}")
            found = await _timed(engine, sessions, provider, environ, rounds, opened)
            for figure in _figures(sizes, found, how):
                yield figure


async def _timed(
    engine: kedge.Engine,
    sessions: list[Session],
    provider: Provider,
    environ: dict[str, str],
    rounds: int,
    opened: Callable[[ModelInfo], Scripted] | None,
) -> list[tuple[list[Times], list[Times]]]:
    """For each session the first prompts of agents, and later ones, taken by turns."""
    given = Catalog.open if opened is None else lambda _, info: opened(info)
    first: list[list[Times]] = [[] for _ in sessions]
    later: list[list[Times]] = [[] for _ in sessions]
    with patch.object(Catalog, "open", given):
        for _ in range(_AGENTS):
            async with Agent(engine, tools=[nothing], environ=environ) as agent:
                await _prompt(agent, await engine.sessions.create("Warm"), provider)
                for times, count in ((first, 1), (later, rounds)):
                    for _ in range(count):
                        for session, found in zip(sessions, times, strict=True):
                            found.append(await _prompt(agent, session, provider))
    return list(zip(first, later, strict=True))


async def _prompt(agent: Agent, session: Session, provider: Provider) -> Times:
    provider.begin()
    gc.collect()
    async with _stalls() as stalls:
        begin = time.perf_counter()
        await agent.prompt(session, "Go on.")
    between = [b - a for a, b in zip(provider.answered, provider.came[1:], strict=False)]
    return Times(provider.came[0] - begin, statistics.median(between), max(stalls))


@asynccontextmanager
async def _stalls() -> AsyncIterator[list[float]]:
    """How long the event loop took to come round, each time beyond what it was asked to."""
    found = [0.0]

    async def tick() -> None:
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(_TICK)
            found.append(time.perf_counter() - begin - _TICK)

    ticking = asyncio.create_task(tick())
    try:
        yield found
    finally:
        ticking.cancel()


def _figures(
    sizes: list[int], found: list[tuple[list[Times], list[Times]]], how: str
) -> list[Figure]:
    (short_first, short), *longer = found
    # What a request takes to be written and sent grows with it.
    target = _TARGET if how == _IN_PROCESS else None
    figures = []
    for size, (first, later) in zip(sizes[1:], longer, strict=True):
        name = f"{size:,} messages / {sizes[0]}, model {how}"
        prompts = [each.prompt for each in later], [each.prompt for each in short]
        within = [each.step for each in later], [each.step for each in short]
        figures += [
            ratio(
                f"first prompt, {name}",
                [each.prompt for each in first],
                [each.prompt for each in short_first],
            ),
            ratio(f"later prompt, {name}", *prompts, target=target),
            ratio(f"step, {name}", *within, target=target),
            *(
                figure_of(
                    f"longest stall, {when}, {name}", [each.stall * 1e3 for each in times], "ms"
                )
                for when, times in (("first prompt", first), ("later", later))
            ),
        ]
    return figures


async def _fill(engine: kedge.Engine, session: Session, count: int) -> None:
    """Prompts and answers by turns."""

    def scripts() -> Iterator[ScriptMaker[object]]:
        for _ in range(count // 2):
            asked = new_message(engine, session)
            answered = AssistantMessage(
                id=engine.ids.message(),
                sessionID=session.id,
                parentID=asked.id,
                mode="build",
                agent="build",
                modelID="spoken",
                providerID="scripted",
                path=MessagePath(cwd="/", root="/"),
                cost=0,
                tokens=NO_TOKENS,
                time=MessageTime(created=asked.time.created, completed=asked.time.created),
                finish="stop",
            )
            for message in (asked, answered):
                yield partial(put_message, message)
                part = msgspec.structs.replace(
                    new_part(engine, asked, _WORDS), messageID=message.id
                )
                yield partial(put_part, part, now=engine.clock.now())

    await store_all(engine, scripts())


@asynccontextmanager
async def _provider() -> AsyncIterator[Provider]:
    provider = Provider(calls=4)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    provider.url = f"http://{host}:{port}/v1"
    try:
        yield provider
    finally:
        server.close()


def _environ(scratch: Scratch, provider: Provider) -> dict[str, str]:
    """A home in which the provider is configured."""
    home = scratch.path("home")
    config = home / "config" / "kedge"
    config.mkdir(parents=True)
    options = {"baseURL": provider.url, "apiKey": "none"}
    scripted = {
        "npm": "@ai-sdk/openai-compatible",
        "options": options,
        "models": {"spoken": {}},
    }
    said = {"model": "scripted/spoken", "provider": {"scripted": scripted}}
    (config / "kedge.json").write_text(json.dumps(said))
    return {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "PATH": os.environ["PATH"]}
