"""The body of a response, between the network and the provider's library.

The libraries expect streams as their own provider sends them. This module reads the streams of real
servers, converts them to that form, and decides how they ended: complete, cut off, silent, or not a
stream of events at all.
"""

import asyncio
import json
import math
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
)
from contextlib import aclosing
from typing import Any, Protocol

import httpx2
import msgspec

from kedge.model.endpoint import Endpoint
from kedge.model.port import ModelFailure
from kedge.model.pydantic_ai import errors

# No answer needs more: attachments are not sent back, and a file is written in many pieces.
_LINE_LIMIT = 16 * 1024 * 1024
# Memory for a line beside its bytes.
_LINE_OVERHEAD = 64
# Comments and pings keep a queued request alive, but only for this many allowed silences.
_EMPTY_TALK = 6
# After the reason to stop, only the usage can follow.
_AFTERWORD = 30.0
# Reading to the end of the body lets the next request reuse the connection.
_LAST_BYTES = 0.1

_FIELD = re.compile(rb"[A-Za-z][A-Za-z0-9_-]*:")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# In ASCII: one of the libraries takes every Unicode line separator for the end of a line.
_encode = json.JSONEncoder(separators=(",", ":")).encode
_KEEP_ALIVE = {"ping", "heartbeat", "keep-alive", "keepalive"}


