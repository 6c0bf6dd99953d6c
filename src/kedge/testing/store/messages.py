"""Checks of messages: their order, their times, paging and removal."""

from kedge.domain.cursors import PageCursor
from kedge.domain.errors import InvalidInput, MessageNotFound, SessionNotFound, TooLarge
from kedge.domain.messages import MessageTime
from kedge.domain.sessions import SessionInfo
from kedge.store.queries.messages import (
    MessagePage,
    get_message,
    message_page,
    put_message,
    remove_message,
)
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, Scene, changed, opened, refused


async def messages_are_ordered_as_stored_not_by_id(database: Database) -> None:
    """Ids from before and after the wrap of their 48 bits, and ids a client made up, change
    nothing."""
    async with opened(database) as scene:
        info = await scene.add_session()
        ids = ["msg_ffffffffffffA", "msg_000000000001A", "msg_zz", "msg_B", "msg_a", "msg_fffa"]
        for id in ids:
            await scene.add_user(info, id=id)
        assert [message.id for message, _ in await scene.messages(info)] == ids


async def times_of_messages_rise_and_stay(database: Database) -> None:
    """`time.created` is at least 1 ms after the message before, and no later write changes it."""
    async with opened(database) as scene:
        info = await scene.add_session()
        stored = []
        for given in (START, START, START - 500, START + 10, START + 10):
            stored.append(await scene.add_user(info, time=MessageTime(created=given)))
        times = [START, START + 1, START + 2, START + 10, START + 11]
        assert [each.time.created for each in stored] == times
        again = changed(scene.user(info), id=stored[1].id, time=MessageTime(created=START + 99))
        assert (await scene.write(put_message, again)).time.created == START + 1
        assert [message.time.created for message, _ in await scene.messages(info)] == times


async def a_message_is_replaced_in_its_place(database: Database) -> None:
    """An upsert changes its content, but neither its position nor its parts."""
    async with opened(database) as scene:
        info = await scene.add_session()
        first = await scene.add_user(info)
        second = await scene.add_assistant(info, first.id)
        part = await scene.add_text(first)
        changed_first = changed(scene.user(info), id=first.id, agent="plan", time=first.time)
        await scene.write(put_message, changed_first)
        assert await scene.messages(info) == [(changed_first, [part]), (second, [])]


async def a_message_keeps_its_role(database: Database) -> None:
    """A user message cannot become an assistant's or the other way round."""
    async with opened(database) as scene:
        info = await scene.add_session()
        user = await scene.add_user(info)
        answer = await scene.add_assistant(info, user.id)
        before = await scene.messages(info)
        with refused(InvalidInput):
            await scene.write(put_message, scene.assistant(info, user.id, id=user.id))
        with refused(InvalidInput):
            await scene.write(put_message, scene.user(info, id=answer.id))
        assert await scene.messages(info) == before


async def unknown_keys_of_messages_survive(database: Database) -> None:
    """Also one that is called like a key of the other role."""
    async with opened(database) as scene:
        info = await scene.add_session()
        user = await scene.add_user(info, extra={"parentID": "msg_x", "new": {"a": [None]}})
        answer = await scene.add_assistant(info, user.id, extra={"system": "s", "z": 1})
        assert await scene.messages(info) == [(user, []), (answer, [])]
        assert user.extra == {"parentID": "msg_x", "new": {"a": [None]}}


async def odd_ids_do_not_break_the_json(database: Database) -> None:
    """An id may hold any printable character, quotes and backslashes among them."""
    async with opened(database) as scene:
        info = await scene.add_session()
        user = await scene.add_user(info, id='msg_"\\,"x":"')
        answer = await scene.add_assistant(info, user.id)
        part = await scene.add_text(user, id='prt_"}\\')
        assert await scene.messages(info) == [(user, [part]), (answer, [])]


