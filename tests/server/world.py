"""A server in the test's own loop, and a client that speaks to it over a real socket."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from kedge.server import Running, ServerSettings, serving
from tests.agent.world import World
from tests.support.timeouts import PATIENCE


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name; of a repeated one, the last."""
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - any JSON
        """The body, which is JSON and says so."""
        assert self.headers.get("content-type") == "application/json", self
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Client:
    """Asks a server, with a connection of its own for each request."""

    url: str
    headers: Mapping[str, str]

    async def ask(
        self,
        method: str,
        target: str,
        body: Any = None,  # noqa: ANN401 - any JSON
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request and read the whole answer."""
        async with asyncio.timeout(PATIENCE), self.connected() as (reader, writer):
            writer.write(self.request(method, target, body, raw=raw, headers=headers))
            return await read_reply(reader, has_body=method != "HEAD")

    def request(
        self,
        method: str,
        target: str,
        body: Any = None,  # noqa: ANN401 - any JSON
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """The bytes of a request."""
        said = {"host": urlsplit(self.url).netloc, "connection": "close", **self.headers}
        payload = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        if raw is not None or body is not None:
            said |= {"content-type": "application/json", "content-length": str(len(payload))}
        said |= headers or {}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {said[name]}" for name in said)]
        return "\r\n".join([*lines, "", ""]).encode() + payload

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A socket to the server."""
        address = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=2**26)
        try:
            yield reader, writer
        finally:
            writer.close()

    async def get(self, target: str, **options: Any) -> Reply:  # noqa: ANN401 - as `ask`
        return await self.ask("GET", target, **options)

    async def post(self, target: str, body: Any = None, **options: Any) -> Reply:  # noqa: ANN401 - as `ask`
        return await self.ask("POST", target, body, **options)

    async def patch(self, target: str, body: Any = None, **options: Any) -> Reply:  # noqa: ANN401 - as `ask`
        return await self.ask("PATCH", target, body, **options)

    async def delete(self, target: str, **options: Any) -> Reply:  # noqa: ANN401 - as `ask`
        return await self.ask("DELETE", target, **options)


async def read_reply(reader: asyncio.StreamReader, *, has_body: bool = True) -> Reply:
    """An answer, from its first byte to its last."""
    status, headers = await read_head(reader)
    body = b""
    if has_body and headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
    elif has_body:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Reply(status, headers, body)


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """The status and the headers of an answer."""
    status = int((await reader.readline()).split()[1])
    headers: dict[str, str] = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return status, headers


@dataclass(frozen=True, slots=True)
class Served(Client):
    """A world that is served."""

    world: World
    running: Running


@asynccontextmanager
async def serve(
    world: World,
    *,
    variables: Mapping[str, str] = MappingProxyType({}),
    **settings: Any,  # noqa: ANN401 - as ServerSettings
) -> AsyncIterator[Served]:
    """Serve a world's folder on a free port, with a few more variables."""
    chosen = ServerSettings(port=0, **settings)
    async with serving(
        world.folder,
        settings=chosen,
        data_dir=world.root / "data",
        database=world.database,
        environ={**world.environ, **variables},
    ) as running:
        yield Served(running.url, {}, world, running)
