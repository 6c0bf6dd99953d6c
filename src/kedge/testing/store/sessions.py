"""Checks of sessions: create, read, change, delete, restore, purge."""

import functools

from kedge.domain.errors import InvalidInput, SessionNotFound, TooLarge
from kedge.domain.sessions import SessionTime
from kedge.store.queries.deletion import expired_sessions, purge_session
from kedge.store.queries.messages import message_page, put_message
from kedge.store.queries.sessions import (
    archived,
    change_session,
    child_sessions,
    create_session,
    delete_session,
    deleted_sessions,
    forks_of_session,
    get_session,
    lock_session,
    restore_session,
)
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, WORKTREE, Scene, changed, opened, refused


async def a_session_reads_back_as_it_was_created(database: Database) -> None:
    """Every field, including those kedge does not know, is there again in another process."""
    async with opened(database) as scene:
        metadata = {"ticket": 7, "nul": "a\0b", "deep": {"list": [None, 1.5]}}
        info = await scene.add_session(metadata=metadata, extra={"fromTheFuture": [1]})
        assert await scene.read(get_session, info.id) == info
        async with opened(database) as other:
            assert await other.read(get_session, info.id) == info


async def a_second_session_of_the_same_id_is_refused(database: Database) -> None:
    """The first one stays as it was, whether it is live or deleted."""
    async with opened(database) as scene:
        info = await scene.add_session(title="first")
        with refused(InvalidInput):
            await scene.write(create_session, changed(info, title="second"), WORKTREE)
        assert (await scene.read(get_session, info.id)).title == "first"
        await scene.write(delete_session, info.id, START)
        with refused(InvalidInput):
            await scene.write(create_session, info, WORKTREE)


async def an_unknown_session_is_not_found(database: Database) -> None:
    """Reading, changing, deleting and restoring it all say so."""
    async with opened(database) as scene:
        for verb in (get_session, lock_session, restore_session):
            with refused(SessionNotFound):
                await scene.write(verb, "ses_none")
        with refused(SessionNotFound):
            await scene.write(change_session, "ses_none", lambda info: info)
        with refused(SessionNotFound):
            await scene.write(delete_session, "ses_none", START)
        with refused(SessionNotFound):
            await scene.read(message_page, "ses_none", limit=1)
        assert await scene.events() == []


async def a_change_is_stored_and_announced_once(database: Database) -> None:
    """A change that changes nothing is not announced."""
    async with opened(database) as scene:
        info = await scene.add_session()
        head = (await scene.events())[-1].seq
        after = await scene.write(change_session, info.id, lambda old: changed(old, title="new"))
        assert after == await scene.read(get_session, info.id) == changed(info, title="new")
        await scene.write(change_session, info.id, lambda old: old)
        assert [each.type for each in await scene.events(head)] == ["session.updated"]


async def archiving_can_be_taken_back(database: Database) -> None:
    """Zero and negative times are times, too."""
    async with opened(database) as scene:
        info = await scene.add_session()
        for at in (0, -1.5, START):
            await scene.write(change_session, info.id, functools.partial(archived, at=at))
            assert (await scene.read(get_session, info.id)).time.archived == at
        await scene.write(change_session, info.id, lambda old: archived(old, None))
        assert await scene.read(get_session, info.id) == info


async def subtasks_and_forks_are_told_apart(database: Database) -> None:
    """A subtask is a child and no fork; a fork is no child."""
    async with opened(database) as scene:
        info = await scene.add_session()
        child = await scene.add_session(parentID=info.id)
        fork = await scene.fork(info)
        assert await scene.read(child_sessions, info.id) == [child]
        assert await scene.read(forks_of_session, info.id) == [fork]


async def delete_hides_a_tree_deepest_first(database: Database) -> None:
    """Subtasks go before the session they belong to, each with an event, and none can be found."""
    async with opened(database) as scene:
        top = await scene.add_session()
        child = await scene.add_session(parentID=top.id)
        grandchild = await scene.add_session(parentID=child.id)
        bystander = await scene.add_session()
        head = (await scene.events())[-1].seq
        gone = await scene.write(delete_session, top.id, START + 5)
        assert [each.id for each in gone] == [grandchild.id, child.id, top.id]
        events = await scene.events(head)
        assert [each.session_id for each in events] == [grandchild.id, child.id, top.id]
        assert {each.type for each in events} == {"session.deleted"}
        for each in gone:
            with refused(SessionNotFound):
                await scene.read(get_session, each.id)
        assert await scene.read(get_session, bystander.id) == bystander


