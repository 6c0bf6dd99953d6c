"""Many subscribers in a process of their own, who hear what a model says through a server.

A few of them read as soon as something comes, to know how late it is; they are spread evenly among
the others, who only read now and then, so that hearing takes little of the machine.
"""

import argparse
import json
import re
import selectors
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from itertools import cycle, islice

from bench.processes import Process, started
from bench.server_http import request
from bench.server_model import WORDS

_ATTENTIVE = 10
_AT_A_TIME = 8
"""How many of the others read before those who pay attention are looked at again."""
_TICK = 0.002
_QUIET = 30e9
"""Nanoseconds without a word after which nobody waits for the missing ones."""
_BUFFER = 256 * 1024
_FRAME = b"\n\n"
_DELTA = re.compile(rb'"delta":"(' + WORDS + rb')"')


@dataclass(frozen=True, slots=True)
class Heard:
    """What they heard."""

    words: int
    """By all together."""
    seconds: float
    """From the moment the first word was said until the last was heard."""
    usual: float
    """Seconds from the saying of a word to its hearing, of half the words."""
    worst: float
    """The same, of all words but one in a hundred."""
    gone: int
    """How many the server let go."""


class Listeners:
    """The subscribers as seen from the bench."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def heard(self) -> Heard:
        """What they heard, when that was all or no more comes."""
        return Heard(**json.loads(await self._process.line()))


@asynccontextmanager
async def listening(port: int, path: str, number: int, words: int) -> AsyncIterator[Listeners]:
    """So many subscribers of one path, each of which waits for so many words."""
    command = (sys.executable, "-m", __name__, str(port), path, str(number), str(words))
    async with started(*command) as process:
        assert await process.line() == "listening\n"
        yield Listeners(process)


class _Listener:
    """One subscriber."""

    def __init__(self, port: int, path: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(request(port, "GET", path))
        self._rest = b""
        while b"server.connected" not in self._rest:
            self._rest += self.socket.recv(_BUFFER)
        self.socket.setblocking(False)
        self.words = 0
        self.gone = False

    def read(self) -> list[int]:
        """When the words were said that came."""
        try:
            came = self.socket.recv(_BUFFER)
        except BlockingIOError:
            return []
        except ConnectionError:
            came = b""
        self.gone = not came
        whole, _, self._rest = (self._rest + came).rpartition(_FRAME)
        said = [int(word[1:]) for delta in _DELTA.findall(whole) for word in delta.split()]
        self.words += len(said)
        return said


@dataclass(slots=True)
class _Times:
    """When words were said and heard, in nanoseconds."""

    late: list[int] = field(default_factory=list)
    first: int = sys.maxsize
    last: int = field(default_factory=time.monotonic_ns)

    def add(self, said: Sequence[int]) -> int:
        """Note words that are heard now; when that is."""
        now = time.monotonic_ns()
        if said:
            self.first, self.last = min(self.first, *said), now
        return now


def _main(port: int, path: str, number: int, words: int) -> None:
    listeners = [_Listener(port, path) for _ in range(number)]
    print("listening", flush=True)
    times = _Times()
    _hear(listeners, words, times)
    hundredths = statistics.quantiles(times.late, n=100)
    heard = Heard(
        words=sum(listener.words for listener in listeners),
        seconds=(times.last - times.first) / 1e9,
        usual=statistics.median(times.late) / 1e9,
        worst=hundredths[-1] / 1e9,
        gone=sum(listener.gone for listener in listeners),
    )
    print(json.dumps(asdict(heard)), flush=True)


def _hear(listeners: Sequence[_Listener], words: int, times: _Times) -> None:
    attentive = listeners[:: max(1, len(listeners) // _ATTENTIVE)]
    others = cycle([listener for listener in listeners if listener not in attentive] or attentive)
    with selectors.DefaultSelector() as selector:
        for listener in attentive:
            selector.register(listener.socket, selectors.EVENT_READ, listener)
        now = times.last
        while now - times.last < _QUIET and any(e.words < words and not e.gone for e in listeners):
            for key, _ in selector.select(_TICK):
                said = key.data.read()
                now = times.add(said)
                times.late += [now - each for each in said]
                if key.data.gone:
                    selector.unregister(key.fileobj)
            for listener in islice(others, _AT_A_TIME):
                now = times.add([] if listener.gone else listener.read())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.server_listeners")
    parser.add_argument("port", type=int)
    parser.add_argument("path")
    parser.add_argument("number", type=int)
    parser.add_argument("words", type=int)
    given = parser.parse_args()
    _main(given.port, given.path, given.number, given.words)
