"""The event log of one process over a log in memory: every order of events is forced, none
awaited."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from kedge.domain.errors import EngineClosed, InvalidCursor, InvalidInput, StoreUnavailable
from kedge.domain.events import ServerHeartbeat, ServerResync
from kedge.engine.event_log import Event, EventLog, Subscription
from tests.engine.event_log_fake import EPOCH, MemoryStore, Reader, at_once, cycles, log_on
from tests.support.timeouts import PATIENCE

QUIET = 50
"""Turns of the event loop after which nothing more can happen by itself."""


async def take(subscription: Subscription, count: int) -> list[Event]:
    """The next events, which must come."""
    async with asyncio.timeout(PATIENCE):
        return [await anext(subscription) for _ in range(count)]


def seqs(events: list[Event]) -> list[int]:
    """The numbers of events."""
    return [event.seq for event in events]


def resync_of(event: Event) -> ServerResync:
    """The resync marker that an event is."""
    properties = event.properties
    assert isinstance(properties, ServerResync)
    return properties


async def test_stored_events_come_first_and_new_ones_after() -> None:
    """A subscription from the start replays the log and goes on with what is committed later."""
    store = MemoryStore()
    log = log_on(store)
    store.commit(300)
    async with log.subscribe(after=log.start) as events:
        replayed = await take(events, 300)
        store.commit_here(2)
        live = await take(events, 2)
    assert seqs(replayed + live) == list(range(1, 303))
    assert [event.cursor for event in live] == [f"{EPOCH}-301", f"{EPOCH}-302"]


async def test_without_a_cursor_only_news_come() -> None:
    """A subscription without a cursor begins with the first event after it was entered."""
    store = MemoryStore()
    log = log_on(store)
    store.commit(5)
    async with log.subscribe() as events:
        assert events.cursor == f"{EPOCH}-5"
        store.commit_here()
        assert seqs(await take(events, 1)) == [6]


async def test_without_a_cursor_what_is_told_and_not_stored_is_heard_at_once() -> None:
    """Whoever has entered lives, even if something was stored meanwhile."""
    store = MemoryStore()
    log = log_on(store)

    async def commit_once() -> None:
        store.after = at_once
        store.commit_here()

    store.after = commit_once
    async with log.subscribe() as events:
        log.announce(ServerHeartbeat())
        (heard,) = await take(events, 1)
        assert heard.type == ServerHeartbeat.type


async def test_an_entry_that_fails_leaves_nothing_behind() -> None:
    """The log forgets a subscription whose first look failed."""
    store = MemoryStore()
    log = log_on(store)
    store.failure = StoreUnavailable("gone")
    with pytest.raises(StoreUnavailable):
        async with log.subscribe():
            pass
    assert log._open == {}


async def test_without_a_cursor_nothing_old_comes_although_others_have_yet_to_hear_it() -> None:
    """What another process committed before a subscription is no news to it, though to an older
    one."""
    store = MemoryStore()
    log = log_on(store)
    async with log.subscribe() as old:
        await cycles(QUIET)
        store.commit(3)
        async with log.subscribe() as new:
            store.tell()
            store.commit_here()
            assert seqs(await take(old, 4)) == [1, 2, 3, 4]
            assert seqs(await take(new, 1)) == [4]


async def test_a_session_and_a_directory_can_be_chosen() -> None:
    """A filtered subscription gets its own events only, stored and live, and its cursor passes the
    rest."""
    store = MemoryStore()
    log = log_on(store)
    for _ in range(2):
        store.commit(300, session="ses_1", directory="/a")
        store.commit(1, session="ses_2", directory="/b")
    session = log.subscribe(after=log.start, session="ses_2")
    directory = log.subscribe(after=log.start, directory="/b")
    both = log.subscribe(after=log.start, session="ses_1", directory="/b")
    async with session, directory, both:
        readers = [Reader(each) for each in (session, directory, both)]
        await cycles(QUIET)
        store.commit_here(session="ses_2", directory="/b")
        store.commit_here(session="ses_1", directory="/a")
        await cycles(QUIET)
        assert [reader.seqs for reader in readers] == [[301, 602, 603], [301, 602, 603], []]
        assert [each.cursor for each in (session, directory, both)] == [f"{EPOCH}-604"] * 3
        for reader in readers:
            await reader.stop()


@pytest.mark.parametrize(
    "cursor",
    ["", "1", "x-1", f"{EPOCH}-", f"{EPOCH}--1", f"{EPOCH}-01", f"{EPOCH}-{2**63}", f"{EPOCH}-1\n"],
)
def test_a_malformed_cursor_is_refused(cursor: str) -> None:
    """A cursor that kedge cannot have made is a typed error before anything is read."""
    with pytest.raises(InvalidCursor):
        log_on(MemoryStore()).subscribe(after=cursor)


@pytest.mark.parametrize(
    ("cursor", "reason"), [("fedcba9876543210-1", "foreign"), (f"{EPOCH}-4", "future")]
)
async def test_a_cursor_of_no_use_gives_a_resync(cursor: str, reason: str) -> None:
    """A cursor of another database or above the head is answered with a place to go on from."""
    store = MemoryStore()
    log = log_on(store)
    store.commit(3)
    async with log.subscribe(after=cursor) as events:
        (first,) = await take(events, 1)
        resync = resync_of(first)
        assert (resync.reason, resync.cursor, first.cursor) == (reason, f"{EPOCH}-3", f"{EPOCH}-3")
        store.commit(1)
        assert seqs(await take(events, 1)) == [4]


async def test_a_slow_subscriber_is_sent_back_and_gets_everything() -> None:
    """When its queue is full a subscriber gets a marker with its own place, then all it missed."""
    store = MemoryStore()
    log = log_on(store, queue_length=4)
    async with log.subscribe() as events:
        store.commit_here(2)
        assert seqs(await take(events, 1)) == [1]
        for _ in range(50):
            store.commit_here()
        (first,) = await take(events, 1)
        resync = resync_of(first)
        assert (resync.reason, resync.cursor) == ("slow", f"{EPOCH}-1")
        assert seqs(await take(events, 51)) == list(range(2, 53))
        store.commit_here()
        assert seqs(await take(events, 1)) == [53]


async def test_a_slow_subscriber_of_one_session_keeps_what_it_passed() -> None:
    """The marker names the place up to which nothing is missing, events of others included."""
    store = MemoryStore()
    log = log_on(store, queue_length=1)
    async with log.subscribe(session="ses_2") as events:
        store.commit_here(7, session="ses_1")
        store.commit_here(3, session="ses_2")
        (first,) = await take(events, 1)
        assert resync_of(first).cursor == f"{EPOCH}-7"
        assert seqs(await take(events, 3)) == [8, 9, 10]


@pytest.mark.parametrize("length", [0, 1, 7])
async def test_what_waits_for_a_subscriber_is_bounded(length: int) -> None:
    """However much is committed, no more than the queue's length waits for somebody who does not
    read."""
    store = MemoryStore()
    log = log_on(store, queue_length=length)
    async with log.subscribe() as events:
        for _ in range(1000):
            store.commit_here()
            log.announce(ServerHeartbeat())
            assert len(events._queue) <= max(length, 1)
        assert not log._live, "somebody who was sent back must not be told more"


async def test_large_events_are_bounded_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few large events fill a queue as many small ones do, but one alone always gets through."""
    monkeypatch.setattr("kedge.engine.event_log._QUEUE_CHARACTERS", 100)
    store = MemoryStore()
    log = log_on(store)
    async with log.subscribe() as events:
        store.announce(store.commit(text="x" * 1000))
        assert seqs(await take(events, 1)) == [1], "larger than the bound, and alone"
        store.announce(store.commit(text="x" * 1000))
        store.announce(store.commit())
        assert resync_of((await take(events, 1))[0]).reason == "slow"
        assert seqs(await take(events, 2)) == [2, 3]


