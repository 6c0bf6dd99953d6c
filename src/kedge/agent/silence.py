"""Notices when nothing has happened in a subtask for too long.

Everything counts that clients are told of the subtask or of one below it. While a person is asked,
the time does not run.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kedge.domain.errors import EngineClosed, StoreError
from kedge.domain.events import (
    PermissionAsked,
    PermissionReplied,
    QuestionAsked,
    QuestionRejected,
    QuestionReplied,
)
from kedge.engine.engine import Engine
from kedge.engine.event_log import Event

_log = logging.getLogger(__name__)
_PAUSE = 0.25
"""Seconds until events are listened to again after an error."""


@dataclass(frozen=True, slots=True)
class Timer:
    """How time is measured and waited for, in seconds."""

    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]


def loop_timer() -> Timer:
    """The time of the event loop."""
    return Timer(lambda: asyncio.get_running_loop().time(), asyncio.sleep)


_ASKS = {
    each.type
    for each in (
        PermissionAsked,
        PermissionReplied,
        QuestionAsked,
        QuestionReplied,
        QuestionRejected,
    )
}


class Silence:
    """How long nothing was heard of a subtask."""

    def __init__(self, parent: str, since: float) -> None:
        self.parent = parent
        self.since = since
        self.asks: set[str] = set()
        """The requests of it, and of those below, that wait for a person."""

    def hear(self, now: float, event: Event) -> None:
        """Something happened."""
        self.since = now
        if event.type not in _ASKS:
            return
        match event.properties:
            case PermissionAsked(id=id) | QuestionAsked(id=id):
                self.asks.add(id)
            case (
                PermissionReplied(requestID=id)
                | QuestionReplied(requestID=id)
                | QuestionRejected(requestID=id)
            ):
                self.asks.discard(id)


class Silences:
    """Listens to all subtasks that run here."""

    def __init__(self, engine: Engine, timer: Timer | None = None) -> None:
        self._engine = engine
        self._timer = timer or loop_timer()
        self._watched: dict[str, Silence] = {}
        self._count: dict[str, int] = {}
        self._listening: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, session_id: str, parent_id: str) -> Iterator[None]:
        """Listen to a subtask for as long as the block lasts."""
        if session_id not in self._watched:
            self._watched[session_id] = Silence(parent_id, self._timer.now())
        self._count[session_id] = self._count.get(session_id, 0) + 1
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        try:
            yield
        finally:
            self._count[session_id] -= 1
            if not self._count[session_id]:
                del self._watched[session_id], self._count[session_id]
            if not self._watched:
                self._listening.cancel()
                self._listening = None

    async def too_long(self, session_id: str, limit: float) -> None:
        """Return when nothing has happened in a watched subtask for this time. One that waits for a
        subtask of its own is not silent: that one is watched itself."""
        silence = self._watched[session_id]
        while True:
            waits = silence.asks or any(
                each.parent == session_id for each in self._watched.values()
            )
            left = limit if waits else silence.since + limit - self._timer.now()
            if left <= 0:
                return
            await self._timer.sleep(left)

    async def _listen(self) -> None:
        while True:
            try:
                async with self._engine.events.subscribe() as events:
                    async for event in events:
                        self._hear(event)
                return
            except StoreError as error:
                _log.warning("cannot listen to subtasks, trying again: %s", error)
                await asyncio.sleep(_PAUSE)
            except EngineClosed:
                return

    def _hear(self, event: Event) -> None:
        now = self._timer.now()
        silence = self._watched.get(event.session_id or "")
        while silence is not None:
            silence.hear(now, event)
            silence = self._watched.get(silence.parent)
