"""All event streams: each event is read once, encoded once, and sent to many clients.

OpenCode's terminal UI reconnects after a restart, but does not reload what it already has, so
events tell it what recovery changed.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Literal

from kedge.domain.cursors import EventCursor
from kedge.domain.errors import NotFound, PathRefused, StoreGone
from kedge.domain.events import (
    EventProperties,
    GlobalDisposed,
    InstanceDisposed,
    MessageUpdated,
    PartUpdated,
    ServerResync,
    SessionIdle,
    SessionRequest,
    SessionStatusChanged,
    SessionUpdated,
)
from kedge.domain.messages import AssistantMessage, MessageWithParts, UserMessage
from kedge.domain.sessions import Idle
from kedge.domain.wire_errors import aborted
from kedge.engine.branches import BranchWatch
from kedge.engine.engine import Engine
from kedge.engine.event_log import Event, Subscription
from kedge.engine.json_views import lacks_patches, told
from kedge.engine.runs import INTERRUPTED
from kedge.server.responses import Receive, Send, Stream
from kedge.server.settings import ServerSettings
from kedge.server.sse.buffer import Frame, Recent
from kedge.server.sse.client import StreamClient
from kedge.server.sse.deltas import GrowingTexts

_MOST_MESSAGES = 50
_CUT_OFF = aborted(INTERRUPTED)


async def events_of_recovery(engine: Engine, session_id: str) -> list[Event]:
    """Events for a session's status, its last turn as it is now, and how its last asks ended; none
    if the session is deleted."""
    try:
        session = await engine.sessions.get(session_id)
    except NotFound:
        return []
    info = session.info
    # The status is read first: a run stores its end before it says idle, so what is read after an
    # idle is complete. What is read after a busy may be older than the end, but the events of that
    # end follow.
    status = await session.status()
    told: list[EventProperties] = [SessionUpdated(sessionID=session_id, info=info)]
    for message in _last_turn((await session.messages(limit=_MOST_MESSAGES)).messages):
        told.append(MessageUpdated(sessionID=session_id, info=message.info))
        told += [
            PartUpdated(sessionID=session_id, part=part, time=engine.clock.now())
            for part in message.parts
        ]
    # Open asks of the run were withdrawn, and clients may have missed the last answers.
    told += await engine.asks.ends(session_id)
    told.append(SessionStatusChanged(sessionID=session_id, status=status))
    if isinstance(status, Idle):
        told.append(SessionIdle(sessionID=session_id))
    home = (session_id, info.projectID, info.directory)
    return [Event(each.type, engine.events.frame(each), None, *home) for each in told]


def _last_turn(messages: list[MessageWithParts]) -> list[MessageWithParts]:
    """The last prompt and its answers, and before it the turn that was cut off, which a prompt may
    have been waiting behind."""
    infos = [each.info for each in messages]
    asked = [at for at, info in enumerate(infos) if isinstance(info, UserMessage)]
    cut = {
        info.parentID
        for info in infos
        if isinstance(info, AssistantMessage) and info.error == _CUT_OFF
    }
    first = [at for at in asked if infos[at].id in cut][-1:] + asked[-1:]
    return messages[min(first) :] if first else messages


_log = logging.getLogger(__name__)
_OURS = (SessionRequest.type, ServerResync.type)
"""Events between kedge's processes, and events from the engine to this module only."""
_PAUSE = 0.0001
"""Seconds between two rounds of sending, times the number of clients: when much happens, events are
sent together."""
_RECOVERY_IS_NEWS = 60.0
"""Seconds after the start during which clients are told what was recovered."""
_LOOK = 1.0
"""Seconds between two checks that the database still exists."""
_FLUSH_PATIENCE = 1.0
"""Seconds that an answer waits for the events before it; longer than events wait for patches."""
_PATCH_PATIENCE = 0.5
"""Seconds that an event waits for its patches."""
_LONGEST_QUEUE = 16_384
"""Events that may queue meanwhile. Beyond that, events that are not stored are lost."""
_PATCH_REST = 10.0
"""Seconds without patches after one took too long."""
_PAGE_CHARACTERS = 4 * 1024 * 1024
"""How much of the log is sent at once; with patches, an event can be many times its stored size."""
_SETTLING = 0.06
"""Seconds that clients have for reading what was sent."""