async def test_news_that_are_not_stored_pass_without_a_cursor() -> None:
    """Ephemeral events reach those who listen, have no cursor, and do not move the reader's
    place."""
    store = MemoryStore()
    log = log_on(store)
    async with log.subscribe() as everything, log.subscribe(session="ses_1") as chosen:
        store.commit_here()
        log.announce(ServerHeartbeat(), session_id="ses_1", offset=5)
        log.announce(ServerHeartbeat(), session_id="ses_2")
        got = await take(everything, 3)
        assert [(event.cursor is None, event.offset) for event in got] == [
            (False, None),
            (True, 5),
            (True, None),
        ]
        assert everything.cursor == f"{EPOCH}-1"
        assert [event.offset for event in await take(chosen, 2)] == [None, 5]


async def test_everybody_hears_in_the_same_order() -> None:
    """Stored and ephemeral events reach all subscribers in the order in which they happened."""
    store = MemoryStore()
    log = log_on(store)
    async with log.subscribe() as one, log.subscribe() as two:
        for _ in range(3):
            store.commit_here()
            log.announce(ServerHeartbeat())
        first, second = await take(one, 6), await take(two, 6)
    assert first == second
    assert seqs(first) == [1, 0, 2, 0, 3, 0]


async def test_an_event_is_encoded_once_for_all() -> None:
    """All subscribers get the very same payload."""
    store = MemoryStore()
    log = log_on(store)
    async with log.subscribe() as one, log.subscribe() as two:
        store.commit_here()
        (first,), (second,) = await take(one, 1), await take(two, 1)
    assert first.payload is second.payload