async def a_deleted_session_takes_no_writes(database: Database) -> None:
    """Changing it or adding a message is refused; a second delete says it is not there."""
    async with opened(database) as scene:
        info = await scene.add_session()
        message = scene.user(info)
        await scene.write(delete_session, info.id, START)
        with refused(SessionNotFound):
            await scene.write(put_message, message)
        with refused(SessionNotFound):
            await scene.write(change_session, info.id, lambda old: changed(old, title="x"))
        with refused(SessionNotFound):
            await scene.write(delete_session, info.id, START)


async def restore_brings_back_what_was_deleted_along(database: Database) -> None:
    """Subtasks deleted earlier stay deleted; messages and parts are all there again."""
    async with opened(database) as scene:
        top = await scene.add_session()
        early, late = [await scene.add_session(parentID=top.id) for _ in range(2)]
        below = await scene.add_session(parentID=late.id)
        await scene.add_text(await scene.add_user(top))
        before = await scene.messages(top)
        await scene.write(delete_session, early.id, START)
        await scene.write(delete_session, top.id, START + 1)
        assert await scene.write(restore_session, top.id) == top
        assert await scene.messages(top) == before
        assert await scene.read(child_sessions, top.id) == [late]
        assert await scene.read(child_sessions, late.id) == [below]
        head = (await scene.events())[-1].seq
        assert await scene.write(restore_session, top.id) == top
        assert await scene.events(head) == []


async def deleted_sessions_are_listed_in_pages(database: Database) -> None:
    """The earliest deleted first, those of one moment by id, without a gap between pages."""
    async with opened(database) as scene:
        infos = [await scene.add_session() for _ in range(5)]
        times = [START + 2, START + 1, START + 1, START + 1, START]
        for info, time in zip(infos, times, strict=True):
            await scene.write(delete_session, info.id, time)
        expected = sorted((time, info.id) for info, time in zip(infos, times, strict=True))
        found: list[tuple[int, str]] = []
        after = (-1, "")
        while page := await scene.read(deleted_sessions, after, 2):
            found += [(time, info.id) for info, time in page]
            after = found[-1]
        assert found == expected


async def purge_removes_only_what_is_due(database: Database) -> None:
    """A session deleted later or restored stays; of a purged one only the event of its end is
    left."""
    async with opened(database) as scene:
        old, new, back = [await scene.add_session() for _ in range(3)]
        await _filled(scene, old.id)
        for info, time in ((old, START), (new, START + 10), (back, START)):
            await scene.write(delete_session, info.id, time)
        await scene.write(restore_session, back.id)
        assert await scene.read(expired_sessions, START + 5, 10) == [old.id]
        purged = [await scene.write(purge_session, each.id, START + 5) for each in (old, new, back)]
        assert purged == [True, False, False]
        left = [each.type for each in await scene.events() if each.session_id == old.id]
        assert left == ["session.deleted"]
        with refused(SessionNotFound):
            await scene.write(restore_session, old.id)
        assert await scene.write(restore_session, new.id) == new


async def a_session_object_over_the_limit_is_refused(database: Database) -> None:
    """It would be repeated in every event; the session stays as it was."""
    async with opened(database) as scene:
        info = await scene.add_session()
        head = (await scene.events())[-1].seq
        big = {"big": "x" * 2_000_000}
        with refused(TooLarge):
            await scene.add_session(metadata=big)
        with refused(TooLarge):
            await scene.write(change_session, info.id, lambda old: changed(old, metadata=big))
        assert await scene.read(get_session, info.id) == info
        assert await scene.events(head) == []


async def a_changed_time_stays_with_the_session(database: Database) -> None:
    """All times of a session are the caller's to set."""
    async with opened(database) as scene:
        info = await scene.add_session()
        time = SessionTime(created=1, updated=2, compacting=3)
        await scene.write(change_session, info.id, lambda old: changed(old, time=time))
        assert (await scene.read(get_session, info.id)).time == time


async def _filled(scene: Scene, session_id: str) -> None:
    info = await scene.read(get_session, session_id)
    message = await scene.add_user(info)
    await scene.add_text(message)
    await scene.acquire(info)
