"""A server that may have few descriptors, and more clients than that."""

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from tests.server.process import limited, served_apart
from tests.server.world import Client, Reply, read_reply
from tests.support.patience import PATIENCE
from tests.support.served import scratch

CLIENTS = 40
ROOM = 16
"""Of 64 descriptors the server keeps the rest for its own files and commands."""


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
