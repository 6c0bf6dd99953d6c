"""The model of the agents that are measured, in a process of its own.

It says as many words as it is asked for, all at once, and prints when the last byte of them was
sent, by the clock that all processes of a machine share.
"""

import asyncio
import re
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.processes import Process, started
from tests.support.model_server import Answer, ModelServer, Request, Text, Usage

_BUFFER = 4 * 1024 * 1024
"""So that the last byte is sent at once, however slowly somebody reads."""


class Model:
    """The server as seen from the bench."""

    def __init__(self, process: Process, port: int) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{port}/v1"

    async def last_byte(self) -> int:
        """When the next answer was sent; it must have been asked for."""
        return int(await self._process.line())


@asynccontextmanager
async def model() -> AsyncIterator[Model]:
    """A server that answers what `asking_for` asks."""
    async with started(sys.executable, "-m", __name__) as process:
        yield Model(process, int(await process.line()))


def asking_for(tokens: int) -> str:
    """A prompt that is answered with so many tokens."""
    return f"Say {tokens} words."


def _said(request: Request) -> Answer:
    found = re.search(r"Say (\d+) words", request.prompt)
    assert found is not None, request.prompt
    words = tuple(f"word{number} " for number in range(int(found[1])))
    return Answer(items=(Text(pieces=words),), at_once=True, usage=Usage(output=len(words)))


class _Timed(ModelServer):
    async def _reply(self, request: Request, writer: asyncio.StreamWriter) -> None:
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        writer.transport.set_write_buffer_limits(0)
        await super()._reply(request, writer)
        if request in self.requests:
            print(time.monotonic_ns(), flush=True)


async def _serve() -> None:
    async with _Timed(_said) as server:
        print(server.port, flush=True)
        # It ends with whoever started it.
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
