"""Checks of forks: the copies, their ids, and that the original is unchanged."""

from kedge.domain.errors import MessageNotFound, SessionNotFound
from kedge.domain.events import SessionCreated, read_frame
from kedge.domain.ids import IdBlock
from kedge.domain.messages import AssistantMessage, Message, MessageTime
from kedge.domain.parts import CompactionPart, Part, ToolError, ToolPart, ToolPending, part_ended
from kedge.domain.sessions import SessionInfo
from kedge.store.queries.messages import put_message, remove_message
from kedge.store.queries.parts import put_part
from kedge.store.queries.sessions import delete_session, get_session
from kedge.store.queries.todos import get_todos, put_todos
from kedge.store.transaction import Script
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, Scene, changed, opened, refused
from kedge.testing.store.todos import todo


async def a_fork_copies_what_is_before_the_boundary(database: Database) -> None:
    """Same order, times and contents under new ids, announced by one event; the origin is
    untouched."""
    async with opened(database) as scene:
        info = await _conversation(scene, turns=3)
        before = await scene.messages(info)
        head = (await scene.events())[-1].seq
        fork = await scene.fork(info, before[4][0].id)
        copies = await scene.messages(fork)
        assert [_bare(*each) for each in copies] == [_bare(*each) for each in before[:4]]
        old_ids = {message.id for message, _ in before} | {
            part.id for _, parts in before for part in parts
        }
        assert all(
            message.id not in old_ids and message.sessionID == fork.id for message, _ in copies
        )
        assert all(
            part.id not in old_ids and part.sessionID == fork.id and part.messageID == message.id
            for message, parts in copies
            for part in parts
        )
        assert [each.type for each in await scene.events(head)] == ["session.created"]
        assert await scene.messages(info) == before
        assert await scene.read(get_session, fork.id) == fork


async def copies_are_numbered_from_the_announced_block(database: Database) -> None:
    """Messages in order, then parts in order, so that a replay of the log makes the same ids."""
    async with opened(database) as scene:
        info = await _conversation(scene, turns=2)
        await scene.write(remove_message, info.id, (await scene.messages(info))[1][0].id)
        fork = await scene.fork(info)
        _, event = read_frame((await scene.events())[-1].payload)
        assert isinstance(event, SessionCreated)
        assert event.copy is not None
        copies = await scene.messages(fork)
        parts = [part.id for _, parts in copies for part in parts]
        assert (event.copy.messages, event.copy.parts) == (len(copies), len(parts))
        block = IdBlock(event.copy.base, event.copy.suffix)
        assert [message.id for message, _ in copies] == [
            block.id("msg", n) for n in range(len(copies))
        ]
        assert parts == [block.id("prt", len(copies) + n) for n in range(len(parts))]


async def parents_point_into_the_copy(database: Database) -> None:
    """Unless the parent was not copied: then the copy keeps the name of the original."""
    async with opened(database) as scene:
        info = await scene.add_session()
        user = await scene.add_user(info)
        await scene.add_assistant(info, user.id, time=_ended())
        await scene.add_assistant(info, "msg_elsewhere", time=_ended())
        copies = [message for message, _ in await scene.messages(await scene.fork(info))]
        assert isinstance(copies[1], AssistantMessage)
        assert copies[1].parentID == copies[0].id
        assert isinstance(copies[2], AssistantMessage)
        assert copies[2].parentID == "msg_elsewhere"


async def compactions_point_into_the_copy(database: Database) -> None:
    """`tail_start_id` names the copied message, or the original if that was not copied."""
    async with opened(database) as scene:
        info = await scene.add_session()
        first, second = await scene.add_user(info), await scene.add_user(info)
        for tail in (first.id, "msg_elsewhere", None):
            part = CompactionPart(
                id=scene.ids.part(),
                sessionID=info.id,
                messageID=second.id,
                auto=True,
                tail_start_id=tail,
                extra={"unknown": 1},
            )
            await scene.put(part)
        copies = await scene.messages(await scene.fork(info))
        tails = [part.tail_start_id for part in copies[1][1] if isinstance(part, CompactionPart)]
        assert tails == [copies[0][0].id, "msg_elsewhere", None]
        assert all(part.extra == {"unknown": 1} for part in copies[1][1])


async def what_ran_is_closed_in_the_fork(database: Database) -> None:
    """The copy of a running message is complete with an error, its tool calls are interrupted."""
    async with opened(database) as scene:
        info = await scene.add_session()
        user = await scene.add_user(info)
        running = await scene.add_assistant(info, user.id)
        await scene.put(scene.running_text(running, "so far"))
        state = ToolPending(input={}, raw="")
        tool = ToolPart(
            id=scene.ids.part(),
            sessionID=info.id,
            messageID=running.id,
            callID="c",
            tool="shell",
            state=state,
        )
        await scene.put(tool)
        before = await scene.messages(info)
        message, (text, call) = (await scene.messages(await scene.fork(info)))[1]
        assert isinstance(message, AssistantMessage)
        assert message.time.completed is not None
        assert message.error is not None
        assert message.error.name == "MessageAbortedError"
        assert part_ended(text)
        assert getattr(text, "text", None) == "so far"
        assert isinstance(call, ToolPart)
        assert isinstance(call.state, ToolError)
        assert await scene.messages(info) == before


