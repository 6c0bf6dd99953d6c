"""One prompt as its client sees it: how soon the first event comes, and how soon it is answered."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from bench.agents_sides import MODEL, PROVIDER
from bench.figures import Figure
from bench.scratch import Scratch
from bench.server_figures import compared_times
from bench.server_http import Connection, connected, request
from bench.server_model import asking_for
from bench.server_sides import Side

EVENTS = "/event"
_WORDS = 20
_NO_PAUSE = 1_000_000
_WARM_UP = 3
_PATIENCE = 120
"""Seconds after which a turn is taken to have failed."""


async def turns(scratch: Scratch, sides: Sequence[Side]) -> AsyncIterator[Figure]:
    """Prompts to every server by turns."""
    scratch.say(f"prompts: {' and '.join(side.name for side in sides)}")
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(_client(side.port)) for side in sides]
        rounds = [
            [await client.turn() for client in clients]
            for _ in range(_WARM_UP + scratch.size(25, 2))
        ]
    samples = list(zip(*rounds[_WARM_UP:], strict=True))
    first = [[each.first_event for each in side] for side in samples]
    idle = [[each.idle for each in side] for side in samples]
    for figure in (
        *compared_times("server, prompt until its first event", first),
        *compared_times(f"server, prompt of {_WORDS} words until idle", idle),
    ):
        yield figure


@dataclass(frozen=True, slots=True)
class _Turn:
    """What the client of one prompt waited for, in seconds from when it was sent."""

    first_event: float
    idle: float


class _Client:
    """Somebody who prompts, and hears the events on another connection."""

    def __init__(self, port: int, listener: "_Listener") -> None:
        self._port = port
        self._listener = listener

    async def turn(self) -> _Turn:
        """Have a prompt answered in a new session that has a title."""
        # A connection of its own: servers close those that rest for as long as another's turn.
        async with connected(self._port) as asking, asyncio.timeout(_PATIENCE):
            session = await new_session(asking)
            heard = self._listener.listen_for(session)
            begin = time.perf_counter()
            await prompt(asking, session, asking_for(_WORDS, _NO_PAUSE))
            first, idle = await heard
        return _Turn(first - begin, idle - begin)


class _Listener(asyncio.Protocol):
    """A subscriber that only looks for what a session tells."""

    def __init__(self) -> None:
        self._rest = b""
        self._session: bytes | None = None
        self._first: float | None = None

    def listen_for(self, session: str) -> asyncio.Future[tuple[float, float]]:
        """When the first message of a session was told, and when that it is idle."""
        self._session = session.encode()
        self._first = None
        self._heard: asyncio.Future[tuple[float, float]] = (
            asyncio.get_running_loop().create_future()
        )
        return self._heard

    def data_received(self, data: bytes) -> None:
        """Look at whole events."""
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            if self._session is not None and self._session in event:
                self._hear(event, time.perf_counter())

    def _hear(self, event: bytes, now: float) -> None:
        if self._first is None and b'"message.updated"' in event:
            self._first = now
        elif self._first is not None and b'"session.idle"' in event and not self._heard.done():
            self._heard.set_result((self._first, now))


@asynccontextmanager
async def _client(port: int) -> AsyncIterator[_Client]:
    """Somebody who is connected and hears events."""
    loop = asyncio.get_running_loop()
    transport, listener = await loop.create_connection(_Listener, "127.0.0.1", port)
    try:
        transport.write(request(port, "GET", EVENTS))
        yield _Client(port, listener)
    finally:
        transport.close()


async def new_session(asking: Connection) -> str:
    """A session with a title, so that no model is asked for one."""
    made = await asking.ask("POST", "/session", {"title": "Measured"})
    found: str = made["id"]
    return found


async def prompt(asking: Connection, session: str, text: str) -> None:
    """Ask the model, without waiting for the answer."""
    body = {
        "model": {"providerID": PROVIDER, "modelID": MODEL},
        "parts": [{"type": "text", "text": text}],
    }
    await asking.ask("POST", f"/session/{session}/prompt_async", body)
