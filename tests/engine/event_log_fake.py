"""An event log in memory for tests of who hears what and when; it keeps nothing but events.

Every look at it takes as long as the test wants; others' commits are heard of when it says.
"""

import asyncio
from collections.abc import Awaitable, Callable

from kedge.domain.errors import EngineClosed, StoreError
from kedge.domain.events import SessionIdle, frame
from kedge.domain.ids import IdMaker
from kedge.engine.event_log import Event, EventLog, Subscription
from kedge.store.port import OnCommit, OnForeignCommit, StoredEvent
from kedge.store.transaction import Batch, Query, Row, Rows, ScriptMaker, T, drive
from tests.support.timeouts import PATIENCE

EPOCH = "0123456789abcdef"


async def at_once() -> None:
    """A look that takes no time."""


class MemoryStore:
    """As much of a `Store` as the event log uses."""

    epoch = EPOCH
    location = "memory"
    available_since = 0.0

    def __init__(self) -> None:
        self.events: list[StoredEvent] = []
        self.before: Callable[[], Awaitable[None]] = at_once
        """What happens between the call and the look."""
        self.after: Callable[[], Awaitable[None]] = at_once
        """What happens between the look and the answer."""
        self.failure: StoreError | None = None
        self.watchers = 0
        self.closed = False
        self._on_commit: OnCommit = lambda events: None
        self._on_foreign_commit: OnForeignCommit = lambda: None

    async def read(self, script: ScriptMaker[T], /) -> T:
        await self.before()
        if self.closed:
            raise EngineClosed
        if self.failure is not None:
            raise self.failure
        result, _ = drive(script(), self._execute)
        await self.after()
        return result

    scan = write = write_bulk = write_durable = read

    def check(self) -> None:
        return

    def run_blocking(self, script: ScriptMaker[T], /) -> T:
        return drive(script(), self._execute)[0]

    def follow(self, on_commit: OnCommit, on_foreign_commit: OnForeignCommit, /) -> None:
        self._on_commit, self._on_foreign_commit = on_commit, on_foreign_commit

    def watch(self) -> None:
        self.watchers += 1
        if self.watchers == 1:
            # As the adapters do: nobody knows what was committed before.
            asyncio.get_running_loop().call_soon(self.tell)

    def unwatch(self) -> None:
        self.watchers -= 1
        assert self.watchers >= 0

    async def close(self) -> None:
        self.closed = True

    def commit(
        self, count: int = 1, session: str = "ses_1", directory: str = "/a", text: str = ""
    ) -> list[StoredEvent]:
        """Store events of which nobody was told yet."""
        first = len(self.events) + 1
        payload = frame(f"evt_{text}", SessionIdle(sessionID=session))
        added = [
            StoredEvent(seq, SessionIdle.type, session, "p", directory, payload)
            for seq in range(first, first + count)
        ]
        self.events += added
        return added

    def commit_here(self, count: int = 1, session: str = "ses_1", directory: str = "/a") -> None:
        """A transaction of this process."""
        self._on_commit(self.commit(count, session, directory))

    def announce(self, events: list[StoredEvent]) -> None:
        """Tell of a transaction of this process that is already stored."""
        self._on_commit(events)

    def tell(self) -> None:
        """Tell of transactions of others, if anybody wants to know."""
        if self.watchers:
            self._on_foreign_commit()

    def _execute(self, step: Query | Batch) -> Rows:
        assert isinstance(step, Query)
        if step.name == "event_head":
            return [(len(self.events),)]
        args = step.args
        limit = args["limit"]
        assert isinstance(limit, int)
        return [_row(each) for each in self.events if _matches(each, args)][:limit]


def _matches(event: StoredEvent, args: object) -> bool:
    assert isinstance(args, dict)
    return (
        event.seq > args["seq"]
        and event.seq <= args.get("until", event.seq)
        and args.get("session_id") in (None, event.session_id)
        and args.get("directory") in (None, event.directory)
    )


def _row(event: StoredEvent) -> Row:
    home = (event.session_id, event.project_id, event.directory)
    return (event.seq, event.type, *home, event.payload)


def log_on(store: MemoryStore, queue_length: int = 1024) -> EventLog:
    """An event log over a store in memory."""
    return EventLog(store, IdMaker(), queue_length)


class Reader:
    """A task that reads a subscription and keeps what it got."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.got: list[Event] = []
        self.place = subscription.cursor
        """Where to go on after what was kept."""
        self.may_read = asyncio.Event()
        self.may_read.set()
        self._more = asyncio.Condition()
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self.subscription:
            await self.may_read.wait()
            async with self._more:
                self.got.append(event)
                self.place = event.cursor or self.place
                self._more.notify_all()

    @property
    def seqs(self) -> list[int]:
        """The numbers of the stored events, in the order they came."""
        return [event.seq for event in self.got if event.seq]

    @property
    def ended(self) -> bool:
        """Whether the subscription came to its end."""
        return self._task.done()

    async def until(self, seq: int) -> None:
        """Wait until the event with this number has come."""
        await self.meeting(lambda: bool(self.seqs) and self.seqs[-1] >= seq)

    async def until_type(self, type: str) -> None:
        """Wait until the newest event is of a type."""
        await self.meeting(lambda: bool(self.got) and self.got[-1].type == type)

    async def meeting(self, condition: Callable[[], bool]) -> None:
        """Wait until what came meets a condition."""
        async with asyncio.timeout(PATIENCE), self._more:
            await self._more.wait_for(condition)

    async def stop(self) -> None:
        """Stop reading; an error that reading met is raised here."""
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()

    async def finish(self) -> None:
        """Wait for the end of the subscription."""
        async with asyncio.timeout(PATIENCE):
            await self._task


async def cycles(count: int) -> None:
    """Let everything that can go on do so, that many times."""
    for _ in range(count):
        await asyncio.sleep(0)
