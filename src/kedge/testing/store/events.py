"""Checks of the event log: it has every change, in order, and matches the state tables."""

from kedge.domain.errors import InvalidInput
from kedge.domain.events import read_frame
from kedge.domain.ids import check_id
from kedge.domain.parts import PartTime, TextPart
from kedge.domain.sessions import SessionInfo
from kedge.store.queries.deletion import compact_session, purge_session
from kedge.store.queries.event_log import (
    directory_events_after,
    events_after,
    log_head,
    session_events_after,
)
from kedge.store.queries.leases import release_lease
from kedge.store.queries.messages import put_message, remove_message
from kedge.store.queries.parts import put_part, remove_part
from kedge.store.queries.projects import place_worktree
from kedge.store.queries.sessions import delete_session, restore_session
from kedge.store.queries.todos import put_todos
from kedge.store.transaction import Script
from kedge.testing.replay import both
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, Scene, changed, opened, refused
from kedge.testing.store.todos import todo


async def events_say_where_they_belong(database: Database) -> None:
    """Each has an id, a type, its session, project and directory, and rising numbers."""
    async with opened(database) as scene:
        assert await scene.read(log_head) == 0
        info = await scene.add_session(directory="/d", projectID="p")
        await scene.add_text(await scene.add_user(info))
        events = await scene.events()
        types = ["session.created", "message.updated", "message.part.updated"]
        assert [each.type for each in events] == types
        for each in events:
            assert (each.session_id, each.project_id, each.directory) == (info.id, "p", "/d")
            id, properties = read_frame(each.payload)
            assert check_id("evt", id)
            assert properties.type == each.type
        seqs = [each.seq for each in events]
        assert seqs == sorted(set(seqs))
        assert seqs[-1] == await scene.read(log_head)


async def the_log_is_read_in_pages_and_by_place(database: Database) -> None:
    """From any number on; of one session; of one directory up to a number."""
    async with opened(database) as scene:
        one = await scene.add_session(directory="/one")
        two = await scene.add_session(directory="/two")
        for _ in range(3):
            await scene.add_user(one)
            await scene.add_user(two)
        events = await scene.events()
        assert await scene.read(events_after, events[2].seq, 2) == events[3:5]
        own = [each for each in events if each.session_id == one.id]
        assert await scene.read(session_events_after, one.id, own[0].seq, 2) == own[1:3]
        until = own[2].seq
        found = await scene.read(directory_events_after, "/one", own[0].seq, until)
        assert found == own[1:3]


async def a_failing_script_leaves_nothing(database: Database) -> None:
    """Neither rows nor events, whichever way it was run, and the next write works."""
    async with opened(database) as scene:
        info = await scene.add_session()
        before, head = await both(scene.store), await scene.read(log_head)

        def failing() -> Script[None]:
            message = scene.user(info)
            yield from put_message(message)
            yield from put_part(scene.text(message), now=START)
            yield from put_todos(info.id, [todo("x")], now=START)
            raise InvalidInput("stop")

        for write in (scene.store.write, scene.store.write_bulk, scene.store.write_durable):
            with refused(InvalidInput):
                await write(failing)
        assert await both(scene.store) == before
        assert await scene.events(head) == []
        await scene.add_user(info)
        assert len(await scene.events(head)) == 1


async def a_script_sees_its_own_writes(database: Database) -> None:
    """One transaction may write a message and its parts, and all its events come in its order."""
    async with opened(database) as scene:
        info = await scene.add_session()
        head = await scene.read(log_head)
        message = scene.user(info)

        def turn() -> Script[None]:
            yield from put_message(message)
            yield from put_part(scene.text(message), now=START)
            yield from put_part(scene.finish(message, 1.5), now=START)
            yield from remove_message(info.id, message.id)

        await scene.store.write_durable(turn)
        assert [each.type for each in await scene.events(head)] == [
            "message.updated",
            "message.part.updated",
            "message.part.updated",
            "session.updated",
            "message.removed",
            "session.updated",
        ]
        await _replay_is_exact(scene)


async def replay_gives_the_state_tables(database: Database) -> None:
    """After everything that can happen to sessions, read from the beginning."""
    async with opened(database) as scene:
        await scene.write(place_worktree, "/w", "hash", "git", START)
        await _busy_life(scene)
        await _replay_is_exact(scene)


async def progress_events_are_replaced(database: Database) -> None:
    """Only the newest progress of a part is kept, and it has a new number."""
    async with opened(database) as scene:
        info = await scene.add_session()
        message = await scene.add_assistant(info, (await scene.add_user(info)).id)
        part = scene.running_text(message, "")
        await scene.put(part)
        other = await scene.add_text(message)
        head = await scene.read(log_head)
        seqs = [head]
        for text in ("a", "ab", "abc"):
            await _progress(scene, changed(part, text=text))
            [event] = await scene.events(head)
            assert f'"{text}"' in event.payload
            seqs.append(event.seq)
        assert seqs == sorted(set(seqs))
        await scene.put(changed(other, text="another part"))
        end = changed(part, text="abcd", time=PartTime(start=START, end=START + 1))
        await scene.write(put_part, end, now=START, after_progress=True)
        assert len(await scene.events(head)) == 2
        await _replay_is_exact(scene)


