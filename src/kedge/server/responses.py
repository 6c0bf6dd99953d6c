"""Responses to clients: JSON, bytes, nothing, or a stream of events."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from kedge.domain import wire

Message: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Stream: TypeAlias = Callable[[Receive, Send], Awaitable[None]]
"""A response that lasts. If it returns without a last chunk, the connection is dropped."""

JSON = b"application/json"
_WORTH_COMPRESSING = 1024
_WORTH_A_THREAD = 256 * 1024
_GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response."""

    body: bytes
    status: int = 200
    type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    may_be_compressed: bool = True


def json(value: object, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> Response:
    """A response with a value as JSON."""
    return json_text(wire.encode(value), status, headers)


def json_text(text: str, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> Response:
    """A response with JSON that is already text."""
    return json_bytes(text.encode(), status, headers)


def json_bytes(body: bytes, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> Response:
    """A response with JSON that is already encoded."""
    raw = tuple((name.encode(), each.encode()) for name, each in headers)
    return Response(body, status, JSON, raw)


def incomplete(is_incomplete: bool) -> list[tuple[str, str]]:
    """The headers of a response from which something is missing that could not be determined."""
    if not is_incomplete:
        return []
    return [("x-incomplete", "true"), ("access-control-expose-headers", "X-Incomplete")]


TRUE = Response(b"true")
NOTHING = Response(b"", 204, b"")


async def send_answer(answer: Response, accepted: bytes, send: Send) -> None:
    """Send a response, compressed if the client accepts that and it is worthwhile."""
    body = answer.body
    headers = [*answer.headers]
    if answer.type:
        headers.append((b"content-type", answer.type))
    if answer.may_be_compressed and len(body) >= _WORTH_COMPRESSING and b"gzip" in accepted:
        body = await _compressed(body)
        headers.append((b"content-encoding", b"gzip"))
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _compressed(body: bytes) -> bytes:
    if len(body) >= _WORTH_A_THREAD:
        return await asyncio.to_thread(_compress, body)
    return _compress(body)


def _compress(body: bytes) -> bytes:
    packer = zlib.compressobj(level=1, wbits=_GZIP)
    return packer.compress(body) + packer.flush()
