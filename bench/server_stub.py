"""A server that does nothing but answer, to learn how much the load can ask at most."""

import argparse
import selectors
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.processes import started
from bench.server_load import Load, load

_BUFFER = 64 * 1024


@asynccontextmanager
async def stub(size: int) -> AsyncIterator[tuple[int, Load]]:
    """Its port and a load on it, with answers of so many bytes."""
    async with started(sys.executable, "-m", __name__, str(size)) as process:
        port = int(await process.line())
        async with load(port, process.pid) as asking:
            yield port, asking


def _main(size: int) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (size, b"x" * size)
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
                    continue
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj.recv(_BUFFER):
                    key.fileobj.sendall(answer)
                else:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.server_stub")
    parser.add_argument("size", type=int)
    _main(parser.parse_args().size)
