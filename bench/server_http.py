"""One connection to a server that is measured: what is asked once, or where each answer counts."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

_END = b"\r\n\r\n"
_LIMIT = 64 * 1024 * 1024


class Connection:
    """Asks one thing after the other and keeps the connection."""

    def __init__(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._port = port
        self._reader = reader
        self._writer = writer

    async def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """The answer, which must be a success."""
        _, text = await self._asked(method, path, body)
        return json.loads(text or b"null")

    async def header(self, path: str, name: str) -> str | None:
        """A header of what is got, if it is there; it must be a success."""
        headers, _ = await self._asked("GET", path, None)
        return headers.get(name)

    async def _asked(self, method: str, path: str, body: object) -> tuple[dict[str, str], bytes]:
        self._writer.write(request(self._port, method, path, body))
        status, headers, text = await self._answer()
        if status >= HTTPStatus.BAD_REQUEST:
            raise RuntimeError(f"{method} {path} was answered with {status}: {text[:500]!r}")
        return headers, text

    async def _answer(self) -> tuple[int, dict[str, str], bytes]:
        head = (await self._reader.readuntil(_END)).decode("latin-1")
        lines = [line.split(": ", 1) for line in head.strip().split("\r\n")[1:]]
        headers = {name.lower(): value for name, value in lines}
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = b"".join([chunk async for chunk in self._chunks()])
        else:
            body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return int(head.split()[1]), headers, body

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self._reader.readline(), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readline()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """A connection for the length of the block."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_LIMIT)
    try:
        yield Connection(port, reader, writer)
    finally:
        writer.close()


def request(port: int, method: str, path: str, body: object = None) -> bytes:
    """A request as it goes over the wire."""
    text = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", f"host: 127.0.0.1:{port}"]
    if body is not None:
        lines += ["content-type: application/json", f"content-length: {len(text)}"]
    return "\r\n".join(lines).encode() + _END + text
