"""One address for servers that come and go: a relay in a process of its own.

Run as a program it prints its port, and a line for each stream of events that begins; it reads
the ports of servers, each of which replaces the last.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

_ROOT = Path(__file__).parents[2]
_PIECE = 65536
_STREAMS = b"GET /global/event"
_HEARD = "heard\n"


class Relay:
    """The relay as seen by a test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._tell = process.stdin
        self._told = process.stdout
        self.url = f"http://127.0.0.1:{int(self._told.readline())}"

    def aim(self, url: str) -> None:
        """Connect to this server from now on."""
        self._tell.write(f"{urlsplit(url).port}\n")
        self._tell.flush()

    def until_heard(self) -> None:
        """Wait until one more client hears the events of a server."""
        assert self._told.readline() == _HEARD


@contextmanager
def relaying() -> Iterator[Relay]:
    """A relay for the time of the block."""
    with subprocess.Popen(
        [sys.executable, "-m", __name__],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Relay(process)
        finally:
            process.kill()


class _Connections:
    """Hands on what comes; until a server is named, and while it is away, nobody is let in."""

    def __init__(self) -> None:
        self.port: int | None = None

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there = await asyncio.open_connection("127.0.0.1", self.port)
            asks = asyncio.Event()
            await asyncio.gather(_ask(reader, there[1], asks), _tell(there[0], writer, asks))
        writer.close()


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asks: asyncio.Event
) -> None:
    try:
        while piece := await reader.read(_PIECE):
            if piece.startswith(_STREAMS):
                asks.set()
            writer.write(piece)
            await writer.drain()
    finally:
        writer.close()


async def _tell(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asks: asyncio.Event
) -> None:
    try:
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
            if asks.is_set():
                asks.clear()
                sys.stdout.write(_HEARD)
                sys.stdout.flush()
    finally:
        writer.close()


async def _relay() -> None:
    connections = _Connections()
    server = await asyncio.start_server(connections.accept, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    while line := await asyncio.to_thread(sys.stdin.readline):
        connections.port = int(line)


if __name__ == "__main__":
    asyncio.run(_relay())
