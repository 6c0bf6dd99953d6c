"""A server with more clients than descriptors, and the private names of granian that it uses."""

import asyncio
import inspect
import socket
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import granian._granian
from granian.server.embed import Server

from tests.server.process import limited, served_apart
from tests.server.world import Client, Reply, read_reply
from tests.support.servers import scratch
from tests.support.timeouts import PATIENCE

CLIENTS = 40
ROOM = 16
"""Of 64 descriptors the server keeps the rest for its own files and commands."""

ADVICE = (
    "granian changed a private name that kedge.server.granian._server uses to serve on a socket of"
    " its own: AbstractServer._init_shared_socket, ._ssp, ._shd, ._sfd or"
    " SocketHolder(descriptor, is_uds, backlog). Read granian/server/common.py and embed.py of the"
    " new version, change OwnSocketServer to suit, run tests/server, and only then set the bound of"
    " granian in pyproject.toml to that version and run `make lock`."
)


async def test_clients_for_whom_there_is_no_room_are_told(tmp_path: Path) -> None:
    """Everybody gets an answer. Those who are in can use all that the server does, and when they go
    there is room for others."""
    with served_apart(tmp_path, descriptors=64) as process:
        client = Client(process.url, {"connection": "keep-alive"})
        async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE):
            sockets = [await stack.enter_async_context(client.connected()) for _ in range(CLIENTS)]
            for _, writer in sockets:
                writer.write(client.request("GET", "/global/health"))
            replies = [await read_reply(reader) for reader, _ in sockets]
            statuses = [reply.status for reply in replies]
            assert set(statuses) == {200, 503}
            assert statuses.count(503) >= CLIENTS - ROOM
            for reply, (reader, _) in zip(replies, sockets, strict=True):
                if reply.status == 503:
                    assert reply.headers["retry-after"] == "1"
                    assert reply.json["name"] == "Crowded"
                    assert await reader.read() == b""
            await _work(client, *sockets[statuses.index(200)])
        async with asyncio.timeout(PATIENCE):
            while (await client.get("/global/health")).status != 200:
                pass


async def _work(client: Client, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Prompt over one connection, which needs files and other programs."""

    async def post(target: str, body: object) -> Reply:
        writer.write(client.request("POST", target, body))
        return await read_reply(reader)

    session = (await post("/session", {})).json["id"]
    text = "write b.txt hello\nbash cat b.txt\ngrep hello\nsay done"
    body = {"parts": [{"type": "text", "text": text}]}
    assert (await post(f"/session/{session}/message", body)).json["info"]["finish"] == "stop"
    writer.write(client.request("GET", f"/session/{session}/message"))
    parts = [part for each in (await read_reply(reader)).json for part in each["parts"]]
    states = [part["state"]["status"] for part in parts if part["type"] == "tool"]
    assert states == ["completed"] * 3


def test_too_few_descriptors_to_start(tmp_path: Path) -> None:
    """It says so in one line, and what to do."""
    command = [sys.executable, "-m", "kedge", "serve", "--port", "0", str(tmp_path)]
    done = subprocess.run(
        limited(command, 40),
        env=scratch(tmp_path / "home"),
        capture_output=True,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "kedge: this process may open 40 files, and a server needs 56; allow it more with"
        " `ulimit -n`\n"
    )


def test_the_private_names_of_granian() -> None:
    """A version of granian that lacks a private name which the server uses is found out here."""

    async def app(scope: object, receive: object, send: object) -> None:
        """Never called."""

    server: Any = Server(app)
    assert {"_ssp", "_shd", "_sfd"} <= vars(server).keys(), ADVICE
    assert hasattr(Server, "_init_shared_socket"), ADVICE
    assert "self._init_shared_socket()" in inspect.getsource(Server.startup), ADVICE
    assert "(self._ssp, self._shd)" in inspect.getsource(Server._spawn_worker), ADVICE
    holder: Any = granian._granian.SocketHolder
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # It closes what it is given.
        descriptor = listener.dup().detach()
        assert holder(descriptor, False, 7).__getstate__() == (descriptor, False, 7), ADVICE