async def unknown_messages_are_not_found(database: Database) -> None:
    """Neither in a session that exists nor in one that does not."""
    async with opened(database) as scene:
        info = await scene.add_session()
        with refused(MessageNotFound):
            await scene.read(get_message, info.id, "msg_none")
        with refused(SessionNotFound):
            await scene.read(get_message, "ses_none", "msg_none")
        with refused(SessionNotFound):
            await scene.write(put_message, scene.user(scene.session()))


async def the_same_message_id_may_be_in_two_sessions(database: Database) -> None:
    """Each session has its own."""
    async with opened(database) as scene:
        one, two = await scene.add_session(), await scene.add_session()
        await scene.add_user(one, id="msg_same", agent="one")
        await scene.add_user(two, id="msg_same", agent="two")
        await scene.write(remove_message, one.id, "msg_same")
        assert [message.agent for message, _ in await scene.messages(two)] == ["two"]


async def messages_page_both_ways(database: Database) -> None:
    """Back from the newest and forth again, in any page size, gives every message once."""
    async with opened(database) as scene:
        info = await scene.add_session()
        ids = [(await scene.add_user(info)).id for _ in range(11)]
        for id in (ids.pop(9), ids.pop(4), ids.pop(0)):
            await scene.write(remove_message, info.id, id)
        for size in (1, 3, 8, 50):
            assert await _backwards(scene, info, size) == ids
            assert await _forwards(scene, info, size) == ids


async def a_page_starts_where_a_removed_message_was(database: Database) -> None:
    """A cursor stays valid when the message it points at is removed."""
    async with opened(database) as scene:
        info = await scene.add_session()
        ids = [(await scene.add_user(info)).id for _ in range(6)]
        page = await scene.read(message_page, info.id, limit=2)
        assert _ids(page) == ids[4:]
        assert page.newer is None
        await scene.write(remove_message, info.id, ids[4])
        older = await scene.read(message_page, info.id, before=page.older, limit=2)
        assert _ids(older) == ids[2:4]
        newer = await scene.read(message_page, info.id, after=older.newer, limit=2)
        assert _ids(newer) == ids[5:]


async def removing_a_message_takes_its_parts_along(database: Database) -> None:
    """Removing what does not exist is reported and harmless."""
    async with opened(database) as scene:
        info = await scene.add_session()
        first, second = await scene.add_user(info), await scene.add_user(info)
        await scene.add_text(first)
        kept = await scene.add_text(second)
        assert await scene.write(remove_message, info.id, first.id) is True
        assert await scene.write(remove_message, info.id, first.id) is False
        assert await scene.messages(info) == [(second, [kept])]
        again = await scene.add_user(info, id=first.id)
        assert await scene.messages(info) == [(second, [kept]), (again, [])]


async def a_message_over_the_limit_is_refused(database: Database) -> None:
    """Nothing of it is stored, and the message it was to replace stays."""
    async with opened(database) as scene:
        info = await scene.add_session()
        message = await scene.add_user(info, system="small")
        head = (await scene.events())[-1].seq
        big = "x" * (33 * 1024 * 1024)
        with refused(TooLarge):
            await scene.write(put_message, scene.user(info, id=message.id, system=big))
        with refused(TooLarge):
            await scene.add_user(info, system=big)
        assert await scene.messages(info) == [(message, [])]
        assert await scene.events(head) == []


def _ids(page: MessagePage) -> list[str]:
    return [each.decoded().info.id for each in page.messages]


async def _backwards(scene: Scene, info: SessionInfo, limit: int) -> list[str]:
    page = await scene.read(message_page, info.id, limit=limit)
    found = _ids(page)
    while page.older is not None:
        older = PageCursor.parse(page.older.text("l"), "l")
        page = await scene.read(message_page, info.id, before=older, limit=limit)
        found = _ids(page) + found
    return found


async def _forwards(scene: Scene, info: SessionInfo, limit: int) -> list[str]:
    page = await scene.read(message_page, info.id, after=PageCursor(-1, ""), limit=limit)
    found = _ids(page)
    while page.newer is not None:
        newer = PageCursor.parse(page.newer.text("l"), "l")
        page = await scene.read(message_page, info.id, after=newer, limit=limit)
        found += _ids(page)
    return found