async def test_closing_the_log_ends_every_subscription() -> None:
    """After a close, subscribers get what waits for them and then the end, live or still
    replaying."""
    store = MemoryStore()
    log = log_on(store)
    store.commit(300)
    live, replaying, waiting = log.subscribe(), log.subscribe(after=log.start), log.subscribe()
    async with live, replaying, waiting:
        reader = Reader(waiting)
        await cycles(QUIET)
        assert seqs(await take(replaying, 1)) == [1]
        store.commit_here()
        await log.close()
        await store.close()
        assert [event.seq async for event in live] == [301]
        assert [event.seq async for event in replaying] == list(range(2, 257))
        await reader.finish()
        assert reader.seqs == [301]
    assert store.watchers == 0
    with pytest.raises(EngineClosed):
        log.subscribe()


async def test_closing_the_log_while_a_page_is_read_ends_the_subscription() -> None:
    """A subscription that is about to go live when the log is closed ends instead of waiting for
    ever."""
    store = MemoryStore()
    log = log_on(store)
    gate = asyncio.Event()
    async with log.subscribe(after=log.start) as events:
        store.after = _opened(gate)
        reader = Reader(events)
        await cycles(QUIET)
        await log.close()
        gate.set()
        await reader.finish()
    assert store.watchers == 0


async def test_two_tasks_cannot_read_one_subscription() -> None:
    """A second reader is refused while the first waits, whether for news or for the log."""
    store = MemoryStore()
    log = log_on(store)
    store.commit(3)
    async with log.subscribe(after=log.start) as events:
        gate = asyncio.Event()
        store.before = _opened(gate)
        reader = Reader(events)
        await cycles(QUIET)
        with pytest.raises(InvalidInput, match="only one task"):
            await anext(events)
        gate.set()
        await reader.until(3)
        await cycles(QUIET)
        with pytest.raises(InvalidInput, match="only one task"):
            await anext(events)
        await reader.stop()
        assert reader.seqs == [1, 2, 3]
        store.commit_here()
        assert seqs(await take(events, 1)) == [4], "another task may go on when the first gave up"


async def test_a_reader_that_gives_up_loses_nothing() -> None:
    """Cancelling a read at any moment leaves the event for the next read."""
    store = MemoryStore()
    log = log_on(store)
    got: list[int] = []
    async with log.subscribe(after=log.start) as events:
        for seq, patience in enumerate(range(40), start=1):
            store.commit(1)
            store.before = store.after = lambda: cycles(2)
            reading = asyncio.ensure_future(anext(events))
            await cycles(patience % 10)
            reading.cancel()
            await asyncio.wait({reading})
            if not reading.cancelled():
                got.append(reading.result().seq)
            store.tell()
            got += seqs(await take(events, seq - len(got)))
    assert got == list(range(1, 41))


async def test_a_subscription_is_entered_once_and_before_it_is_read() -> None:
    """Reading without entering, or entering twice, is a mistake that is named."""
    store = MemoryStore()
    log = log_on(store)
    events = log.subscribe()
    with pytest.raises(InvalidInput, match="async with"):
        await anext(events)
    async with events:
        with pytest.raises(InvalidInput, match="only once"):
            await events.__aenter__()
    assert store.watchers == 0


