"""Checks of boundaries: which message or part a revert goes back to."""

from kedge.domain.errors import SessionNotFound
from kedge.domain.messages import MessageTime
from kedge.domain.parts import StepStartPart
from kedge.store.queries.boundaries import Boundary, find_boundary
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, opened, refused


async def a_message_stands_for_its_turn(database: Database) -> None:
    """The boundary is the last prompt at or before the message; without one, the message itself."""
    async with opened(database) as scene:
        info = await scene.add_session()
        ended = MessageTime(created=START, completed=START)
        early = await scene.add_assistant(info, "msg_none", time=ended)
        user = await scene.add_user(info)
        first = await scene.add_assistant(info, user.id, time=ended)
        second = await scene.add_assistant(info, user.id, time=ended)
        for target, pos, id in [
            (early, 0, early.id),
            (user, 1, user.id),
            (first, 1, user.id),
            (second, 1, user.id),
        ]:
            found = await scene.read(find_boundary, info.id, target.id)
            assert found == Boundary(message_id=id, part_id=None, pos=pos)


async def a_part_is_kept_apart_if_words_or_calls_precede_it(database: Database) -> None:
    """Otherwise it stands for its message, and so for its turn; the named message counts."""
    async with opened(database) as scene:
        info = await scene.add_session()
        user = await scene.add_user(info)
        answer = await scene.add_assistant(info, user.id)
        start = StepStartPart(id=scene.ids.part(), sessionID=info.id, messageID=answer.id)
        await scene.put(start)
        first = await scene.add_text(answer, "first")
        second = await scene.add_text(answer, "second")
        for part in (start, first):
            found = await scene.read(find_boundary, info.id, answer.id, part.id)
            assert found == Boundary(message_id=user.id, part_id=None, pos=0)
        for message in (answer, user):
            found = await scene.read(find_boundary, info.id, message.id, second.id)
            assert found == Boundary(message_id=answer.id, part_id=second.id, pos=1)


async def of_two_parts_with_one_id_the_named_message_has_it(database: Database) -> None:
    """Clients choose ids, and a message's parts are its own."""
    async with opened(database) as scene:
        info = await scene.add_session()
        user = await scene.add_user(info)
        for text in ("a", "b"):
            answer = await scene.add_assistant(info, user.id)
            await scene.add_text(answer, text, id="prt_1")
            await scene.add_text(answer, text, id="prt_2")
        found = await scene.read(find_boundary, info.id, answer.id, "prt_2")
        assert found == Boundary(message_id=answer.id, part_id="prt_2", pos=2)


async def what_is_not_there_is_no_boundary(database: Database) -> None:
    """An unknown message or part gives no boundary; an unknown session is an error."""
    async with opened(database) as scene:
        info = await scene.add_session()
        user = await scene.add_user(info)
        assert await scene.read(find_boundary, info.id, "msg_none") is None
        assert await scene.read(find_boundary, info.id, user.id, "prt_none") is None
        with refused(SessionNotFound):
            await scene.read(find_boundary, "ses_none", user.id)
