"""Checks of several stores on one database: nothing is lost, nothing is seen out of order."""

import asyncio
import functools
import threading
from collections.abc import Sequence

from kedge.domain.errors import EngineClosed, InvalidInput
from kedge.domain.sessions import SessionInfo
from kedge.store.port import StoredEvent
from kedge.store.queries.event_log import events_after, log_head
from kedge.store.queries.messages import put_message
from kedge.store.queries.parts import put_part
from kedge.store.queries.sessions import change_session, create_session, get_session
from kedge.store.transaction import Script, row, run
from kedge.testing.replay import both
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, WORKTREE, Scene, changed, opened, refused

_ROUNDS = 40


async def two_processes_write_one_session(database: Database) -> None:
    """Every message of both gets a position of its own, times rise, and the log matches the
    tables."""
    async with opened(database) as one, opened(database) as two:
        info = await one.add_session()

        async def work(scene: Scene) -> None:
            for _ in range(_ROUNDS):
                await scene.add_text(await scene.add_user(info))

        await asyncio.gather(work(one), work(two))
        messages = await one.messages(info)
        times = [message.time.created for message, _ in messages]
        assert len(messages) == 2 * _ROUNDS
        assert times == sorted(set(times))
        assert all(len(parts) == 1 for _, parts in messages)
        replayed, stored = await both(two.store)
        assert replayed == stored


async def changes_of_one_session_are_not_lost(database: Database) -> None:
    """Read, change and write is one step, however many processes do it at once."""
    async with opened(database) as one, opened(database) as two:
        info = await one.add_session(metadata={"n": 0})

        def count(old: SessionInfo) -> SessionInfo:
            return changed(old, metadata={"n": (old.metadata or {})["n"] + 1})

        async def work(scene: Scene) -> None:
            for _ in range(_ROUNDS):
                await scene.write(change_session, info.id, count)

        await asyncio.gather(work(one), work(one), work(two), work(two))
        assert (await two.read(get_session, info.id)).metadata == {"n": 4 * _ROUNDS}


async def a_reader_never_misses_an_event(database: Database) -> None:
    """Once it saw a number, nothing at or below it appears later."""
    async with opened(database) as one, opened(database) as two, opened(database) as reader:
        done = asyncio.Event()

        async def work(scene: Scene) -> None:
            for n in range(_ROUNDS):
                info = scene.session()
                write = scene.store.write_bulk if n % 4 == 0 else scene.store.write
                await write(functools.partial(create_session, info, WORKTREE))

        async def read() -> list[int]:
            seen = [0]
            while True:
                last_round = done.is_set()
                while page := await reader.read(events_after, seen[-1], 7):
                    seen += [each.seq for each in page]
                if last_round:
                    return seen[1:]
                await asyncio.sleep(0)

        async def write() -> None:
            await asyncio.gather(work(one), work(one), work(two))
            done.set()

        seen, _ = await asyncio.gather(read(), write())
        assert seen == [each.seq for each in await one.events()]
        assert len(seen) == 3 * _ROUNDS


async def own_commits_are_told_in_order(database: Database) -> None:
    """`follow` gets every event of this process once, in the order of the log."""
    async with opened(database) as scene, opened(database) as other:
        heard: list[StoredEvent] = []
        scene.store.follow(heard.extend, lambda: None)
        info = await scene.add_session()
        store = scene.store

        async def work(n: int) -> None:
            write = (store.write, store.write_bulk, store.write_durable)[n % 3]
            message = scene.user(info)
            await write(lambda: put_message(message))

        await asyncio.gather(*(work(n) for n in range(_ROUNDS)))
        own = await scene.events()
        await other.add_session()
        assert heard == own


async def a_cancelled_write_is_all_or_nothing(database: Database) -> None:
    """After the caller gave up waiting: what was committed is announced, and the store still
    works."""
    async with opened(database) as scene:
        heard: list[StoredEvent] = []
        scene.store.follow(heard.extend, lambda: None)
        info = await scene.add_session()
        for write in (scene.store.write_bulk, scene.store.write_durable, scene.store.write):
            for pauses in range(4):
                message = scene.user(info)
                task = asyncio.ensure_future(write(functools.partial(put_message, message)))
                for _ in range(pauses):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await scene.store.write_bulk(lambda: put_message(scene.user(info)))
        assert heard == await scene.events()
        replayed, stored = await both(scene.store)
        assert replayed == stored