def _opened(gate: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def wait() -> None:
        await gate.wait()

    return wait


class Commits:
    """The ways in which an event can get into the log."""

    @staticmethod
    def here(store: MemoryStore) -> None:
        """By this process, told of at once."""
        store.commit_here()

    @staticmethod
    def elsewhere(store: MemoryStore) -> None:
        """By another process, told of at once."""
        store.commit()
        store.tell()

    @staticmethod
    def here_late(store: MemoryStore) -> None:
        """By this process, told of a few turns of the loop later."""
        _after_cycles(3, store.announce, store.commit())

    @staticmethod
    def elsewhere_late(store: MemoryStore) -> None:
        """By another process, told of later."""
        store.commit()
        _after_cycles(5, store.tell)


def _after_cycles(count: int, call: Callable[..., None], *arguments: object) -> None:
    loop = asyncio.get_running_loop()
    if count:
        loop.call_soon(_after_cycles, count - 1, call, *arguments)
    else:
        call(*arguments)


every_commit = pytest.mark.parametrize(
    "commit", [Commits.here, Commits.elsewhere, Commits.here_late, Commits.elsewhere_late]
)


@every_commit
@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("chosen", [None, "ses_1"])
async def test_a_commit_between_the_last_page_and_going_live_is_heard_once(
    commit: Callable[[MemoryStore], None], others: int, chosen: str | None
) -> None:
    """An event that lands after a subscriber's last look and before it lives comes, and comes
    once."""
    store = MemoryStore()
    log = log_on(store)
    store.commit(3)
    already = [log.subscribe() for _ in range(others)]
    for each in already:
        await each.__aenter__()
    async with log.subscribe(after=log.start, session=chosen) as events:
        await take(events, 3)
        looks = 0

        async def commit_after_look() -> None:
            nonlocal looks
            looks += 1
            if looks <= 3:
                commit(store)

        store.after = commit_after_look
        reader = Reader(events)
        await cycles(QUIET)
        commit(store)
        await cycles(QUIET)
        assert reader.seqs == list(range(4, len(store.events) + 1))
        for each in already:
            assert seqs(await take(each, len(store.events) - 3)) == reader.seqs
        await reader.stop()
    for each in already:
        each.end()


@every_commit
async def test_who_reads_ahead_takes_nothing_from_others(
    commit: Callable[[MemoryStore], None],
) -> None:
    """A subscriber that finds an event in the log first does not hide it from those who live."""
    store = MemoryStore()
    log = log_on(store)
    async with log.subscribe() as first:
        await cycles(QUIET)
        store.commit(2)
        async with log.subscribe(after=log.start) as second:
            ahead = Reader(second)
            await ahead.until(2)
            await cycles(QUIET)
            commit(store)
            assert seqs(await take(first, 3)) == [1, 2, 3]
            await ahead.until(3)
            await ahead.stop()
            assert ahead.seqs == [1, 2, 3]


@every_commit
async def test_subscribers_that_enter_together_hear_the_same(
    commit: Callable[[MemoryStore], None],
) -> None:
    """Commits while several subscribers are on their way in reach each of them once."""
    store = MemoryStore()
    log = log_on(store)
    store.before = store.after = lambda: cycles(2)

    async def enter(delay: int) -> Subscription:
        await cycles(delay)
        return await log.subscribe(after=log.start).__aenter__()

    entering = [asyncio.create_task(enter(delay)) for delay in range(6)]
    for _ in range(6):
        commit(store)
        await cycles(1)
    entered = [await each for each in entering]
    commit(store)
    for each in entered:
        assert seqs(await take(each, 7)) == list(range(1, 8))
        each.end()


async def test_news_that_come_as_reading_ends_are_not_forgotten() -> None:
    """A commit that is told of at the very end of a look at the log is looked for again."""
    store = MemoryStore()
    log = log_on(store)
    async with log.subscribe() as events:
        await cycles(QUIET)
        told = 0

        async def tell_when_nothing_was_found() -> None:
            nonlocal told
            told += 1
            if told == 1:
                store.commit()
                # Runs after the look has ended and before anybody was told that it has.
                asyncio.get_running_loop().call_soon(store.tell)

        store.after = tell_when_nothing_was_found
        store.tell()
        assert seqs(await take(events, 1)) == [1]


async def test_commits_told_of_out_of_order_are_put_in_order() -> None:
    """Two transactions of this process that are told of the wrong way round come in log order."""
    store = MemoryStore()
    log = log_on(store)
    async with log.subscribe() as events:
        await cycles(QUIET)
        first, second = store.commit(2), store.commit(1)
        store.announce(second)
        store.announce(first)
        store.announce(second)
        assert seqs(await take(events, 3)) == [1, 2, 3]
        await cycles(QUIET)
        assert not events._queue


async def test_a_log_that_cannot_be_read_is_read_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When reading the log for those who live fails, it is tried again without another commit."""
    monkeypatch.setattr("kedge.engine.event_log._PAUSE", 0)
    store = MemoryStore()
    log = log_on(store)
    async with log.subscribe() as events:
        await cycles(QUIET)
        store.commit()
        store.failure = StoreUnavailable("gone")
        with caplog.at_level(logging.WARNING):
            store.tell()
            await cycles(QUIET)
        store.failure = None
        assert seqs(await take(events, 1)) == [1]
    assert "trying again: gone" in caplog.text


async def test_a_replay_that_fails_can_be_gone_on_with() -> None:
    """An error of the store reaches the one who reads, and its subscription stays where it was."""
    store = MemoryStore()
    log = log_on(store)
    store.commit(2)
    async with log.subscribe(after=log.start) as events:
        store.failure = StoreUnavailable("gone")
        with pytest.raises(StoreUnavailable):
            await anext(events)
        store.failure = None
        assert seqs(await take(events, 2)) == [1, 2]


async def test_nobody_is_watched_for_when_nobody_listens() -> None:
    """Other processes are looked for only while somebody lives."""
    store = MemoryStore()
    log: EventLog = log_on(store)
    async with log.subscribe() as one, log.subscribe():
        assert store.watchers == 2
        one.end()
        one.end()
        assert store.watchers == 1
    assert store.watchers == 0