@asynccontextmanager
async def streaming(engine: Engine, settings: ServerSettings) -> AsyncIterator["Streams"]:
    """The streams of an engine's events, for as long as the block lasts."""
    async with engine.events.subscribe(queue_length=_LONGEST_QUEUE) as events:
        streams = Streams(engine, settings, EventCursor.parse(events.cursor).seq)
        tasks = [asyncio.create_task(streams.follow(events)), asyncio.create_task(streams.watch())]
        try:
            yield streams
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await streams.branches.close()


class Streams:
    """The clients of a server's event streams, and the buffer they share."""

    def __init__(self, engine: Engine, settings: ServerSettings, position: int) -> None:
        self.recent = Recent(position)
        self.texts = GrowingTexts(engine.ids)
        self._engine = engine
        self._settings = settings
        self._started = monotonic()
        self._listeners: dict[StreamClient, None] = {}
        self._round: asyncio.TimerHandle | None = None
        self._last_round = 0.0
        self._patches_from = 0.0
        """When patches are computed again."""
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []
        self.branches = BranchWatch(engine.events, self._project_of)

    def __len__(self) -> int:
        """The number of clients."""
        return len(self._listeners)

    def __iter__(self) -> Iterator[StreamClient]:
        return iter(self._listeners)

    def stream(self, directory: str | None, after: EventCursor | None) -> Stream:
        """The events of a directory, or all, as an answer; after a cursor, or from now on."""
        # Else it would never hear anything.
        self._engine.events.check()
        self.branches.care_for(directory or str(self._engine.directory))

        async def answer(receive: Receive, send: Send) -> None:
            listener = StreamClient(self, directory, after, send)
            self._listeners[listener] = None
            try:
                await listener.run(receive)
            finally:
                del self._listeners[listener]

        return answer

    async def flushed(self) -> None:
        """Wait until every event so far was written to the sockets of all clients.

        It waits only briefly for clients that do not read, so that nothing else is delayed
        noticeably.
        """
        if not self._listeners:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_PATIENCE):
                await self._reached(await self._engine.events.last_seq())
                self._tell_all()
                end = self.recent.end
                late = [each for each in self._listeners if each.at is not None and each.at < end]
                await asyncio.gather(*(each.sent(end) for each in late if not each.is_stuck))
        await asyncio.sleep(_SETTLING)

    async def dispose(self, directory: str) -> None:
        """Tell clients that everything in a directory is loaded anew; its own streams end with
        that."""
        project = (await self._engine.look_up(directory)).project
        self._engine.events.announce(
            InstanceDisposed(directory=directory), project_id=project.id, directory=directory
        )

    async def dispose_all(self) -> None:
        """The same for the server and for every directory that has a client."""
        here = str(self._engine.directory)
        listened = {each.directory for each in self._listeners if each.directory is not None}
        for directory in sorted({here, *listened}):
            await self.dispose(directory)
        self._engine.events.announce(GlobalDisposed())

    def payload(self, properties: EventProperties) -> str:
        """The JSON of an event that is made for one client."""
        return self._engine.events.frame(properties)

    def cursor(self, position: int) -> str:
        """The cursor for a position in the log."""
        return self._engine.events.cursor_at(position)

    async def why_useless(self, after: EventCursor) -> Literal["foreign", "future"] | None:
        """Why a stream cannot go on after a cursor, if it cannot."""
        events = self._engine.events
        reason = events.why_useless(after, await events.last_seq())
        if reason is None:
            # It may have heard from another server what this one has yet to read.
            await self._reached(after.seq)
        return reason

    async def page(self, after: int, directory: str | None) -> tuple[bytes, int]:
        """A page of frames from the log and the position it reaches; never beyond the buffer."""
        until = self.recent.position
        events: list[Event] = []
        size = 0
        for each in await self._engine.events.between(after, until, directory):
            events.append(await self._told(each))
            size += len(events[-1].payload)
            if size > _PAGE_CHARACTERS:
                break
        return self._joined(events, directory), events[-1].seq if events else until

    async def recovered(self, directory: str | None) -> AsyncIterator[bytes]:
        """Frames about what was recovered when this server started, for a new client."""
        if monotonic() - self._started < _RECOVERY_IS_NEWS:
            for session in list(self._engine.recovery.cut_off):
                made_up = await events_of_recovery(self._engine, session)
                events = [await self._told(each) for each in made_up]
                yield self._joined(events, directory)

    async def follow(self, events: Subscription) -> None:
        """Add new events to the buffer."""
        async for event in events:
            try:
                self._take(await self._told(event))
            except Exception:  # noqa: BLE001 - one bad event must not end all streams
                _log.exception("an event cannot be sent: %.200s", event.payload)

    async def watch(self) -> None:
        """Disconnect all clients when the database was removed: they would not notice otherwise."""
        while True:
            await asyncio.sleep(_LOOK)
            try:
                self._engine.events.check()
            except StoreGone as error:
                if self._listeners:
                    _log.error("streams are dropped: %s", error)
                for listener in self._listeners:
                    listener.drop()
            if self._listeners:
                self.branches.look_at_untold()

    async def _project_of(self, directory: str) -> str:
        return (await self._engine.look_up(directory)).project.id

    async def _told(self, event: Event) -> Event:
        """An event with its patches, unless they take too long: other events wait behind it."""
        if not lacks_patches(event) or monotonic() < self._patches_from:
            return event
        try:
            async with asyncio.timeout(_PATCH_PATIENCE):
                return await told(self._engine, event)
        except TimeoutError:
            self._patches_from = monotonic() + _PATCH_REST
        except Exception:  # noqa: BLE001 - what happened is told all the same
            _log.exception("the patches of an event cannot be sent: %.200s", event.payload)
        return event

    def _take(self, event: Event) -> None:
        if self._is_for_clients(event):
            self._care_for(event)
            for frame in self.texts.frames(event, self.recent.end):
                self.recent.add(frame)
        self.recent.position = max(self.recent.position, event.seq)
        self._release()
        for listener in self._listeners:
            if listener.at is not None and listener.at < self.recent.start:
                listener.drop()
        if self._round is None and self._listeners:
            loop = asyncio.get_running_loop()
            due = self._last_round + _PAUSE * len(self._listeners)
            self._round = loop.call_at(due, self._tell_all)

    def _care_for(self, event: Event) -> None:
        if event.directory is not None and event.session_id is not None:
            self.branches.care_for(event.directory)
            if event.type == SessionIdle.type:
                self.branches.look([event.directory])

    def _tell_all(self) -> None:
        if self._round is not None:
            self._round.cancel()
            self._round = None
        self._last_round = asyncio.get_running_loop().time()
        for listener in self._listeners:
            listener.wake()

    def _joined(self, events: Iterable[Event], directory: str | None) -> bytes:
        wanted = (Frame(event) for event in events if self._is_for_clients(event))
        return b"".join(frame.seen_from(directory) for frame in wanted)

    def _is_for_clients(self, event: Event) -> bool:
        if event.type in _OURS:
            return False
        if event.directory is not None:
            with suppress(PathRefused):
                self._settings.check_root(event.directory)
                return True
            return False
        return True

    async def _reached(self, position: int) -> None:
        """Wait until a stored event was added to the buffer."""
        if self.recent.position < position:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaited.append((position, future))
            await future

    def _release(self) -> None:
        if not self._awaited:
            return
        waiting, self._awaited = self._awaited, []
        for position, future in waiting:
            if position > self.recent.position:
                self._awaited.append((position, future))
            elif not future.done():
                future.set_result(None)
