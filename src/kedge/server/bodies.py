"""The bodies of requests: read whole, and never more of them at once than there is room for."""

import asyncio
from collections.abc import Mapping

from kedge.domain.errors import TooLarge
from kedge.server.answers import Receive
from kedge.server.errors import BadRequest, ClientGone, Crowded, SlowBody

_PATIENCE = 30
"""Seconds until the next piece has to be there."""
_LONGEST = 300
"""Seconds until all of it has to be there."""
_SMALL = 1024 * 1024
"""Bytes of a body that holds no text or file of a person: decoding holds up everybody else."""
_LARGE_AT_ONCE = 8
"""How many of the largest kind there is room for."""


class Bodies:
    """All bodies that are being read."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._room = _LARGE_AT_ONCE * most

    async def read(
        self, headers: Mapping[bytes, bytes], receive: Receive, *, may_be_large: bool
    ) -> bytes:
        """A whole body, unless it is too large or does not come."""
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
