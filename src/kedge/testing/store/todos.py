"""Checks of todos: every version is kept with its place in the conversation."""

from kedge.domain.errors import MessageNotFound, SessionNotFound, TooLarge
from kedge.domain.sessions import Todo
from kedge.store.queries.todos import get_todos, put_todos, todo_history, todos_before
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, changed, opened, refused


async def the_list_is_replaced_and_every_version_kept(database: Database) -> None:
    """The newest version is the list; the history tells who wrote each and when."""
    async with opened(database) as scene:
        info = await scene.add_session()
        assert await scene.read(get_todos, info.id) == []
        message = await scene.add_user(info)
        lists = [[todo("a")], [todo("a"), todo("b\0é")], []]
        await scene.write(put_todos, info.id, lists[0], now=START)
        await scene.write(put_todos, info.id, lists[1], now=START + 1, message_id=message.id)
        await scene.write(put_todos, info.id, lists[2], now=START + 2)
        assert await scene.read(get_todos, info.id) == []
        history = await scene.read(todo_history, info.id)
        assert [each.todos for each in history] == lists
        assert [each.version for each in history] == [1, 2, 3]
        assert [each.messageID for each in history] == [None, message.id, None]
        assert [each.time for each in history] == [START, START + 1, START + 2]


async def the_list_can_be_read_as_of_a_message(database: Database) -> None:
    """What counts is the newest version written before the message, whichever message wrote it."""
    async with opened(database) as scene:
        info = await scene.add_session()
        await scene.write(put_todos, info.id, [todo("early")], now=START)
        first = await scene.add_user(info)
        await scene.write(put_todos, info.id, [todo("one")], now=START)
        await scene.add_user(info)
        await scene.write(put_todos, info.id, [todo("two")], now=START)
        await scene.write(put_todos, info.id, [todo("late")], now=START, message_id=first.id)
        for pos, content in ((0, "early"), (1, "late"), (2, "late")):
            assert await scene.read(todos_before, info.id, pos) == [todo(content)]


async def todos_need_their_session_and_message(database: Database) -> None:
    """A list for something unknown, or one over the limit, is refused and not stored."""
    async with opened(database) as scene:
        info = await scene.add_session()
        head = (await scene.events())[-1].seq
        with refused(SessionNotFound):
            await scene.write(put_todos, "ses_none", [todo("a")], now=START)
        with refused(MessageNotFound):
            await scene.write(put_todos, info.id, [todo("a")], now=START, message_id="msg_none")
        with refused(TooLarge):
            await scene.write(put_todos, info.id, [todo("x" * 2_000_000)], now=START)
        assert await scene.read(todo_history, info.id) == []
        assert await scene.events(head) == []


def todo(content: str) -> Todo:
    """A line of a todo list."""
    line = Todo(content=content, status="pending", priority="high")
    return changed(line, extra={"unknown": True})
