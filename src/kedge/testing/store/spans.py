"""Checks of stretches of a conversation: which changes are in one, and which snapshot belongs to a
message."""

from kedge.domain.errors import InvalidInput, MessageNotFound, SessionNotFound, SnapshotNotFound
from kedge.domain.messages import Message as AnyMessage
from kedge.domain.parts import StepStartPart
from kedge.domain.sessions import SessionInfo
from kedge.store.queries.change_queries import changes_of, snapshot_at
from kedge.testing.store.database import Database
from kedge.testing.store.scene import Scene, changed, opened, refused
from kedge.testing.store.undoing import conversation, revert


async def a_stretch_has_the_changes_of_its_messages(database: Database) -> None:
    """All of a session, of a turn, of a step, and from one message to before another."""
    async with opened(database) as scene:
        info = await conversation(scene)
        (one, first, two, second, *_) = [found[0].id for found in await scene.messages(info)]
        assert await _paths(scene, info) == [b"file0", b"file1", b"file2"]
        assert await _paths(scene, info, two) == await _paths(scene, info, second) == [b"file1"]
        assert await _paths(scene, info, one, second) == [b"file0"]
        assert await _paths(scene, info, None, second) == [b"file0"]
        assert await _paths(scene, info, first, second) == [b"file0"]


async def a_stretch_needs_its_ends(database: Database) -> None:
    """Unknown sessions and messages, and an end that does not come after the beginning."""
    async with opened(database) as scene:
        info = await conversation(scene)
        one, first = [found[0].id for found in await scene.messages(info)][:2]
        with refused(SessionNotFound):
            await scene.read(changes_of, "ses_nope")
        for ends in (("msg_nope", None), ("msg_nope", one), (one, "msg_nope")):
            with refused(MessageNotFound):
                await scene.read(changes_of, info.id, *ends)
        for until in (one, first):
            with refused(InvalidInput):
                await scene.read(changes_of, info.id, first, until)


async def what_a_pending_revert_undid_does_not_stand(database: Database) -> None:
    """Only what it left, until it is taken back."""
    async with opened(database) as scene:
        info = await conversation(scene)
        two = (await scene.messages(info))[2][0].id
        await revert(scene, info, two, left=[b"file2"])
        assert await _paths(scene, info) == [b"file0", b"file2"]
        assert await _paths(scene, info, two) == [b"file1"]
        await revert(scene, info, None, kind="unrevert")
        assert await _paths(scene, info) == [b"file0", b"file1", b"file2"]


async def a_message_has_a_snapshot(database: Database) -> None:
    """An answer has the one at its end, else at its beginning; a prompt the one at its first
    answer's beginning, else the last end before it."""
    async with opened(database) as scene:
        info = await scene.add_session()
        prompt = await scene.add_user(info)
        answer = await scene.add_assistant(info, prompt.id)
        await _step(scene, answer, "1" * 40)
        assert await _snapshots(scene, info, prompt, answer) == ["1" * 40, "1" * 40]
        await scene.put(changed(scene.finish(answer, 0), snapshot="2" * 40))
        later = await scene.add_user(info)
        found = await _snapshots(scene, info, prompt, answer, later)
        assert found == ["1" * 40, "2" * 40, "2" * 40]


async def a_missing_snapshot_is_not_replaced(database: Database) -> None:
    """Not by an older one, nor by one of another message."""
    async with opened(database) as scene:
        info = await scene.add_session()
        prompt = await scene.add_user(info)
        with refused(SnapshotNotFound):
            await scene.read(snapshot_at, info.id, prompt.id)
        answer = await scene.add_assistant(info, prompt.id)
        await _step(scene, answer, "1" * 40)
        await scene.put(scene.finish(answer, 0))
        later = await scene.add_user(info)
        for message in (answer, later):
            with refused(SnapshotNotFound):
                await scene.read(snapshot_at, info.id, message.id)
        with refused(MessageNotFound):
            await scene.read(snapshot_at, info.id, "msg_nope")
        with refused(SessionNotFound):
            await scene.read(snapshot_at, "ses_nope", prompt.id)


async def _paths(
    scene: Scene, info: SessionInfo, message: str | None = None, until: str | None = None
) -> list[bytes]:
    found = await scene.read(changes_of, info.id, message, until)
    return [change.path for change in found]


async def _snapshots(scene: Scene, info: SessionInfo, *messages: AnyMessage) -> list[str]:
    return [await scene.read(snapshot_at, info.id, message.id) for message in messages]


async def _step(scene: Scene, message: AnyMessage, snapshot: str) -> None:
    await scene.put(
        StepStartPart(
            id=scene.ids.part(),
            sessionID=message.sessionID,
            messageID=message.id,
            snapshot=snapshot,
        )
    )
