"""A server that does nothing but answer, to learn how much the load can ask at most.

It answers `/<number>` with so many bytes.
"""

import functools
import selectors
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.processes import started
from bench.server_load import Load, load

_BUFFER = 64 * 1024


@asynccontextmanager
async def stub() -> AsyncIterator[tuple[int, Load]]:
    """Its port, and a load on it."""
    async with started(sys.executable, "-m", __name__) as process:
        port = int(await process.line())
        async with load(port, process.pid) as asking:
            yield port, asking


def _main() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    with selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        # It ends with whoever started it.
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is listening:
                    selector.register(listening.accept()[0], selectors.EVENT_READ)
                elif isinstance(key.fileobj, socket.socket) and not _answer(key.fileobj):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


def _answer(connection: socket.socket) -> bool:
    """Whether there was something to answer."""
    asked = connection.recv(_BUFFER)
    if asked:
        connection.sendall(_text(asked.split(b" ", 2)[1]))
    return bool(asked)


@functools.cache
def _text(path: bytes) -> bytes:
    size = int(path[1:])
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (size, b"x" * size)


if __name__ == "__main__":
    _main()
