"""Clients that listen over a real socket, and show texts as OpenCode's terminal UI does."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.server.world import Client, read_head
from tests.support.timeouts import PATIENCE

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """One frame."""

    cursor: str | None
    data: Json

    @property
    def event(self) -> Json:
        """What it says, with or without a wrapper."""
        found: Json = self.data.get("payload", self.data)
        return found

    @property
    def type(self) -> str:
        """The type of the event."""
        return str(self.event["type"])

    @property
    def properties(self) -> Json:
        """What happened."""
        found: Json = self.event["properties"]
        return found


class EventRecorder:
    """One open stream."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        transport: asyncio.ReadTransport,
        status: int,
        headers: Mapping[str, str],
    ) -> None:
        self._reader = reader
        self._transport = transport
        self._left = b""
        self.status = status
        self.headers = headers
        self.ended: bool | None = None
        """Whether the stream had an end, or was dropped; None while it is open."""

    async def next(self) -> RecordedEvent | None:
        """The next frame; None when there is none to come."""
        async with asyncio.timeout(PATIENCE):
            while b"\n\n" not in self._left:
                if not (chunk := await self._chunk()):
                    return None
                self._left += chunk
        block, _, self._left = self._left.partition(b"\n\n")
        fields = dict(line.split(": ", 1) for line in block.decode().split("\n"))
        assert fields.keys() <= {"id", "data"}
        return RecordedEvent(fields.get("id"), json.loads(fields["data"]))

    async def until(self, type: str, **properties: Any) -> list[RecordedEvent]:  # noqa: ANN401 - any JSON
        """Everything up to an event, which is the last of the list."""
        heard: list[RecordedEvent] = []
        while (found := await self.next()) is not None:
            heard.append(found)
            if found.type == type and properties.items() <= found.properties.items():
                return heard
        raise AssertionError(f"no {type} in {[each.type for each in heard]}")

    def stop_reading(self) -> None:
        """Leave everything on the socket from now on."""
        self._transport.pause_reading()

    def go_on_reading(self) -> None:
        """Undo `stop_reading`."""
        self._transport.resume_reading()

    async def _chunk(self) -> bytes:
        try:
            line = await self._reader.readline()
            if not line:
                self.ended = False
                return b""
            size = int(line, 16)
            data = (await self._reader.readexactly(size + 2))[:-2]
        except (ConnectionError, asyncio.IncompleteReadError):
            self.ended = False
            return b""
        if not size:
            self.ended = True
        return data


@asynccontextmanager
async def listening(
    client: Client, target: str = "/global/event", *, after: str | None = None
) -> AsyncIterator[EventRecorder]:
    """Open a stream, after a cursor if there is one, and read its greeting."""
    async with client.connected() as (reader, writer):
        said = {"last-event-id": after} if after else {}
        writer.write(client.request("GET", target, headers=said))
        async with asyncio.timeout(PATIENCE):
            status, headers = await read_head(reader)
        transport = writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        yield EventRecorder(reader, transport, status, headers)


@dataclass
class Screen:
    """What a client shows that appends every piece to what it has, as OpenCode's terminal UI."""

    texts: dict[str, str] = field(default_factory=dict)
    cursor: str | None = None

    def show(self, heard: RecordedEvent) -> None:
        """Take in one frame."""
        self.cursor = heard.cursor or self.cursor
        if heard.type == "message.part.updated":
            part = heard.properties["part"]
            self.texts[part["id"]] = part.get("text", "")
        elif heard.type == "message.part.delta" and heard.properties["partID"] in self.texts:
            self.texts[heard.properties["partID"]] += heard.properties["delta"]
