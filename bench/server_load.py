"""The load: processes that only send requests made beforehand and count the bytes of the answers.

Each keeps a few connections and asks on each as soon as it was answered. Nothing of an answer is
looked at but its status and its length, so that the server is the bottleneck and not who asks.
"""

import argparse
import base64
import json
import selectors
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from bench.processes import Process, processor_time, started

_PROCESSES = 2
_CONNECTIONS = 4
"""Of each process."""
_BUFFER = 1024 * 1024
_END, _LENGTH = b"\r\n\r\n", b"content-length:"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one round of requests took."""

    seconds: float
    """For each request."""
    processor: float
    """Seconds of a processor that the server had for each request."""
    size: float
    """Bytes of an answer, with its head."""


class Load:
    """The processes as seen from the bench."""

    def __init__(self, pid: int, processes: Sequence[Process]) -> None:
        self._pid = pid
        self._processes = processes

    async def ask(self, requests: Sequence[bytes], count: int) -> Loaded:
        """Have so many requests answered, taken from these by turns."""
        each = count // len(self._processes)
        texts = [base64.b64encode(request).decode() for request in requests]
        for process in self._processes:
            await process.tell(json.dumps([each, texts]))
        for process in self._processes:
            assert await process.line() == "ready\n"
        before = processor_time(self._pid)
        for process in self._processes:
            await process.tell("go")
        told = [json.loads(await process.line()) for process in self._processes]
        asked = each * len(self._processes)
        seconds = (max(end for _, end, _ in told) - min(begin for begin, _, _ in told)) / 1e9
        return Loaded(
            seconds=seconds / asked,
            processor=(processor_time(self._pid) - before) / asked,
            size=sum(size for _, _, size in told) / asked,
        )


@asynccontextmanager
async def load(port: int, pid: int) -> AsyncIterator[Load]:
    """Processes that ask the server at a port, which is the process `pid`."""
    async with AsyncExitStack() as stack:
        command = (sys.executable, "-m", __name__, str(port))
        processes = [await stack.enter_async_context(started(*command)) for _ in range(_PROCESSES)]
        yield Load(pid, processes)


class _Asker:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._left = 0
        self.size = 0

    def answered(self, buffer: bytearray) -> bool:
        """Take what came; whether that was the end of an answer."""
        came = self.socket.recv_into(buffer)
        if not came:
            raise RuntimeError("the server closed a connection that was to be kept")
        if not self._left:
            self._left = _length(bytes(buffer[: min(came, 4096)]))
        self._left -= came
        self.size += came
        return not self._left


def _length(begin: bytes) -> int:
    """How long an answer is that begins so."""
    if not begin.startswith(b"HTTP/1.1 20"):
        raise RuntimeError(f"not a success: {begin!r}")
    end = begin.index(_END)
    at = begin[:end].lower().index(_LENGTH) + len(_LENGTH)
    length, _, _ = begin[at:].partition(b"\r\n")
    return end + len(_END) + int(length)


def _main(port: int) -> None:
    for line in iter(sys.stdin.readline, ""):
        count, texts = json.loads(line)
        askers = [_Asker(port) for _ in range(_CONNECTIONS)]
        requests = _over_and_over([base64.b64decode(text) for text in texts])
        print("ready", flush=True)
        sys.stdin.readline()
        begin = time.monotonic_ns()
        _ask(askers, requests, count)
        end = time.monotonic_ns()
        print(json.dumps([begin, end, sum(each.size for each in askers)]), flush=True)
        for each in askers:
            each.socket.close()


def _over_and_over(requests: Sequence[bytes]) -> Iterator[bytes]:
    while True:
        yield from requests


def _ask(askers: Sequence[_Asker], requests: Iterator[bytes], count: int) -> None:
    buffer = bytearray(_BUFFER)
    with selectors.DefaultSelector() as selector:
        for asker in askers[:count]:
            selector.register(asker.socket, selectors.EVENT_READ, asker)
            asker.socket.sendall(next(requests))
        unsent, unanswered = count - len(askers[:count]), count
        while unanswered:
            for key, _ in selector.select():
                if key.data.answered(buffer):
                    unanswered -= 1
                    if unsent:
                        unsent -= 1
                        key.data.socket.sendall(next(requests))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.server_load")
    parser.add_argument("port", type=int)
    _main(parser.parse_args().port)
