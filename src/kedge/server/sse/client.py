"""One client of a stream: sends missed events, then new ones, until it leaves or falls behind."""

import asyncio
import math
from time import monotonic
from typing import TYPE_CHECKING

from kedge.domain.cursors import EventCursor
from kedge.domain.events import EventProperties, ServerConnected, ServerHeartbeat, ServerResync
from kedge.server.responses import Receive, Send
from kedge.server.sse.buffer import Frame, greeting

if TYPE_CHECKING:
    from kedge.server.sse.hub import Streams

HEARTBEAT = 10.0
"""Seconds between heartbeats."""
_PATIENCE = 30.0
"""Seconds after which a client that reads nothing is dropped."""
_STUCK = 0.2
"""Seconds after which others stop waiting for a client that reads nothing."""
_PIECE = 64 * 1024
"""Bytes that are written at once: this much is held in memory for a client that does not read."""
_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class StreamClient:
    """Sends events to one client. It holds a position in the buffer, not events of its own."""

    def __init__(
        self, streams: "Streams", directory: str | None, after: EventCursor | None, send: Send
    ) -> None:
        self.directory = directory
        """The directory whose events the client wants; None for all."""
        self.at: int | None = None
        """The next frame of the buffer to send; None while older events are read from the log."""
        self._streams = streams
        self._recent = streams.recent
        self._after = after
        self._send = send
        self._joined = 0
        """The first frame of the buffer that was sent."""
        self._lengths: dict[str, int] = {}
        """For texts that grew before it joined: how much of them the client has."""
        self._position = 0
        """Every stored event up to this one was sent or does not concern this client."""
        self._sending_since = math.inf
        self._waiter: asyncio.Future[None] | None = None
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []
        self._beat: asyncio.TimerHandle | None = None
        self._is_beat_due = False
        self._task: asyncio.Task[None] | None = None
        self._is_dropped = False

    async def run(self, receive: Receive) -> None:
        """Send events until the client leaves, or is dropped because it does not read.

        Only a stream that is complete ends with a last chunk; without one, clients reconnect.
        """
        self._task = asyncio.current_task()
        watcher = asyncio.create_task(self._watch(receive))
        self._plan_beat()
        try:
            await self._tell()
        except asyncio.CancelledError:
            if not self._is_dropped:
                raise
        finally:
            watcher.cancel()
            if self._beat is not None:
                self._beat.cancel()
            self._release(None)

    @property
    def is_stuck(self) -> bool:
        """Whether the client has stopped reading."""
        return self._is_silent_for(_STUCK)

    def wake(self) -> None:
        """Signal that there is something to send."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def drop(self) -> None:
        """Disconnect the client."""
        if self._task is not None and not self._is_dropped:
            self._is_dropped = True
            self._task.cancel()

    def sent(self, end: int) -> "asyncio.Future[None]":
        """A future that is done when all frames before `end` were sent or the client is gone."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited.append((end, future))
        return future

    async def _tell(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        await self._begin()
        self.at = self._joined
        while self.at >= self._recent.start:
            self._release(self.at)
            await self._beat_if_due()
            if self.at == self._recent.end:
                await self._wait()
            elif await self._tell_recent(self.at):
                return

    async def _begin(self) -> None:
        """Send the greeting, then stored events that are older than the buffer."""
        reason = None
        if self._after is not None:
            reason = await self._streams.why_useless(self._after)
        if self._after is not None and reason is None:
            self._position = self._after.seq
            await self._put(self._sign(ServerConnected()))
            await self._read_log()
            return
        self._joined, self._position = self._recent.end, self._recent.position
        await self._put(self._sign(ServerConnected()))
        if reason is not None:
            cursor = self._streams.cursor(self._position)
            await self._put(self._sign(ServerResync(cursor=cursor, reason=reason)))
        else:
            async for page in self._streams.recovered(self.directory):
                await self._put(page)

    async def _read_log(self) -> None:
        while self._position < self._recent.floor:
            await self._beat_if_due()
            page, position = await self._streams.page(self._position, self.directory)
            await self._put(page)
            self._position = position
        self._joined = self._recent.after(self._position)

    async def _tell_recent(self, at: int) -> bool:
        """Send the next batch; returns whether it was the last."""
        batch = self._recent.batch(at, self.directory)
        data = batch.data
        if batch.whole_at is not None and batch.whole_at < self._joined:
            data = b"".join(map(self._fitting, self._recent.between(at, batch.end)))
        await self._put(data, more=not batch.is_last)
        self.at = batch.end
        self._position = max(self._position, batch.position)
        return batch.is_last

    def _fitting(self, frame: Frame) -> bytes:
        """The bytes of a frame for a client that may not have all of the growing texts."""
        seen = frame.seen_from(self.directory)
        if not seen or frame.delta is None or frame.delta.whole_at >= self._joined:
            if frame.part is not None:
                self._lengths.pop(frame.part, None)
            return seen
        delta = frame.delta
        known = self._lengths.get(delta.part, -1)
        if known < delta.offset:
            whole = self._streams.texts.whole(frame.event, delta.part)
            if whole is None:
                return b""
            frame, self._lengths[delta.part] = whole
        elif known < delta.end:
            frame = self._streams.texts.rest(frame, known)
            self._lengths[delta.part] = delta.end
        else:
            return b""
        return frame.seen_from(self.directory)

    async def _beat_if_due(self) -> None:
        if self._is_beat_due:
            self._is_beat_due = False
            await self._put(self._sign(ServerHeartbeat()))

    def _sign(self, properties: EventProperties) -> bytes:
        payload = self._streams.payload(properties)
        return greeting(payload, self._streams.cursor(self._position), self.directory)

    async def _put(self, data: bytes, *, more: bool = True) -> None:
        if len(data) <= _PIECE:
            if data or not more:
                await self._put_piece(data, more=more)
            return
        for start in range(0, len(data), _PIECE):
            end = start + _PIECE
            await self._put_piece(data[start:end], more=more or end < len(data))

    async def _put_piece(self, data: bytes, *, more: bool) -> None:
        self._sending_since = monotonic()
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
        self._sending_since = math.inf

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.drop()

    def _plan_beat(self) -> None:
        self._beat = asyncio.get_running_loop().call_later(HEARTBEAT, self._on_beat)

    def _on_beat(self) -> None:
        if self._is_silent_for(_PATIENCE):
            self.drop()
            return
        self._is_beat_due = True
        self.wake()
        self._plan_beat()

    def _is_silent_for(self, seconds: float) -> bool:
        return monotonic() - self._sending_since > seconds

    def _release(self, at: int | None) -> None:
        if not self._awaited:
            return
        waiting = self._awaited
        self._awaited = []
        for end, future in waiting:
            if at is not None and at < end:
                self._awaited.append((end, future))
            elif not future.done():
                future.set_result(None)
