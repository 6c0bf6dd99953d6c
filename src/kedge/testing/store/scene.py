"""Helpers for writing checks: an open store and short ways to make sessions, messages and parts."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ParamSpec, TypeVar

import msgspec

from kedge.domain.ids import IdMaker
from kedge.domain.messages import (
    AssistantMessage,
    MessageModel,
    MessagePath,
    MessageTime,
    UserMessage,
)
from kedge.domain.messages import Message as AnyMessage
from kedge.domain.parts import Part, PartTime, StepFinishPart, TextPart
from kedge.domain.sessions import (
    NO_TOKENS,
    Busy,
    CacheCount,
    ForkOrigin,
    SessionInfo,
    SessionTime,
    TokenCount,
)
from kedge.domain.values import Value
from kedge.store.port import Store, StoredEvent
from kedge.store.queries.event_log import events_after
from kedge.store.queries.fences import Fence
from kedge.store.queries.forks import fork_session
from kedge.store.queries.leases import acquire_lease, status_event
from kedge.store.queries.messages import get_message, put_message
from kedge.store.queries.parts import put_part
from kedge.store.queries.sessions import create_session, lock_session
from kedge.store.transaction import Script, rows
from kedge.testing.clock import ManualClock
from kedge.testing.store.database import Database

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V", bound=Value)

START = 1_700_000_000_000
WORKTREE = "/srv/work"


class Scene:
    """An open store with ids and a clock of its own."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = ManualClock(START)
        self.ids = IdMaker(self.clock)

    async def write(self, verb: Callable[P, Script[T]], *args: P.args, **names: P.kwargs) -> T:
        """Run a query as one transaction."""
        return await self.store.write(lambda: verb(*args, **names))

    async def bulk(self, verb: Callable[P, Script[T]], *args: P.args, **names: P.kwargs) -> T:
        """Run a large query as one transaction."""
        return await self.store.write_bulk(lambda: verb(*args, **names))

    async def read(self, verb: Callable[P, Script[T]], *args: P.args, **names: P.kwargs) -> T:
        """Run a query that only reads."""
        return await self.store.read(lambda: verb(*args, **names))

    def session(self, **given: Any) -> SessionInfo:  # noqa: ANN401 - any field of the session
        """A session that is not stored yet."""
        now = self.clock.now()
        values: dict[str, Any] = {
            "id": self.ids.session(),
            "slug": "calm-cove",
            "projectID": "project",
            "directory": WORKTREE,
            "path": "",
            "cost": 0,
            "tokens": NO_TOKENS,
            "title": "A session",
            "version": "1",
            "time": SessionTime(created=now, updated=now),
        }
        return SessionInfo(**{**values, **given})

    async def add_session(self, **given: Any) -> SessionInfo:  # noqa: ANN401 - as above
        """A new stored session."""
        info = self.session(**given)
        await self.write(create_session, info, WORKTREE)
        return info

    def user(self, session: SessionInfo, **given: Any) -> UserMessage:  # noqa: ANN401 - as above
        """A user message that is not stored yet."""
        values: dict[str, Any] = {
            "id": self.ids.message(),
            "sessionID": session.id,
            "time": MessageTime(created=self.clock.now()),
            "agent": "build",
            "model": MessageModel(providerID="offline", modelID="echo"),
        }
        return UserMessage(**{**values, **given})

    def assistant(
        self,
        session: SessionInfo,
        parent: str,
        **given: Any,  # noqa: ANN401 - as above
    ) -> AssistantMessage:
        """An assistant message that still runs and is not stored yet."""
        values: dict[str, Any] = {
            "id": self.ids.message(),
            "sessionID": session.id,
            "time": MessageTime(created=self.clock.now()),
            "parentID": parent,
            "modelID": "echo",
            "providerID": "offline",
            "mode": "build",
            "agent": "build",
            "path": MessagePath(cwd=WORKTREE, root=WORKTREE),
            "cost": 0,
            "tokens": NO_TOKENS,
        }
        return AssistantMessage(**{**values, **given})

    async def add_user(self, session: SessionInfo, **given: Any) -> AnyMessage:  # noqa: ANN401
        """A new stored user message."""
        return await self.write(put_message, self.user(session, **given))

    async def add_assistant(
        self,
        session: SessionInfo,
        parent: str,
        **given: Any,  # noqa: ANN401 - as above
    ) -> AnyMessage:
        """A new stored assistant message that still runs."""
        return await self.write(put_message, self.assistant(session, parent, **given))

    def text(self, message: AnyMessage, text: str = "words", **given: Any) -> TextPart:  # noqa: ANN401
        """A text part that is not stored yet."""
        id = given.pop("id", None) or self.ids.part()
        return TextPart(
            id=id, sessionID=message.sessionID, messageID=message.id, text=text, **given
        )

    def running_text(self, message: AnyMessage, text: str = "words") -> TextPart:
        """A text part that the model is still writing."""
        return self.text(message, text, time=PartTime(start=self.clock.now()))

    def finish(self, message: AnyMessage, cost: float, **tokens: int) -> StepFinishPart:
        """A step-finish part that is not stored yet."""
        counts = defaultdict(int, tokens)
        count = TokenCount(
            input=counts["input"],
            output=counts["output"],
            reasoning=counts["reasoning"],
            cache=CacheCount(read=counts["read"], write=counts["write"]),
        )
        return StepFinishPart(
            id=self.ids.part(),
            sessionID=message.sessionID,
            messageID=message.id,
            reason="stop",
            cost=cost,
            tokens=count,
        )

    async def put(self, part: Part) -> None:
        """Store a part."""
        await self.write(put_part, part, now=self.clock.now())

    async def add_text(self, message: AnyMessage, text: str = "words", **given: Any) -> TextPart:  # noqa: ANN401
        """A new stored text part."""
        part = self.text(message, text, **given)
        await self.put(part)
        return part

    async def fork(self, origin: SessionInfo, message: str | None = None) -> SessionInfo:
        """A fork of a session, of all of it or of what is before a message."""
        info = self.session(fork=ForkOrigin(sessionID=origin.id, messageID=message))
        return await self.bulk(fork_session, info, self.ids, now=self.clock.now())

    async def acquire(
        self, session: SessionInfo, owner: str = "owner", *, alive: bool = True, ttl: int = 60_000
    ) -> Fence:
        """The lease of a session; `alive` is the answer to whether its owner lives."""

        def script() -> Script[Fence]:
            info = (yield from lock_session(session.id)).info
            fence = yield from acquire_lease(
                info, owner, ttl=ttl, is_alive=lambda owner, late: alive
            )
            yield status_event(info, Busy())
            return fence

        return await self.store.write(script)

    async def events(self, after: int = 0) -> list[StoredEvent]:
        """The whole log after a sequence number."""
        found: list[StoredEvent] = []
        while page := await self.read(events_after, found[-1].seq if found else after):
            found += page
        return found

    async def messages(self, session: SessionInfo) -> list[tuple[AnyMessage, list[Part]]]:
        """All messages with their parts, oldest first."""
        return await self.store.scan(lambda: _all_messages(session.id))


def _all_messages(session_id: str) -> Script[list[tuple[AnyMessage, list[Part]]]]:
    found = yield from rows("message_page_forth", session_id=session_id, pos=-1, limit=2**31)
    texts = []
    for each in found:
        texts.append((yield from get_message(session_id, each[0])).decoded())
    return [(each.info, each.parts) for each in texts]


def changed(value: V, **fields: object) -> V:
    """The value with some fields replaced."""
    return msgspec.structs.replace(value, **fields)


@asynccontextmanager
async def opened(database: Database) -> AsyncIterator[Scene]:
    """The database, open once more."""
    store = await database.open()
    try:
        yield Scene(store)
    finally:
        await store.close()


@contextmanager
def refused(error: type[Exception]) -> Iterator[None]:
    """Expect the block to raise `error`."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was expected, but nothing was raised")
