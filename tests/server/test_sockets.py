"""The sockets of clients: how long they are kept, and for whom."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest

from kedge.server import granian
from tests.agent.world import World
from tests.server.world import Served, serve
from tests.support.timeouts import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sockets are looked up in /proc")


@asynccontextmanager
async def silent_listener(served: Served) -> AsyncIterator[socket.socket]:
    """A client that asks for events and never reads any."""
    address = urlsplit(served.url)
    client = socket.socket()
    with client:
        # The less the kernel takes for it, the sooner the server has to wait.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, (address.hostname, address.port))
        await loop.sock_sendall(client, served.request("GET", "/global/event"))
        await until(lambda: len(served.running.backend.streams) > 0)
        yield client


def accepted(client: socket.socket) -> socket.socket | None:
    """The server's end of a connection, which this process has too, while it is open."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            # Not of files: closing a copy of the database's would drop its locks.
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                found = socket.socket(fileno=os.dup(int(name)))
                with suppress(OSError):
                    if found.getpeername() == client.getsockname():
                        return found
                found.close()
    return None


def is_open(client: socket.socket) -> bool:
    """Whether the server's end of a connection is open."""
    found = accepted(client)
    if found is not None:
        found.close()
    return found is not None


async def until(is_it: Callable[[], bool]) -> None:
    """Wait for what no event tells."""
    async with asyncio.timeout(PATIENCE):
        while not is_it():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_sockets_that_are_accepted_know_how_long_to_wait(served: Served) -> None:
    """Those of clients that do not read, and of clients that are idle and may have vanished."""
    async with silent_listener(served) as client:
        found = accepted(client)
        assert found is not None
        with found:
            patience = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert patience == granian.SEND_PATIENCE * 1000
            assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            idle = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            assert idle == granian.IDLE_PATIENCE


async def test_a_client_that_never_reads_loses_its_socket(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not keep what nobody takes."""
    monkeypatch.setattr(granian, "SEND_PATIENCE", 1)
    async with serve(world) as served, silent_listener(served) as client:
        session = (await served.post("/session", {})).json["id"]
        body = {"parts": [{"type": "text", "text": "huge 6MB"}]}
        await served.post(f"/session/{session}/message", body)
        await until(lambda: not is_open(client))
        await until(lambda: len(served.running.backend.streams) == 0)