class Reader(Protocol):
    """Interprets the frames of one protocol."""

    reason: str | None
    """Why the model stopped, in the server's term; None until it says so."""
    comment: str
    """The server's explanation of the reason."""

    @property
    def is_over(self) -> bool:
        """Whether nothing relevant can follow."""

    @property
    def may_end(self) -> bool:
        """Whether a body that properly ends here is complete."""

    def read(self, frame: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """The frames that the library gets instead of this one."""

    def end(self) -> Iterable[dict[str, Any]]:
        """The remaining frames for the library when the stream is over."""

    def is_frame(self, value: dict[str, Any]) -> bool:
        """Whether a body that is not a stream is an answer anyway."""


class Ending:
    """Detects the end of an answer: it has a reason, and the server is not one that sends a reason
    with every frame, so that more followed one of them."""

    def __init__(self) -> None:
        self.is_over = False
        self._is_often = False

    def take(self, *, has_reason: bool, has_words: bool) -> None:
        """Count a frame."""
        if self.is_over and has_words:
            self._is_often, self.is_over = True, False
        if has_reason:
            self.is_over = not (self._is_often and has_words)


class EventStream(httpx2.AsyncByteStream):
    """The stream of one response; errors in it are raised as `ModelFailure`."""

    def __init__(self, response: httpx2.Response, reader: Reader, endpoint: Endpoint) -> None:
        # A separate response decompresses the body.
        self._body = httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=response.stream,
            request=response.request,
        )
        self._kind = str(response.headers.get("content-type", "")).partition(";")[0].strip()
        self._url = response.url
        self._is_delimited = _is_delimited(response)
        for name in ("content-encoding", "content-length"):
            response.headers.pop(name, None)
        self.reader = reader
        self.latest = b""
        """The last frame that was passed on."""
        self.say: Callable[[str], Awaitable[None]] | None = None
        """Receives words of a chat that follow other words; they bypass the library, which would
        only pass them on."""
        self._endpoint = endpoint
        self._named = endpoint.protocol == "anthropic"
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0
        self._events = 0
        self._is_done = False
        self._ignored = b""
        """The first line that is neither a known field nor an event."""
        self._page: list[bytes] | None = None
        """The lines of a body that turned out not to be a stream."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The stream in the form that the library expects."""
        spoke = False
        async with aclosing(self._frames()) as frames:
            async for frame in frames:
                words = _words_alone(frame)
                if words and spoke and self.say is not None:
                    await self.say(words)
                else:
                    yield self._encoded(frame)
                spoke = bool(words)
        self._check_end()
        for frame in self.reader.end():
            yield self._encoded(frame)
        if not self.latest:
            raise errors.empty(self._endpoint)

    async def aclose(self) -> None:
        """Close the connection, unless the body was read to its end."""
        await self._body.aclose()

    async def _frames(self) -> AsyncGenerator[dict[str, Any], None]:
        lines = _Lines()
        async with aclosing(self._pieces()) as pieces:
            async for piece in pieces:
                for line in lines.feed(piece):
                    for frame in self._take(line):
                        yield frame
                if self._is_done:
                    await _drain(pieces)
                    return
                if max(lines.waiting, self._size) > _LINE_LIMIT:
                    text = f"more than {_LINE_LIMIT:,} bytes without an end"
                    raise errors.nonsense(self._endpoint, text)
        for frame in self._last_words(lines.rest()):
            yield frame

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        """The bytes from the network, until they end in a way that loses nothing."""
        clock = asyncio.get_running_loop().time
        last, events = clock(), 0
        async with aclosing(self._body.aiter_bytes()) as raw:
            while piece := await self._next(raw):
                yield piece
                if self._events > events:
                    last, events = clock(), self._events
                elif clock() - last > (self._endpoint.silence or math.inf) * _EMPTY_TALK:
                    raise errors.stalled(self._endpoint)

    async def _next(self, raw: AsyncIterator[bytes]) -> bytes:
        """The next bytes; empty if there are no more, or if no more are needed."""
        is_over = self.reader.is_over
        try:
            async with asyncio.timeout(_AFTERWORD if is_over else None):
                return await anext(raw, b"")
        except (httpx2.HTTPError, httpx2.StreamError, TimeoutError) as error:
            if is_over:
                return b""
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> ModelFailure:
        if isinstance(error, httpx2.TimeoutException):
            return errors.stalled(self._endpoint)
        return errors.lost(self._endpoint, str(error) or type(error).__name__)

    def _take(self, line: bytes) -> Iterator[dict[str, Any]]:
        if self._is_done:
            return
        if self._page is not None:
            self._size += len(line) + _LINE_OVERHEAD
            self._page.append(line)
        elif not line:
            yield from self._dispatch()
        elif not line.startswith(b":"):
            yield from self._take_field(line)

    def _take_field(self, line: bytes) -> Iterator[dict[str, Any]]:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._size += len(value) + _LINE_OVERHEAD
            self._data.append(value)
        elif name == b"event":
            self._name = value.decode(errors="replace")
        elif name == b"error":
            # llama.cpp used to send its errors as a field with this name.
            yield from self._dispatch()
            self._name, self._data = "error", [value]
        elif name not in (b"id", b"retry"):
            self._take_foreign(line)

    def _take_foreign(self, line: bytes) -> None:
        """Ignore unknown fields, but not a web page or an error in JSON."""
        begins = line.lstrip()[:1]
        if self._events or self._data:
            if begins in (b"{", b"<"):
                raise self._unreadable(line)
        elif begins in (b"{", b"["):
            self._page, self._size = [line], len(line)
        elif _FIELD.match(line):
            self._ignored = self._ignored or line
        elif begins:
            raise self._no_stream(line)

    def _dispatch(self) -> Iterator[dict[str, Any]]:
        name, data = self._name, b"\n".join(self._data)
        self._name, self._data, self._size = "", [], 0
        text = data.strip()
        if not text or name in _KEEP_ALIVE:
            return
        self._events += 1
        if text.startswith(b"[DONE]"):
            self._is_done = True
            return
        value = _decoded(data)
        if name == "error" and not isinstance(value, dict):
            raise errors.reported(self._endpoint, text.decode(errors="replace"))
        if not isinstance(value, dict):
            raise self._unreadable(data)
        yield from self._read(name, value)

    def _read(self, name: str, value: dict[str, Any]) -> Iterator[dict[str, Any]]:
        error = _error_in(name, value)
        if error is not None:
            raise errors.reported(self._endpoint, error)
        yield from self.reader.read(value)

    def _last_words(self, rest: bytes) -> Iterator[dict[str, Any]]:
        """Handle an event without its end: a complete one counts, a partial one is lost."""
        if rest:
            yield from self._take(rest)
        if self._page is not None:
            yield from self._read_page(b"\n".join(self._page))
            return
        try:
            yield from self._dispatch()
        except errors.UnreadableAnswer as error:
            if not self.reader.is_over:
                raise errors.lost(self._endpoint, "an event was cut off") from error

    def _read_page(self, text: bytes) -> Iterator[dict[str, Any]]:
        """Handle a JSON body that is not a stream: an answer in one piece, or an error."""
        value = _decoded(text)
        frames = value if isinstance(value, list) else [value]
        for frame in frames:
            if not isinstance(frame, dict):
                raise self._no_stream(text)
            if _error_in("", frame) is None and not self.reader.is_frame(frame):
                raise self._no_stream(text)
            yield from self._read("", frame)
        # A server that sends the whole answer at once sends nothing more.
        self._is_done = True

    def _check_end(self) -> None:
        if self.reader.is_over or self._is_done:
            return
        if not self._events:
            raise self._no_stream(self._ignored) if self._ignored else errors.empty(self._endpoint)
        if not self.reader.may_end or not self._is_delimited:
            raise errors.lost(self._endpoint, "the answer ended before its end")

    def _unreadable(self, data: bytes) -> ModelFailure:
        return errors.nonsense(self._endpoint, data.decode(errors="replace"))

    def _no_stream(self, data: bytes) -> ModelFailure:
        text = data.decode(errors="replace")
        return errors.no_stream(self._endpoint, self._url, self._kind, text)

    def _encoded(self, frame: dict[str, Any]) -> bytes:
        data = _encode(frame)
        head = f"event: {frame.get('type')}\n" if self._named else ""
        self.latest = f"{head}data: {data}\n\n".encode()
        return self.latest


