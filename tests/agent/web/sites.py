"""A web server on loopback that answers each path with bytes as they are."""

import asyncio
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

Handler: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(
    body: bytes | str = b"",
    kind: str = "text/html; charset=utf-8",
    *,
    status: str = "200 OK",
    length: int | None = None,
    **headers: str,
) -> bytes:
    """A whole answer."""
    data = body.encode() if isinstance(body, str) else body
    told = {"content-type": kind, "content-length": str(len(data) if length is None else length)}
    told |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in told.items() if value)]
    return "\r\n".join([*lines, "", ""]).encode() + data


def redirect(location: str, status: str = "302 Found") -> bytes:
    """An answer that leads elsewhere."""
    return answer(b"", status=status, location=location)


def packed(body: bytes) -> bytes:
    """An answer in gzip."""
    return answer(gzip.compress(body), content_encoding="gzip")


async def endless(writer: asyncio.StreamWriter) -> None:
    """A body without an end."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def silent(_: asyncio.StreamWriter) -> None:
    """No answer at all."""
    await asyncio.Event().wait()


async def drip(writer: asyncio.StreamWriter) -> None:
    """A head that begins and does not go on."""
    writer.write(b"HTTP/1.1 200 OK\r\nx-a: b\r\nx-")
    await asyncio.Event().wait()


async def bomb(writer: asyncio.StreamWriter) -> None:
    """64 megabytes of nothing, packed into less than one."""
    packing = zlib.compressobj(1, wbits=31)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n")
    for _ in range(64):
        writer.write(packing.compress(bytes(1 << 20)))
        await writer.drain()


@dataclass
class Site:
    """What is served, and what was asked."""

    pages: Mapping[str, bytes | Handler]
    port: int = 0
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """The path and the headers of each request."""
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client went away before it had its answer."""

    @property
    def paths(self) -> list[str]:
        """What was asked for."""
        return [path for path, _ in self.asked]

    def url(self, path: str = "/", host: str = "127.0.0.1", scheme: str = "http") -> str:
        """The URL of a page."""
        return f"{scheme}://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        path = head[0].split(" ")[1]
        pairs = (line.split(": ", 1) for line in head[1:] if ": " in line)
        self.asked.append((path, {name.lower(): value for name, value in pairs}))
        self.connected.set()
        page = self.pages.get(path.partition("?")[0], answer("no", status="404 Not Found"))
        if isinstance(page, bytes):
            writer.write(page)
            await writer.drain()
            return
        work = asyncio.ensure_future(page(writer))
        gone = asyncio.ensure_future(reader.read())
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        for each in (work, gone):
            each.cancel()
        await asyncio.gather(work, gone, return_exceptions=True)
        self.left.set()


@asynccontextmanager
async def site(
    pages: Mapping[str, bytes | Handler], tls: ssl.SSLContext | None = None
) -> AsyncIterator[Site]:
    """Serve pages while the block runs."""
    served = Site(pages)
    running: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await served.serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            running.discard(task)
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await server.wait_closed()
