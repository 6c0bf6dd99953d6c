"""Pieces of streamed text on their way to the store: one transaction for all streams of the
process.

Text that a client has seen must be there after the process was killed. Storing each piece before it
is announced would cost as much as the rest of streaming, so up to 50 ms of text may be announced
before it is stored.
"""

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from time import monotonic

from kedge.store.port import Store
from kedge.store.queries.fences import Fence
from kedge.store.queries.pieces import Piece, add_pieces

_log = logging.getLogger(__name__)

WINDOW = 0.05
"""Seconds of text that may be announced before it is stored."""

_HEAD_START = 0.8
"""The share of them after which storing begins, so that it has usually ended when they are over."""

_LARGE = 64 * 1024
"""Characters that would block the event loop for too long."""

_PAUSE = 1.0
"""Seconds until a failed store is tried again."""


@dataclass(slots=True)
class _Unstored:
    """The text of a part since it was last stored."""

    fence: Fence
    start: int
    texts: list[str]


class Pieces:
    """The streamed text of this process until it is stored."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._unstored: dict[str, _Unstored] = {}
        """By part, without what is being stored at the moment."""
        self._since = 0.0
        """The time of the oldest piece in it."""
        self._storing: asyncio.Task[None] | None = None
        self._storing_since = 0.0
        """The time of the oldest piece that is being stored."""
        self._settled = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def add(self, fence: Fence, part_id: str, start: int, text: str) -> None:
        """Take the next piece of a part; return when it may be announced, which is when all text
        older than 50 ms is stored."""
        while self._storing is not None and monotonic() - self._storing_since >= WINDOW:
            await self._settled.wait()
        now = monotonic()
        if not self._unstored:
            self._since = now
            self._store_in(WINDOW * _HEAD_START)
        known = self._unstored.get(part_id)
        if known is None:
            self._unstored[part_id] = _Unstored(fence, start, [text])
        else:
            known.texts.append(text)
        # Checked here as well as by the timer, which a busy event loop delays.
        age = now - self._since
        if age >= WINDOW:
            await self.store()
        elif age >= WINDOW * _HEAD_START:
            self._begin()

    async def store(self) -> None:
        """Store everything that was added so far."""
        await self._settle()
        self._begin()
        if self._storing is not None:
            storing = self._storing
            await self._settle()
            storing.result()

    async def forget(self, part_id: str) -> None:
        """Drop the pending pieces of a part that is about to be stored whole, or removed; when this
        returns, none is being stored."""
        await self._settle()
        self._unstored.pop(part_id, None)

    async def close(self) -> None:
        """Stop storing."""
        await self._settle()
        self._stop_timer()
        self._unstored.clear()

    async def _settle(self) -> None:
        """Wait until nothing is being stored."""
        while self._storing is not None:
            await self._settled.wait()

    def _begin(self) -> None:
        if self._storing is not None or not self._unstored:
            return
        self._stop_timer()
        taken, self._unstored = self._unstored, {}
        self._storing_since = self._since
        self._settled.clear()
        self._storing = asyncio.get_running_loop().create_task(self._write(taken))
        self._storing.add_done_callback(partial(self._end, taken))

    async def _write(self, taken: dict[str, _Unstored]) -> None:
        pieces = [
            Piece(each.fence, part_id, each.start, "".join(each.texts))
            for part_id, each in taken.items()
        ]
        large = sum(len(piece.text) for piece in pieces) > _LARGE
        write = self._store.write_bulk if large else self._store.write
        await write(partial(add_pieces, pieces))

    def _end(self, taken: dict[str, _Unstored], storing: asyncio.Task[None]) -> None:
        self._storing = None
        self._settled.set()
        if storing.cancelled():
            self._take_back(taken)
        elif error := storing.exception():
            self._take_back(taken)
            _log.warning("announced text could not be stored yet: %s", error)

    def _take_back(self, taken: dict[str, _Unstored]) -> None:
        """Whether it was stored is unknown; storing it twice does no harm."""
        for part_id, each in self._unstored.items():
            if part_id in taken:
                taken[part_id].texts += each.texts
            else:
                taken[part_id] = each
        self._unstored, self._since = taken, self._storing_since
        self._store_in(_PAUSE)

    def _store_in(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
