"""The model of the servers that are measured, in a process of its own.

It says as many words as it is asked for, at the pace it is asked for. Each word is the moment at
which it was sent, by the clock that all processes of a machine share.
"""

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.processes import started
from tests.support.model_server import Answer, ModelServer, Request, Text, Usage, openai

WORDS = rb"(?:t\d{16} )+"
"""What some of them look like."""
_UNSENT = b"t%016d " % 0


@asynccontextmanager
async def model() -> AsyncIterator[str]:
    """The base URL of a server that answers what `asking_for` asks."""
    async with started(sys.executable, "-m", __name__) as process:
        yield f"http://127.0.0.1:{int(await process.line())}/v1"


def asking_for(words: int, a_second: int) -> str:
    """A prompt that is answered with so many words, evenly."""
    return f"Say {words} words, {a_second} a second."


def _said(request: Request) -> Answer:
    found = re.search(r"Say (\d+) words, (\d+) a second", request.prompt)
    assert found is not None, request.prompt
    words, a_second = int(found[1]), int(found[2])
    text = Text(pieces=(_UNSENT.decode(),) * words)
    return Answer(items=(text,), pace=1 / a_second, usage=Usage(output=words))


class _Stamping(ModelServer):
    async def _stream(self, reply: Answer, request: Request, writer: asyncio.StreamWriter) -> None:
        """Keep the pace, whatever a single word takes."""
        begin = time.monotonic()
        for number, frame in enumerate(openai.frames(reply, request, self._call_ids)):
            assert isinstance(frame, bytes)
            early = begin + number * reply.pace - time.monotonic()
            if early > 0:
                await asyncio.sleep(early)
            now = frame.replace(_UNSENT, b"t%016d " % time.monotonic_ns())
            writer.write(b"%x\r\n%s\r\n" % (len(now), now))
            await writer.drain()


async def _serve() -> None:
    async with _Stamping(_said) as server:
        print(server.port, flush=True)
        # It ends with whoever started it.
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
