"""Checks of tails: listed, restored as forks, and purged with their session."""

from kedge.domain.errors import SessionNotFound, TailNotFound
from kedge.domain.messages import AssistantMessage, Message
from kedge.domain.parts import Part, TextPart
from kedge.domain.sessions import ForkOrigin, SessionInfo, Tail
from kedge.store.queries.deletion import compact_session, purge_session, stop_and_delete
from kedge.store.queries.search import index_events, search
from kedge.store.queries.tails import list_tails, restore_tail
from kedge.store.queries.todos import get_todos, put_todos
from kedge.store.transaction import rows
from kedge.testing.replay import both
from kedge.testing.store.database import Database
from kedge.testing.store.scene import Scene, changed, opened, refused
from kedge.testing.store.todos import todo
from kedge.testing.store.undoing import (
    changes_of,
    conversation,
    prompt,
    revert,
)


async def what_is_gone_is_not_found(database: Database) -> None:
    """The search index forgets a tail, and finds it again when it is restored."""
    async with opened(database) as scene:
        info = await conversation(scene)
        messages = await scene.messages(info)
        await revert(scene, info, messages[4][0].id)
        await prompt(scene, info)
        assert await _found(scene, "answer", "2") == []
        (tail,) = await scene.read(list_tails, info.id)
        fork = await _restore(scene, info, tail)
        assert await _found(scene, "answer", "2") == [fork.id]
        assert await _found(scene, "answer", "1") == [info.id]


async def a_tail_is_restored_as_a_fork(database: Database) -> None:
    """All of it and everything before it, under new ids; the origin is unchanged."""
    async with opened(database) as scene:
        info = await conversation(scene)
        before = await scene.messages(info)
        await scene.write(put_todos, info.id, [todo("late")], now=2, message_id=before[3][0].id)
        await revert(scene, info, before[2][0].id)
        await prompt(scene, info)
        left = await scene.messages(info)
        (tail,) = await scene.read(list_tails, info.id)
        assert tail == Tail(
            id=tail.id,
            messageID=before[2][0].id,
            partID=None,
            time=scene.clock.now(),
            messages=4,
            snapshot=None,
        )
        fork = await _restore(scene, info, tail)
        assert fork.fork == ForkOrigin(sessionID=info.id, messageID=before[2][0].id)
        copies = await scene.messages(fork)
        assert [_bare(*each) for each in copies] == [_bare(*each) for each in before]
        assert not {each.id for each, _ in copies} & {each.id for each, _ in before}
        answers = [each for each, _ in copies if isinstance(each, AssistantMessage)]
        assert [each.parentID for each in answers] == [each.id for each, _ in copies[::2]]
        assert fork.cost == 1.5
        assert await scene.read(get_todos, fork.id) == [todo("late")]
        assert await changes_of(scene, fork) == []
        assert await scene.messages(info) == left
        assert await scene.read(list_tails, info.id) == [tail]
        await _replays(scene)


async def a_tail_is_restored_as_it_was_whatever_came_later(database: Database) -> None:
    """Messages and parts that later reverts removed from before it belong to it."""
    async with opened(database) as scene:
        info = await conversation(scene)
        before = await scene.messages(info)
        answer, parts = before[1]
        await revert(scene, info, before[2][0].id)
        await prompt(scene, info)
        await revert(scene, info, answer.id, parts[1].id)
        await prompt(scene, info)
        second = await scene.messages(info)
        await revert(scene, info, before[0][0].id)
        await prompt(scene, info)
        tails = await scene.read(list_tails, info.id)
        assert [each.messages for each in tails] == [4, 1, 3]
        first = await scene.messages(await _restore(scene, info, tails[0]))
        assert [_bare(*each) for each in first] == [_bare(*each) for each in before]
        third = await scene.messages(await _restore(scene, info, tails[2]))
        assert [_bare(*each) for each in third] == [_bare(*each) for each in second]
        middle = await scene.messages(await _restore(scene, info, tails[1]))
        assert [_bare(*each) for each in middle[:2]] == [_bare(*each) for each in before[:2]]
        assert len(middle) == 3
        await _replays(scene)


async def an_impossible_restore_leaves_nothing(database: Database) -> None:
    """An unknown tail, one of another session, a deleted session."""
    async with opened(database) as scene:
        info, other = await conversation(scene, 1), await scene.add_session()
        await revert(scene, info, (await scene.messages(info))[0][0].id)
        await prompt(scene, info)
        (tail,) = await scene.read(list_tails, info.id)
        with refused(TailNotFound):
            await _restore(scene, other, tail)
        await scene.bulk(stop_and_delete, info.id, "owner", scene.ids, 5)
        with refused(SessionNotFound):
            await _restore(scene, info, tail)
        with refused(SessionNotFound):
            await scene.read(list_tails, info.id)
        await _replays(scene)


async def tails_are_purged_with_their_session(database: Database) -> None:
    """Rows and all; what was restored from them stays."""
    async with opened(database) as scene:
        info = await conversation(scene)
        messages = await scene.messages(info)
        await revert(scene, info, messages[1][0].id)
        await prompt(scene, info)
        (tail,) = await scene.read(list_tails, info.id)
        fork = await _restore(scene, info, tail)
        copies = await scene.messages(fork)
        await scene.bulk(stop_and_delete, info.id, "owner", scene.ids, 5)
        assert await scene.bulk(purge_session, info.id, 10)
        for id in (info.id, tail.id):
            gone = await scene.read(rows, "message_from", session_id=id, pos=0)
            parts = await scene.read(rows, "part_range", session_id=id, first=0, last=99)
            assert (list(gone), list(parts)) == ([], [])
        assert await scene.messages(fork) == copies
        await _replays(scene)


async def forks_of_before_a_final_revert_stay_whole(database: Database) -> None:
    """Compacting the origin's log afterwards leaves a fork's copies replayable."""
    async with opened(database) as scene:
        info = await conversation(scene)
        messages = await scene.messages(info)
        fork = await scene.fork(info)
        await revert(scene, info, messages[0][0].id)
        await prompt(scene, info)
        await _replays(scene)
        head = (await scene.events())[-1].seq
        await scene.bulk(compact_session, info.id, head)
        assert len(await scene.messages(fork)) == 6
        await _replays(scene)


async def _restore(scene: Scene, origin: SessionInfo, tail: Tail) -> SessionInfo:
    info = scene.session(fork=ForkOrigin(sessionID=origin.id))
    return await scene.bulk(restore_tail, tail.id, info, scene.ids, scene.clock.now())


async def _found(scene: Scene, *words: str) -> list[str]:
    while await scene.bulk(index_events, 1000):
        pass
    page = await scene.store.scan(lambda: search(words, after=None, limit=10))
    return [hit.session.id for hit in page.hits]


async def _replays(scene: Scene) -> None:
    replayed, tables = await both(scene.store)
    assert replayed == tables


def _bare(message: Message, parts: list[Part]) -> tuple[Message, list[str]]:
    """A message and what its parts say, without what tells a copy from its original."""
    plain = changed(message, id="", sessionID="")
    if isinstance(plain, AssistantMessage):
        plain = changed(plain, parentID="")
    return plain, [part.text if isinstance(part, TextPart) else "" for part in parts]
