"""What goes back to a client: JSON, bytes, nothing, or a stream of events."""

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
"""An answer that lasts. When it returns without a last chunk, the socket is dropped."""

JSON = b"application/json"
_WORTH_COMPRESSING = 1024
_WORTH_A_THREAD = 256 * 1024
_GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer."""

    body: bytes
    status: int = 200
    type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    may_be_compressed: bool = True


def json(value: object, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> Response:
    """A value as JSON."""
    return json_text(wire.encode(value), status, headers)


def json_text(text: str, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> Response:
    """JSON that is already text."""
    return json_bytes(text.encode(), status, headers)


def json_bytes(body: bytes, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> Response:
    """JSON that is already encoded."""
    raw = tuple((name.encode(), each.encode()) for name, each in headers)
    return Response(body, status, JSON, raw)


def incomplete(is_incomplete: bool) -> list[tuple[str, str]]:
    """The headers of an answer from which something is missing that could not be told."""
    if not is_incomplete:
        return []
    return [("x-incomplete", "true"), ("access-control-expose-headers", "X-Incomplete")]


TRUE = Response(b"true")
NOTHING = Response(b"", 204, b"")


async def send_answer(answer: Response, accepted: bytes, send: Send) -> None:
    """Put an answer on the wire, compressed if the client reads that and it is worth it."""
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
