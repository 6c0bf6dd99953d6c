"""The server itself: just enough HTTP for a model's client, and what a test may steer."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Self, TypeAlias

from tests.support.model_server import anthropic, google, openai, responses
from tests.support.model_server.answers import (
    Answer,
    Cut,
    Item,
    Refusal,
    Reply,
    Text,
    Usage,
    Wait,
    answer,
)
from tests.support.model_server.requests import Request

Script: TypeAlias = Sequence[Reply] | Callable[[Request], Reply]


class ModelServer:
    """Answers requests as scripted, and keeps them in `requests`."""

    def __init__(self, script: Script, *, title: Reply | None = None) -> None:
        self._script = script
        self._next = iter(script) if not callable(script) else iter(())
        self._title = title or answer(Text.words("Scripted title"), usage=Usage(output=2))
        self._call_ids = (f"call_scripted_{number:04}" for number in itertools.count(1))
        self._released: dict[str, asyncio.Event] = {}
        self._reached: dict[str, asyncio.Event] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self.requests: list[Request] = []
        self.titles: list[Request] = []
        """Requests for a title, which take nothing from the script."""
        self.connections = 0
        """How many were made."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """The base URL as OpenAI's clients and OpenCode's configuration take it."""
        return f"http://127.0.0.1:{self.port}/v1"

    def release(self, name: str = "go") -> None:
        """Let every answer go on that waits under this name, now and later."""
        _event(self._released, name).set()

    async def reached(self, name: str = "go") -> None:
        """Wait until an answer waits under this name."""
        await _event(self._reached, name).wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        early = b""
        while (request := await _read_request(reader, early)) is not None:
            watch = asyncio.create_task(reader.read(1))
            reply = asyncio.create_task(self._reply(request, writer))
            try:
                await asyncio.wait({watch, reply}, return_when=asyncio.FIRST_COMPLETED)
                if watch.done() and not watch.result() and not reply.done():
                    request.dropped = True
                    return
                await reply
                early = watch.result() if watch.done() else b""
            except _CutShort:
                return
            except ConnectionError:
                request.dropped = True
                raise
            finally:
                reply.cancel()
                watch.cancel()
                await asyncio.gather(reply, watch, return_exceptions=True)
                request.ended.set()

    async def _reply(self, request: Request, writer: asyncio.StreamWriter) -> None:
        reply = self._choose(request)
        if isinstance(reply, Refusal):
            if reply.wait is not None:
                await self._wait(reply.wait)
            writer.write(_refusal(reply, request))
            await writer.drain()
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        await self._stream(reply, request, writer)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _choose(self, request: Request) -> Reply:
        if request.wants_title:
            self.titles.append(request)
            return self._title
        self.requests.append(request)
        if callable(self._script):
            return self._script(request)
        spent = Refusal(status=400, message="the script has no answer left")
        return next(self._next, spent)

    async def _stream(self, reply: Answer, request: Request, writer: asyncio.StreamWriter) -> None:
        held: list[bytes] = []
        for frame in _protocol(request).frames(reply, request, self._call_ids):
            if not isinstance(frame, bytes):
                await self._act(frame, writer)
            elif reply.at_once:
                held.append(frame)
            else:
                writer.write(_chunk(frame))
                await writer.drain()
                await asyncio.sleep(reply.pace)
        if held:
            writer.write(_chunk(b"".join(held)))

    async def _act(self, item: Item, writer: asyncio.StreamWriter) -> None:
        if isinstance(item, Wait):
            await self._wait(item.name)
        elif isinstance(item, Cut):
            await writer.drain()
            writer.transport.abort()
            raise _CutShort

    async def _wait(self, name: str) -> None:
        _event(self._reached, name).set()
        await _event(self._released, name).wait()


class _CutShort(Exception):
    """The script wanted the connection to be reset."""


class _Protocol:
    """What the protocols have in common, so that all fit one variable."""

    def __init__(
        self,
        frames: Callable[[Answer, Request, Iterator[str]], Iterator[Item | bytes]],
        error_body: Callable[[Refusal], str],
    ) -> None:
        self.frames = frames
        self.error_body = error_body


_OPENAI = _Protocol(openai.frames, openai.error_body)
_PROTOCOLS = {
    "/messages": _Protocol(anthropic.frames, anthropic.error_body),
    "/responses": _Protocol(responses.frames, openai.error_body),
    ":streamGenerateContent": _Protocol(google.frames, google.error_body),
}


def _protocol(request: Request) -> _Protocol:
    spoken = (speaks for end, speaks in _PROTOCOLS.items() if request.path.endswith(end))
    return next(spoken, _OPENAI)


async def _read_request(reader: asyncio.StreamReader, early: bytes) -> Request | None:
    try:
        head = early + await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    path = first.split(" ")[1].partition("?")[0]
    return Request(path=path, headers=headers, body=json.loads(body or b"{}"))


def _refusal(refusal: Refusal, request: Request) -> bytes:
    body = refusal.body if refusal.body is not None else _protocol(request).error_body(refusal)
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body.encode())),
        **refusal.headers,
    }
    phrases = {status.value: status.phrase for status in HTTPStatus}
    lines = [f"HTTP/1.1 {refusal.status} {phrases.get(refusal.status, 'Scripted')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _event(events: dict[str, asyncio.Event], name: str) -> asyncio.Event:
    return events.setdefault(name, asyncio.Event())