async def foreign_commits_are_noticed(database: Database) -> None:
    """A watching store is notified that another one has committed."""
    async with opened(database) as one, opened(database) as two:
        told = asyncio.Event()
        one.store.follow(lambda events: None, told.set)
        one.store.watch()
        one.store.watch()
        one.store.unwatch()
        try:
            info = await two.add_session()
            async with asyncio.timeout(30):
                while info.id not in [each.session_id for each in await one.events()]:
                    await told.wait()
                    told.clear()
                # The first call may be about what was there before the watch began.
                head = await one.read(log_head)
                told.clear()
                await two.add_user(info)
                while await one.read(log_head) == head or not told.is_set():
                    await told.wait()
        finally:
            one.store.unwatch()


async def a_scan_sees_one_moment(database: Database) -> None:
    """Commits of others during a long read are not in it."""
    async with opened(database) as one, opened(database) as two:
        await one.add_session()
        loop, begun, committed = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def script() -> Script[set[int]]:
            heads = {(yield from log_head())}
            loop.call_soon_threadsafe(begun.set)
            # Reads instead of a wait: some adapters drive scripts on the event loop.
            while not committed.is_set():
                heads.add((yield from log_head()))
            return heads | {(yield from log_head())}

        async def commit() -> None:
            await begun.wait()
            await two.add_session()
            committed.set()

        async with asyncio.timeout(30):
            heads, _ = await asyncio.gather(one.store.scan(script), commit())
        assert len(heads) == 1
        assert await one.read(log_head) > max(heads)


async def a_database_has_one_name(database: Database) -> None:
    """The epoch is the same for all stores on it, now and later; the location is for messages."""
    async with opened(database) as one, opened(database) as two:
        assert one.store.epoch == two.store.epoch
        epoch = one.store.epoch
        assert len(epoch) == 16
        assert set(epoch) <= set("0123456789abcdef")
        assert one.store.location
    async with opened(database) as three:
        assert three.store.epoch == epoch


async def a_closed_store_refuses(database: Database) -> None:
    """Closing twice is harmless; nothing that was stored is lost."""
    async with opened(database) as scene:
        info = await scene.add_session()
        await scene.store.close()
        await scene.store.close()
        for use in (scene.store.read, scene.store.scan, scene.store.write, scene.store.write_bulk):
            with refused(EngineClosed):
                await use(log_head)
    async with opened(database) as again:
        assert await again.read(get_session, info.id) == info


async def a_blocking_script_runs_beside_the_loop(database: Database) -> None:
    """`run_blocking` commits what it did, and nothing of a script that raises."""
    async with opened(database) as scene:
        info = await scene.add_session()

        def mark(fail: bool) -> Script[str]:
            yield from run("meta_set", key="conformance", value=str(fail))
            if fail:
                raise InvalidInput("stop")
            found = yield from row("meta_get", key="conformance")
            return str(found and found[0])

        assert await asyncio.to_thread(scene.store.run_blocking, lambda: mark(False)) == "False"
        with refused(InvalidInput):
            await asyncio.to_thread(scene.store.run_blocking, lambda: mark(True))
        assert await asyncio.to_thread(scene.store.run_blocking, lambda: mark(False)) == "False"
        assert await scene.read(get_session, info.id) == info


async def large_and_small_writes_mix(database: Database) -> None:
    """Parts of some MiB and small messages, written at once by two processes, are all there."""
    async with opened(database) as one, opened(database) as two:
        info = await one.add_session()
        message = await one.add_user(info)
        large = [one.text(message, str(n) * 2_000_000) for n in range(4)]

        async def bulk() -> None:
            for part in large:
                await one.bulk(put_part, part, now=START)

        async def small(scene: Scene) -> Sequence[object]:
            return [await scene.add_user(info) for _ in range(_ROUNDS)]

        await asyncio.gather(bulk(), small(one), small(two))
        messages = await two.messages(info)
        assert messages[0][1] == large
        assert len(messages) == 1 + 2 * _ROUNDS
