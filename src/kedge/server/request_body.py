"""Request bodies: read whole, within a limit per request and one for all of them together."""

import asyncio
from collections.abc import Mapping

from kedge.domain import wire
from kedge.domain.errors import TooLarge
from kedge.domain.text import nested_deeper_than
from kedge.server.errors import BadRequest, ClientGone, Crowded, SlowBody
from kedge.server.responses import Receive

_PATIENCE = 30
"""Seconds within which the next piece must arrive."""
_LONGEST = 300
"""Seconds within which the whole body must arrive."""
_SMALL = 1024 * 1024
"""Largest body of a request without text or files from a user, in bytes: decoding blocks all other
requests."""
_LARGE_AT_ONCE = 8
"""How many bodies of the largest size there is room for at once."""
MOST_VALUES = 50_000
"""Most values in a body: each becomes a Python object, however short its text."""


def check_framing(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a body with a transfer encoding that is not supported.

    Worse framing is refused before a request gets here. A length in addition to chunks is not
    visible here: the chunks count, as the standard says, and the connection is closed after the
    answer.
    """
    if headers.get(b"transfer-encoding", b"chunked").strip().lower() != b"chunked":
        raise BadRequest("transfer-encoding may only be chunked", "Headers")


class Bodies:
    """All bodies that are being read."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._room = _LARGE_AT_ONCE * most

    async def read(
        self, headers: Mapping[bytes, bytes], receive: Receive, *, may_be_large: bool
    ) -> bytes:
        """Read a whole body; refuse it if it is too large or does not arrive in time."""
        most = self._most if may_be_large else min(self._most, _SMALL)
        _check_length(headers.get(b"content-length", b"0"), most)
        pieces: list[bytes] = []
        try:
            await self._fill(pieces, receive, most)
        except TimeoutError:
            raise SlowBody from None
        finally:
            self._room += sum(map(len, pieces))
        return b"".join(pieces)

    async def _fill(self, pieces: list[bytes], receive: Receive, most: int) -> None:
        now = asyncio.get_running_loop().time
        end = now() + _LONGEST
        size = 0
        async with asyncio.timeout(_PATIENCE) as patience:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                piece = message.get("body", b"")
                size += len(piece)
                if size > most:
                    raise _too_large(most)
                if len(piece) > self._room:
                    raise Crowded
                self._room -= len(piece)
                pieces.append(piece)
                if not message.get("more_body"):
                    return
                patience.reschedule(min(now() + _PATIENCE, end))


def _check_length(said: bytes, most: int) -> None:
    if not said.isdigit():
        raise BadRequest("content-length is not a number", "Headers")
    if len(said) > len(str(most)) or int(said) > most:
        raise _too_large(most)


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"such a request may have at most {most} bytes")


def check_values(body: bytes) -> None:
    """Refuse JSON with too many values or too deep nesting before it is decoded.

    Values are counted by the commas and brackets outside of strings. This does not check that the
    text is valid JSON; as far as it is, it is read here the same way as by the decoder.
    """
    if _marks(body) <= wire.MAX_DEPTH:
        return
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A value has at most one key, and a string two quotes; this bounds the pieces in memory.
    if unescaped.count(b'"') > 4 * MOST_VALUES + 2:
        raise _too_many()
    outside = b"".join(unescaped.split(b'"')[::2])
    if _marks(outside) > MOST_VALUES:
        raise _too_many()
    if nested_deeper_than(wire.MAX_DEPTH, outside):
        raise TooLarge(f"nested more than {wire.MAX_DEPTH} levels deep")


def _marks(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _too_many() -> TooLarge:
    return TooLarge(f"a request may have at most {MOST_VALUES} values")
