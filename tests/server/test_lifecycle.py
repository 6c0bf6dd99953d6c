"""How a server comes and goes, seen from inside of its process."""

import asyncio
import importlib
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from kedge.domain.errors import CannotListen, StoreError, StoreUnavailable
from kedge.engine.engine import Engine
from kedge.server import granian, serving
from kedge.server.app import StartupGate
from kedge.server.responses import Message
from kedge.server.settings import ServerSettings
from tests.agent.world import World, info_of
from tests.server.event_recorder import listening
from tests.server.world import Client, serve
from tests.support.timeouts import PATIENCE

# The package shows the function under the module's name.
module: Any = importlib.import_module("kedge.server.lifecycle")


class Slow:
    """An engine that opens when it is told to, or fails; and the address that is listened on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.go: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open = module.open_engine
        monkeypatch.setattr(module, "open_engine", self._opened)
        monkeypatch.setattr(module, "url_of", self._url)

    def _url(self, hostname: str, listener: socket.socket) -> str:
        url = granian.url_of(hostname, listener)
        self.client.set_result(Client(url, {}))
        return url

    @asynccontextmanager
    async def _opened(self, *arguments: Any, **options: Any) -> AsyncIterator[Engine]:  # noqa: ANN401 - as kedge.open
        await self.go
        async with self._open(*arguments, **options) as engine:
            yield engine


async def test_requests_wait_for_the_engine(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks while the database is opened gets an answer when it is open."""
    slow = Slow(monkeypatch)

    async def start() -> None:
        async with serve(world):
            await early

    starting = asyncio.create_task(start())
    client = await slow.client
    async with client.connected() as (reader, writer):
        writer.write(client.request("GET", "/global/health"))
        early = asyncio.ensure_future(reader.readline())
        slow.go.set_result(None)
        async with asyncio.timeout(PATIENCE):
            await starting
        assert (await early).startswith(b"HTTP/1.1 200 ")


async def test_an_engine_that_cannot_be_opened(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends with the reason, and those who wait are told that it stops."""
    slow = Slow(monkeypatch)

    async def start() -> None:
        async with serve(world):
            raise AssertionError

    starting = asyncio.create_task(start())
    client = await slow.client
    waiting = asyncio.create_task(client.get("/global/health"))
    async with client.connected() as (_, writer):
        # Some are slow to say what they want; nobody waits for them.
        writer.write(b"GET /glo")
        slow.go.set_exception(StoreUnavailable("no database"))
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StoreError, match="no database"):
                await starting
    try:
        reply = await waiting
    except (ConnectionError, asyncio.IncompleteReadError, IndexError):
        # It came too late to be let in.
        return
    assert (reply.status, reply.json["name"]) == (503, "Stopping")


@pytest.mark.parametrize(
    ("path", "status", "is_whole"),
    [("/event", 200, False), ("/global/event/", 200, False), ("/session", 503, True)],
)
async def test_who_comes_while_it_stops(path: str, status: int, is_whole: bool) -> None:
    """Streams are dropped, so that their clients come back; others are told."""
    door = StartupGate()
    await door.close()
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await door({"path": path}, asyncio.Future, send)
    assert sent[0]["status"] == status
    assert (sent[-1].get("more_body") is False) is is_whole


async def test_a_port_has_one_server(world: World) -> None:
    """Another server on the same port is refused, with what to do about it."""
    async with serve(world) as served:
        port = int(served.url.rpartition(":")[2])
        with pytest.raises(CannotListen, match=f"port {port} of 127.0.0.1.*--port"):
            async with serving(world.folder, settings=ServerSettings(port=port)):
                raise AssertionError


async def test_stopping(world: World) -> None:
    """Streams are dropped without an end, those who wait are told, sessions are interrupted."""
    async with AsyncExitStack() as clients:
        async with serve(world) as served:
            session = await served.running.backend.engine.sessions.create("Running")
            recorder = await clients.enter_async_context(listening(served))
            body = {"parts": [{"type": "text", "text": "say Well\nwait 1000s"}]}
            asked = asyncio.create_task(served.post(f"/session/{session.id}/message", body))
            await recorder.until("message.part.delta")
        while await recorder.next() is not None:
            pass
        assert recorder.ended is False
        reply = await asked
        assert (reply.status, reply.json["name"]) == (503, "Stopping")
    async with world.open() as engine:
        assert engine.recovery.sessions == []
        _, answer = (await (await engine.sessions.get(session.id)).messages()).messages
        assert info_of(answer).error is not None
