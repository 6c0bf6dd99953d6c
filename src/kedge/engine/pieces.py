"""Pieces of text on their way to the store: one transaction for all streams of the process.

A client that has seen words must see them again after the process was killed. To store each piece
before it is announced costs as much as all the rest of a stream, so up to 50 ms of text may be
announced and not stored.
"""

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from time import monotonic

from kedge.store.port import Store
from kedge.store.verbs.fences import Fence
from kedge.store.verbs.pieces import Piece, add_pieces

_log = logging.getLogger(__name__)

WINDOW = 0.05
"""Seconds in which text is announced before it is stored."""

_LARGE = 64 * 1024
"""Characters that would hold up the event loop."""

_PAUSE = 1.0
"""Seconds until text is stored again by itself after that failed."""


@dataclass(slots=True)
class _Unstored:
    """What a part said since it was last stored."""

    fence: Fence
    start: int
    texts: list[str]


class Pieces:
    """What the streams of this process say, until it is stored."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._unstored: dict[str, _Unstored] = {}
        """By part."""
        self._since = 0.0
        """When the oldest of it was said."""
        self._settled = asyncio.Event()
        """Whether nothing is being stored."""
        self._settled.set()
        self._timer: asyncio.TimerHandle | None = None
        self._storing: asyncio.Task[None] | None = None

    async def add(self, fence: Fence, part_id: str, start: int, text: str) -> None:
        """Take what a part says next; returns when it may be announced."""
        # Else more would be announced and not stored than one window of text.
        await self._settle()
        now = monotonic()
        if not self._unstored:
            self._since = now
            self._store_in(WINDOW)
        known = self._unstored.get(part_id)
        if known is None:
            self._unstored[part_id] = _Unstored(fence, start, [text])
        else:
            known.texts.append(text)
        # Not left to the timer: a busy event loop delays it.
        if now - self._since >= WINDOW:
            await self.store()

    async def store(self) -> None:
        """Store everything that was taken so far."""
        await self._settle()
        if not self._unstored:
            return
        self._stop_timer()
        taken, self._unstored = self._unstored, {}
        self._settled.clear()
        try:
            await self._write(taken)
        except BaseException:
            # It may be stored or not, and stored again it does no harm.
            self._unstored = taken
            self._store_in(_PAUSE)
            raise
        finally:
            self._settled.set()

    async def forget(self, part_id: str) -> None:
        """Nothing of a part is on its way any more when this returns: it is about to be stored
        whole, or removed."""
        await self._settle()
        self._unstored.pop(part_id, None)

    async def close(self) -> None:
        """Store nothing more."""
        await self._settle()
        self._stop_timer()
        self._unstored.clear()
        if self._storing is not None:
            await self._storing

    async def _settle(self) -> None:
        while not self._settled.is_set():
            await self._settled.wait()

    async def _write(self, taken: dict[str, _Unstored]) -> None:
        pieces = [
            Piece(each.fence, part_id, each.start, "".join(each.texts))
            for part_id, each in taken.items()
        ]
        large = sum(len(piece.text) for piece in pieces) > _LARGE
        write = self._store.write_bulk if large else self._store.write
        await write(partial(add_pieces, pieces))

    def _store_in(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._storing = asyncio.get_running_loop().create_task(self._store_by_itself())

    async def _store_by_itself(self) -> None:
        try:
            await self.store()
        except Exception as error:  # noqa: BLE001 - whoever says more tries again, and hears of it
            _log.warning("text that was announced is not stored yet: %s", error)