async def a_fork_has_the_todos_of_its_boundary(database: Database) -> None:
    """A fork of everything has the list as it is now."""
    async with opened(database) as scene:
        info = await scene.add_session()
        first = await scene.add_user(info)
        await scene.write(put_todos, info.id, [todo("one")], now=START)
        second = await scene.add_user(info)
        await scene.write(put_todos, info.id, [todo("two")], now=START)
        await scene.write(put_todos, info.id, [todo("three")], now=START, message_id=first.id)
        whole, part, nothing = (
            await scene.fork(info),
            await scene.fork(info, second.id),
            await scene.fork(info, first.id),
        )
        assert await scene.read(get_todos, whole.id) == [todo("three")]
        assert await scene.read(get_todos, part.id) == [todo("three")]
        assert await scene.read(get_todos, nothing.id) == []


async def a_fork_has_the_totals_of_its_copies(database: Database) -> None:
    """Only the copied steps count."""
    async with opened(database) as scene:
        info = await scene.add_session()
        first, second = await scene.add_user(info), await scene.add_user(info)
        await scene.put(scene.finish(first, 0.25, input=3))
        await scene.put(scene.finish(second, 0.5, input=4))
        fork = await scene.fork(info, second.id)
        assert (fork.cost, fork.tokens.input) == (0.25, 3)
        assert await scene.read(get_session, fork.id) == fork


async def a_fork_goes_on_by_itself(database: Database) -> None:
    """New messages come after the copies, in place and in time, and the origin does not see
    them."""
    async with opened(database) as scene:
        info = await _conversation(scene, turns=2)
        before = await scene.messages(info)
        fork = await scene.fork(info)
        added = await scene.add_user(fork, time=MessageTime(created=0))
        copies = await scene.messages(fork)
        assert copies[-1] == (added, [])
        assert added.time.created == copies[-2][0].time.created + 1
        await scene.write(remove_message, fork.id, copies[0][0].id)
        assert await scene.messages(info) == before


async def a_fork_can_be_forked(database: Database) -> None:
    """Contents are the same; ids are new again."""
    async with opened(database) as scene:
        info = await _conversation(scene, turns=2)
        fork = await scene.fork(info)
        again = await scene.fork(fork)
        one, two = await scene.messages(fork), await scene.messages(again)
        assert [_bare(*each) for each in one] == [_bare(*each) for each in two]
        assert not {message.id for message, _ in one} & {message.id for message, _ in two}
        assert again.fork is not None
        assert again.fork.sessionID == fork.id


async def a_large_fork_is_whole(database: Database) -> None:
    """Thousands of messages and parts are copied in their order."""
    async with opened(database) as scene:
        info = await scene.add_session()

        def fill() -> Script[None]:
            for n in range(700):
                message = scene.user(info)
                yield from put_message(message)
                for m in range(3):
                    yield from put_part(scene.text(message, f"{n}.{m}"), now=START)

        await scene.store.write_bulk(fill)
        copies = await scene.messages(await scene.fork(info))
        texts = [getattr(part, "text", "") for _, parts in copies for part in parts]
        assert texts == [f"{n}.{m}" for n in range(700) for m in range(3)]


async def an_impossible_fork_leaves_nothing(database: Database) -> None:
    """An unknown boundary, an unknown origin, a deleted one."""
    async with opened(database) as scene:
        info, gone = await scene.add_session(), await scene.add_session()
        await scene.write(delete_session, gone.id, START)
        head = (await scene.events())[-1].seq
        with refused(MessageNotFound):
            await scene.fork(info, "msg_none")
        for origin in (gone, scene.session()):
            with refused(SessionNotFound):
                await scene.fork(origin)
        assert await scene.events(head) == []


async def _conversation(scene: Scene, *, turns: int) -> SessionInfo:
    info = await scene.add_session()
    for n in range(turns):
        scene.clock.advance(100)
        user = await scene.add_user(info, extra={"turn": n})
        await scene.add_text(user, f"question {n}")
        answer = await scene.add_assistant(info, user.id, time=_ended())
        await scene.add_text(answer, f"answer {n}")
        await scene.put(scene.finish(answer, 0.5, input=n))
    return info


def _ended() -> MessageTime:
    return MessageTime(created=START, completed=START + 50)


def _bare(message: Message, parts: list[Part]) -> tuple[Message, list[Part]]:
    """A message and its parts without what tells a copy from its original."""
    plain = changed(message, id="", sessionID="")
    if isinstance(plain, AssistantMessage):
        plain = changed(plain, parentID="")
    return plain, [changed(part, id="", sessionID="", messageID="") for part in parts]
