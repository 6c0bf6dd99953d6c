"""Who hears what under random interleavings: whatever the order, each reader's events are the
log."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kedge.engine.event_log import EventLog
from tests.engine.event_log_fake import MemoryStore, Reader, cycles, log_on

SESSIONS = ("ses_1", "ses_2", "ses_3")
DIRECTORIES = ("/a", "/b")


@dataclass
class Listener:
    """A reader that comes and goes, each time with the cursor it had."""

    after: int
    session: str | None
    directory: str | None
    readers: list[Reader] = field(default_factory=list)

    def due(self, store: MemoryStore) -> list[int]:
        """What it must have got in all."""
        return [
            event.seq
            for event in store.events
            if event.seq > self.after
            and self.session in (None, event.session_id)
            and self.directory in (None, event.directory)
        ]

    def got(self) -> list[int]:
        """What it got in all."""
        return [seq for reader in self.readers for seq in reader.seqs]

    async def leave(self) -> str:
        """Stop in the middle of whatever is going on; tells where to go on."""
        reader = self.readers[-1]
        await reader.stop()
        reader.subscription.end()
        # What was taken but not kept, because the reader was stopped while it held it, comes again.
        return reader.place

    async def enter(self, log: EventLog, cursor: str) -> None:
        """Go on from a cursor."""
        events = log.subscribe(after=cursor, session=self.session, directory=self.directory)
        self.readers.append(Reader(await events.__aenter__()))


class World:
    """A log with writers here and elsewhere and listeners that come and go, all at random."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.store = MemoryStore()
        self.store.before = self.store.after = lambda: cycles(random.randrange(4))
        self.log = log_on(self.store, queue_length=random.choice((0, 2, 1024)))
        self.listeners: list[Listener] = []

    async def write_here(self) -> None:
        """A transaction of this process, told of at once or later, maybe after a younger one."""
        added = self.store.commit(*self._some())
        _later(self.random.choice((0, 0, 1, 5)), self.store.announce, added)

    async def write_elsewhere(self) -> None:
        """A transaction of another process."""
        self.store.commit(*self._some())
        _later(self.random.randrange(6), self.store.tell)

    async def arrive(self) -> None:
        """Somebody new listens, from some place on."""
        after = self.random.randint(0, len(self.store.events))
        session = self.random.choice((None, None, *SESSIONS))
        directory = self.random.choice((None, None, *DIRECTORIES))
        listener = Listener(after, session, directory)
        self.listeners.append(listener)
        await listener.enter(self.log, self.log.cursor_at(after))

    async def resume(self) -> None:
        """Somebody drops the connection and comes back."""
        if self.listeners:
            listener = self.random.choice(self.listeners)
            cursor = await listener.leave()
            await cycles(self.random.randrange(5))
            await listener.enter(self.log, cursor)

    async def hesitate(self) -> None:
        """Somebody is too busy to read, or is no longer."""
        if self.listeners:
            may_read = self.random.choice(self.listeners).readers[-1].may_read
            (may_read.clear if may_read.is_set() else may_read.set)()

    async def wait(self) -> None:
        """Time passes."""
        await cycles(self.random.randrange(8))

    async def finish(self) -> None:
        """Everybody reads to the end."""
        for listener in self.listeners:
            listener.readers[-1].may_read.set()
        await cycles(20)
        self.store.commit(1, *self._home())
        self.store.tell()
        for listener in self.listeners:
            due = listener.due(self.store)
            reader = listener.readers[-1]
            if due[-1:] != listener.got()[-1:]:
                await reader.until(due[-1])
            await cycles(20)
            assert listener.got() == due
            await listener.leave()

    def _home(self) -> tuple[str, str]:
        return self.random.choice(SESSIONS), self.random.choice(DIRECTORIES)

    def _some(self) -> tuple[int, str, str]:
        return self.random.choice((1, 1, 2, 300)), *self._home()


def _later(count: int, call: Callable[..., None], *arguments: object) -> None:
    if count:
        asyncio.get_running_loop().call_soon(_later, count - 1, call, *arguments)
    else:
        call(*arguments)


ACTIONS: dict[str, Callable[[World], Awaitable[None]]] = {
    each.__name__: each
    for each in (
        World.write_here,
        World.write_elsewhere,
        World.arrive,
        World.resume,
        World.hesitate,
        World.wait,
    )
}


@given(
    actions=st.lists(st.sampled_from(sorted(ACTIONS)), max_size=40),
    seed=st.integers(0, 2**32),
)
def test_every_reader_gets_the_log(actions: list[str], seed: int) -> None:
    """Whoever writes, subscribes, stalls and comes back whenever: nothing is lost, doubled or
    moved."""

    async def play() -> None:
        world = World(Random(seed))
        for action in actions:
            await ACTIONS[action](world)
        await world.finish()
        await world.log.close()

    asyncio.run(play())