async def a_fork_of_a_running_part_replays(database: Database) -> None:
    """Also when the progress event that the fork was made from has been replaced since.

    A part is announced by an event that is not progress, which stays in the log.
    """
    async with opened(database) as scene:
        info = await scene.add_session()
        message = await scene.add_assistant(info, (await scene.add_user(info)).id)
        part = scene.running_text(message, "")
        await scene.put(part)
        await scene.add_text(message, "after it")
        await _progress(scene, changed(part, text="a"))
        await scene.fork(info)
        await _progress(scene, changed(part, text="ab"))
        await _replay_is_exact(scene)
        head = await scene.read(log_head)
        await scene.bulk(compact_session, info.id, head)
        await scene.fork(info)
        await _progress(scene, changed(part, text="abc"))
        await _replay_is_exact(scene)


async def compaction_keeps_the_replay(database: Database) -> None:
    """It drops events that later ones made redundant, once, and the rest still gives the state
    tables."""
    async with opened(database) as scene:
        dropped = 0
        for info in await _busy_life(scene):
            head = await scene.read(log_head)
            dropped += await scene.bulk(compact_session, info.id, head)
            await _replay_is_exact(scene)
            assert await scene.read(log_head) >= head
            assert await scene.bulk(compact_session, info.id, head) == 0
            await _replay_is_exact(scene)
        assert dropped > 0


async def compaction_spares_what_is_newer(database: Database) -> None:
    """Events above the given number stay, as does the newest of each entity below it."""
    async with opened(database) as scene:
        info = await scene.add_session()
        message = await scene.add_user(info)
        part = await scene.add_text(message, "0")
        for n in range(1, 4):
            await scene.put(changed(part, text=str(n)))
        events = await scene.events()
        assert await scene.write(compact_session, info.id, events[4].seq) == 2
        assert await scene.events() == [*events[:2], events[4], events[5]]


async def a_message_written_again_replays_without_its_old_parts(database: Database) -> None:
    """Also after compaction, in a fork as in an original."""
    async with opened(database) as scene:
        info = await scene.add_session()
        message = await scene.add_user(info)
        await scene.add_text(message)
        fork = await scene.fork(info)
        for each in (info, fork):
            [(old, _)] = await scene.messages(each)
            await scene.write(remove_message, each.id, old.id)
            await scene.add_user(each, id=old.id)
        await _replay_is_exact(scene)
        for each in (fork, info):
            head = await scene.read(log_head)
            await scene.bulk(compact_session, each.id, head)
            await _replay_is_exact(scene)


async def compaction_of_an_origin_keeps_its_forks(database: Database) -> None:
    """Live and deleted ones, forks of forks, with their todos, changes and removals."""
    async with opened(database) as scene:
        info = await scene.add_session()
        message = await scene.add_user(info)
        part = await scene.add_text(message)
        await scene.write(put_todos, info.id, [todo("kept")], now=START)
        live, gone = await scene.fork(info), await scene.fork(info)
        below = await scene.fork(live)
        empty = await scene.fork(info, message.id)
        await scene.put(changed(part, text="later"))
        [(copied, [_])] = await scene.messages(live)
        await scene.write(remove_message, live.id, copied.id)
        for each in (gone, empty):
            await scene.write(delete_session, each.id, START)
        head = await scene.read(log_head)
        await scene.bulk(compact_session, info.id, head)
        await _replay_is_exact(scene)
        for each in (below, live, gone):
            await scene.bulk(compact_session, each.id, head)
        await _replay_is_exact(scene)


async def purge_keeps_forks_and_the_replay(database: Database) -> None:
    """A fork outlives its origin, in the tables and in the log."""
    async with opened(database) as scene:
        info = await scene.add_session()
        await scene.add_text(await scene.add_user(info))
        fork = await scene.fork(info)
        copies = await scene.messages(fork)
        await scene.write(delete_session, info.id, START)
        await scene.bulk(purge_session, info.id, START)
        assert await scene.messages(fork) == copies
        await _replay_is_exact(scene)


async def _busy_life(scene: Scene) -> list[SessionInfo]:
    """Sessions to which about everything has happened."""
    info = await scene.add_session()
    user = await scene.add_user(info)
    answer = await scene.add_assistant(info, user.id)
    fence = await scene.acquire(info)
    part = await scene.add_text(answer, "one")
    await scene.put(changed(part, text="two"))
    await scene.put(scene.finish(answer, 0.1, input=5))
    await scene.put(scene.running_text(answer))
    doomed = await scene.add_text(user)
    await scene.write(put_todos, info.id, [todo("a")], now=START, message_id=answer.id)
    fork = await scene.fork(info)
    await scene.write(remove_part, info.id, user.id, doomed.id)
    await scene.write(put_todos, info.id, [], now=START)
    child = await scene.add_session(parentID=info.id)
    removed = await scene.add_user(child)
    await scene.add_text(removed)
    await scene.write(remove_message, child.id, removed.id)
    await scene.add_text(await scene.add_user(fork))
    again = await scene.fork(fork, (await scene.messages(fork))[1][0].id)
    await scene.write(release_lease, fence)
    await scene.write(delete_session, info.id, START)
    await scene.write(restore_session, info.id)
    await scene.write(delete_session, again.id, START)
    return [info, fork, child, again]


async def _progress(scene: Scene, part: TextPart) -> None:
    await scene.write(put_part, part, now=START, progress=True, after_progress=True)


async def _replay_is_exact(scene: Scene) -> None:
    replayed, stored = await both(scene.store)
    assert replayed == stored
