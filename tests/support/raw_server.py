"""A server on loopback that answers with bytes as they are, in pieces and with an end of choice."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self


@dataclass(frozen=True, kw_only=True)
class Raw:
    """The bytes of one answer."""

    body: bytes
    cuts: tuple[int, ...] = ()
    """Where the body is torn into pieces that are sent on their own."""
    framing: Literal["chunked", "length", "close"] = "chunked"
    """How the client learns where the body ends."""
    ends: Literal["clean", "early", "reset", "open"] = "clean"
    """`early`: closed before its announced end; `open`: nothing more comes, and no end."""
    headers: dict[str, str] = field(default_factory=dict)
    status: str = "200 OK"


class RawServer:
    """Answers the requests in turn, the last answer over and over."""

    def __init__(self, answers: Sequence[Raw]) -> None:
        self._answers = answers
        self._connections: set[asyncio.Task[None]] = set()
        self.bodies: list[dict[str, Any]] = []
        """What was asked."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        self.bodies.append(await _request(reader))
        raw = self._answers[min(len(self.bodies), len(self._answers)) - 1]
        writer.write(_head(raw))
        for piece in _pieces(raw):
            writer.write(_chunk(piece) if raw.framing == "chunked" else piece)
            await writer.drain()
            # Else the pieces would travel, and be read, as one.
            await asyncio.sleep(0)
        if raw.ends == "open":
            await reader.read()
            return False
        if raw.ends == "reset":
            writer.transport.abort()
        elif raw.ends == "clean" and raw.framing == "chunked":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        return raw.ends == "clean" and raw.framing == "length"


async def _request(reader: asyncio.StreamReader) -> dict[str, Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = head.partition("content-length:")[2].partition("\r\n")[0]
    body: dict[str, Any] = json.loads(await reader.readexactly(int(length or 0)) or b"{}")
    return body


def _head(raw: Raw) -> bytes:
    headers = {"content-type": "text/event-stream", **raw.headers}
    if raw.framing == "chunked":
        headers["transfer-encoding"] = "chunked"
    elif raw.framing == "length":
        headers["content-length"] = str(len(raw.body) + (0 if raw.ends == "clean" else 100))
    else:
        headers["connection"] = "close"
    lines = [f"HTTP/1.1 {raw.status}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _pieces(raw: Raw) -> list[bytes]:
    places = [0, *sorted({cut for cut in raw.cuts if 0 < cut < len(raw.body)}), len(raw.body)]
    pieces = [raw.body[start:end] for start, end in itertools.pairwise(places)]
    return [piece for piece in pieces if piece]


def _chunk(piece: bytes) -> bytes:
    return f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