class _Lines:
    """Splits bytes into lines, with any of the three line endings."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._is_first = True
        self._after_return = False

    @property
    def waiting(self) -> int:
        """How many bytes wait for the end of their line."""
        return len(self._begun)

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The lines that end in this piece."""
        if self._after_return and piece.startswith(b"\n"):
            piece = piece[1:]
        if not piece:
            return
        self._after_return = piece.endswith(b"\r")
        first, *others = _LINE_END.split(piece)
        self._begun += first
        for each in others:
            yield self.rest()
            self._begun += each

    def rest(self) -> bytes:
        """The bytes without a line ending so far."""
        line = bytes(self._begun)
        self._begun.clear()
        if self._is_first:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        self._is_first = False
        return line


def _is_delimited(response: httpx2.Response) -> bool:
    """Whether the end of the body is distinct from the end of the connection."""
    headers = response.headers
    if "chunked" in str(headers.get("transfer-encoding", "")).lower():
        return True
    return "content-length" in headers or response.http_version == "HTTP/2"


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    try:
        async with asyncio.timeout(_LAST_BYTES):
            async for _ in pieces:
                pass
    except (TimeoutError, ModelFailure):
        # The answer is complete; the connection just cannot be reused.
        return


def _decoded(data: bytes) -> Any:  # noqa: ANN401 - any JSON
    """The value of a JSON text; None if the text is invalid or null."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        # Slower, but accepts lone surrogates, NaN and invalid UTF-8.
        return json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _error_in(name: str, value: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    """The error that a frame reports, in any of the usual places."""
    if error := value.get("error"):
        # TGI puts the kind beside the message.
        kind = value.get("error_type")
        return {"message": error, "type": kind} if kind and isinstance(error, str) else error
    if name == "error" or value.get("object") == "error" or value.get("type") == "error":
        return value
    choices = value.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return choices[0].get("error") or None
    return None


def _words_alone(frame: dict[str, Any]) -> str:
    """The words of a frame in the form of OpenAI's chats, if it contains nothing else."""
    choices = frame.get("choices")
    if not choices or choices[0]["finish_reason"] is not None:
        return ""
    delta: dict[str, Any] = choices[0]["delta"]
    return str(delta["content"]) if len(delta) == 1 and "content" in delta else ""


def object_in(value: dict[str, Any], name: str) -> dict[str, Any]:
    """The object with this name, or an empty one."""
    inner = value.get(name)
    return inner if isinstance(inner, dict) else {}


def objects_in(value: object) -> list[dict[str, Any]]:
    """The elements of a list that are objects."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text_in(value: object) -> str:
    """The value if it is text, else an empty string."""
    return value if isinstance(value, str) else ""
