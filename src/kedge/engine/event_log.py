"""The event log: replays stored events, then follows new ones, with no event missing or repeated.

Events are ordered by their sequence number. An event of this process is passed on when it is
committed, if it directly follows the last one seen; otherwise, and for events of other processes,
the log is read. A subscriber that cannot keep up reads from the log again: it loses no stored
event.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Literal, TypeAlias

from kedge.domain.cursors import EventCursor
from kedge.domain.errors import EngineClosed, InvalidInput, StoreError
from kedge.domain.events import EventProperties, ServerResync, UnknownEvent, frame, read_frame
from kedge.domain.ids import IdMaker, check_id
from kedge.engine.worktrees import real_path
from kedge.store.port import Store, StoredEvent
from kedge.store.queries.event_log import (
    directory_events_after,
    events_after,
    log_head,
    session_events_after,
)
from kedge.store.transaction import ScriptMaker

_log = logging.getLogger(__name__)
_QUEUE_CHARACTERS = 16 * 1024 * 1024
"""Characters of payload that may wait for one subscriber, in any number of events."""
_FEW = 32
_PAUSE = 0.25
"""Seconds until the log is read again after an error."""


Read: TypeAlias = Callable[[ScriptMaker[list[StoredEvent]]], Awaitable[list[StoredEvent]]]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""

    type: str
    payload: str
    """The JSON text `{"id", "type", "properties"}`, encoded once for all subscribers."""
    cursor: str | None
    """Where to resume after this event; None for events that are not stored, such as deltas."""
    session_id: str | None = None
    project_id: str | None = None
    directory: str | None = None
    offset: int | None = None
    """For a delta: the length of the text before it."""
    seq: int = 0

    @property
    def properties(self) -> EventProperties | UnknownEvent:
        """The event as a value."""
        return read_frame(self.payload)[1]


class EventLog:
    """All events of a database, for any number of subscribers in this process."""

    def __init__(self, store: Store, ids: IdMaker, queue_length: int) -> None:
        self._store = store
        self._ids = ids
        self._queue_length = queue_length
        self._seen = 0
        """The last event that was passed on to live subscribers."""
        self._open: dict[Subscription, None] = {}
        self._live: dict[Subscription, None] = {}
        self._pump: asyncio.Task[None] | None = None
        self._pump_again = False
        self._closed = False
        store.follow(self._on_commit, self._on_foreign_commit)

    @property
    def start(self) -> str:
        """The cursor before the first event."""
        return self.cursor_at(0)

    async def head(self) -> str:
        """The cursor of the newest event."""
        return self.cursor_at(await self.last_seq())

    async def last_seq(self) -> int:
        """The number of the newest event."""
        return await self._store.read(log_head)

    async def between(self, after: int, until: int, directory: str | None) -> list[Event]:
        """Some of the stored events with numbers from `after` on to `until`, of a directory or
        all; none if there are no more."""
        script = (
            partial(events_after, after)
            if directory is None
            else partial(directory_events_after, directory, after, until)
        )
        return [self.event_of(each) for each in await self._store.scan(script) if each.seq <= until]

    def why_useless(self, after: EventCursor, head: int) -> Literal["foreign", "future"] | None:
        """Why a reader cannot go on after a cursor, if it cannot; `head` is the last number."""
        if after.epoch != self._store.epoch:
            return "foreign"
        return "future" if after.seq > head else None

    def check(self) -> None:
        """Raise if the database is gone: no event would ever come."""
        self._store.check()

    def subscribe(
        self,
        after: str | None = None,
        session: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        *,
        queue_length: int | None = None,
    ) -> "Subscription":
        """Events after a cursor, or from now on; of one session or directory, or all.

        Use it as `async with log.subscribe(...) as events: async for event in events: ...`.
        `queue_length` is for a reader that may pause for long; the default is the setting.
        """
        if self._closed:
            raise EngineClosed
        cursor = None if after is None else EventCursor.parse(after)
        if session is not None:
            check_id("ses", session)
        place = None if directory is None else real_path(directory)
        length = queue_length or self._queue_length
        return Subscription(self, self._store, cursor, session, place, length)

    def announce(
        self,
        properties: EventProperties,
        *,
        session_id: str | None = None,
        project_id: str | None = None,
        directory: str | None = None,
        offset: int | None = None,
    ) -> None:
        """Announce an event that is not worth storing to the current subscribers."""
        home = (session_id, project_id, directory)
        self._pass_on(Event(properties.type, self.frame(properties), None, *home, offset))

    def frame(self, properties: EventProperties) -> str:
        """The payload of an event that is not stored."""
        return frame(self._ids.event(), properties)

    def cursor_at(self, seq: int) -> str:
        """The cursor of the event with this number."""
        return str(EventCursor(self._store.epoch, seq))

    def event_of(self, stored: StoredEvent) -> Event:
        """A stored event as subscribers see it."""
        home = (stored.session_id, stored.project_id, stored.directory)
        cursor = self.cursor_at(stored.seq)
        return Event(stored.type, stored.payload, cursor, *home, None, stored.seq)

    def opened(self, subscription: "Subscription") -> None:
        """Register a subscription to be ended when the log is closed."""
        self._open[subscription] = None

    def attach(self, subscription: "Subscription", position: int) -> bool:
        """Make a subscription live that has read up to `position`, if that is the end of the
        log."""
        if self._closed or position < self._seen:
            return False
        if not self._live:
            # Only without other subscribers: they may not have got everything before it yet.
            self._seen = position
        self._live[subscription] = None
        self._store.watch()
        return True

    def detach(self, subscription: "Subscription") -> None:
        """Stop passing events to the subscription."""
        if subscription in self._live:
            del self._live[subscription]
            self._store.unwatch()

    def ended(self, subscription: "Subscription") -> None:
        """Unregister a subscription that is over."""
        self.detach(subscription)
        self._open.pop(subscription, None)

    async def close(self) -> None:
        """End all subscriptions."""
        self._closed = True
        for subscription in list(self._open):
            subscription.end()
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)

    def _on_commit(self, events: Sequence[StoredEvent]) -> None:
        if not events:
            return
        if events[0].seq == self._seen + 1:
            self._advance(events)
        elif events[-1].seq > self._seen:
            self._on_foreign_commit()

    def _on_foreign_commit(self) -> None:
        self._pump_again = True
        self._start_pump()

    def _start_pump(self) -> None:
        wanted = self._pump_again and self._live and not self._closed
        if wanted and self._pump is None:
            self._pump = asyncio.get_running_loop().create_task(self._read_log())
            self._pump.add_done_callback(self._pump_done)

    async def _read_log(self) -> None:
        while self._pump_again:
            self._pump_again = False
            while events := await self._store.scan(partial(events_after, self._seen)):
                self._advance(events)

    def _pump_done(self, pump: asyncio.Task[None]) -> None:
        self._pump = None
        if pump.cancelled():
            return
        error = pump.exception()
        if error is None:
            # Another process may have committed after the last read and before this.
            self._start_pump()
            return
        if isinstance(error, StoreError | EngineClosed):
            _log.warning("cannot follow the event log, trying again: %s", error)
        else:
            _log.error("following the event log failed, trying again", exc_info=error)
        asyncio.get_running_loop().call_later(_PAUSE, self._on_foreign_commit)

    def _advance(self, events: Sequence[StoredEvent]) -> None:
        for stored in events:
            if stored.seq > self._seen:
                self._seen = stored.seq
                if self._live:
                    self._pass_on(self.event_of(stored))

    def _pass_on(self, event: Event) -> None:
        for subscription in list(self._live):
            subscription.offer(event)


class Subscription:
    """One reader of the event log: an async context manager and iterator."""

    def __init__(
        self,
        log: EventLog,
        store: Store,
        after: EventCursor | None,
        session: str | None,
        directory: str | None,
        queue_length: int,
    ) -> None:
        self._log = log
        self._store = store
        self._after = after
        self._session = session
        self._directory = directory
        self._queue_length = queue_length
        self._queue: deque[Event] = deque()
        self._queued_characters = 0
        self._position = 0
        """No event up to this number is wanted any more."""
        self._delivered = 0
        """The reader's position: everything up to here was delivered or filtered out."""
        self._live = False
        self._entered = False
        self._open = False
        self._reading = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def cursor(self) -> str:
        """Where to resume after what was read so far."""
        return self._log.cursor_at(self._delivered)

    async def __aenter__(self) -> "Subscription":
        if self._entered:
            raise InvalidInput("a subscription can be entered only once")
        self._entered = True
        self._open = True
        self._log.opened(self)
        try:
            await self._start()
        except BaseException:
            self.end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Event:
        if not self._entered:
            raise InvalidInput("enter the subscription with `async with` first")
        if self._reading:
            raise InvalidInput("only one task may read a subscription")
        self._reading = True
        try:
            await self._fill()
        finally:
            self._reading = False
        event = self._queue.popleft()
        self._queued_characters -= len(event.payload)
        if not self._queue:
            self._delivered = self._position
        elif event.seq:
            self._delivered = event.seq
        return event

    def offer(self, event: Event) -> None:
        """Queue a live event if it matches; called by the log."""
        if event.seq and event.seq <= self._position:
            return
        if self._wants(event):
            self._put(event)
            if self._overflows():
                self._fall_back()
                return
        if event.seq:
            self._position = event.seq
        if not self._queue:
            self._delivered = self._position

    def end(self) -> None:
        """End the subscription; queued events can still be read."""
        self._open = False
        self._live = False
        self._log.ended(self)
        self._wake()

    async def _fill(self) -> None:
        while not self._queue:
            if not self._open:
                raise StopAsyncIteration
            if self._live:
                await self._wait()
            else:
                await self._replay()

    async def _start(self) -> None:
        if self._after is not None:
            self._start_after(self._after, await self._store.read(log_head))
            return
        while self._open and not self._live:
            # Live from the start: events announced from now on may never be stored.
            self._position = self._delivered = await self._store.read(log_head)
            self._live = self._log.attach(self, self._position)

    def _start_after(self, after: EventCursor, head: int) -> None:
        reason = self._log.why_useless(after, head)
        if reason is not None:
            self._resync(reason, head)
        else:
            self._position = self._delivered = after.seq

    def _wants(self, event: Event) -> bool:
        if self._session is not None and event.session_id != self._session:
            return False
        return self._directory is None or event.directory == self._directory

    def _overflows(self) -> bool:
        # A single event may be larger than the limit; it must get through as well.
        return len(self._queue) > self._queue_length or (
            self._queued_characters > _QUEUE_CHARACTERS and len(self._queue) > 1
        )

    def _fall_back(self) -> None:
        self._live = False
        self._log.detach(self)
        self._queue.clear()
        self._queued_characters = 0
        self._resync("slow", self._delivered)

    def _resync(self, reason: Literal["slow", "foreign", "future"], seq: int) -> None:
        self._position = self._delivered = seq
        cursor = self._log.cursor_at(seq)
        properties = ServerResync(cursor=cursor, reason=reason)
        self._put(Event(properties.type, self._log.frame(properties), cursor))

    async def _replay(self) -> None:
        try:
            head = await self._store.read(log_head)
            page = await self._page(head)
        except EngineClosed:
            self.end()
        if not self._open:
            return
        for stored in page:
            self._position = stored.seq
            self._put(self._log.event_of(stored))
        if not page:
            self._position = self._delivered = max(head, self._position)
            self._live = self._log.attach(self, self._position)

    async def _page(self, head: int) -> list[StoredEvent]:
        # The last few are read in one transaction: more could be stored while a thread reads them.
        read = self._store.read if head - self._position <= _FEW else self._store.scan
        if self._session is not None:
            return await self._session_page(self._session, read)
        if self._directory is not None:
            return await read(
                partial(directory_events_after, self._directory, self._position, head)
            )
        return await read(partial(events_after, self._position))

    async def _session_page(self, session: str, read: Read) -> list[StoredEvent]:
        while found := await read(partial(session_events_after, session, self._position)):
            if page := [each for each in found if self._directory in (None, each.directory)]:
                return page
            # No event of this page matches, but the next page may have some.
            self._position = found[-1].seq
        return []

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _put(self, event: Event) -> None:
        self._queue.append(event)
        self._queued_characters += len(event.payload)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
