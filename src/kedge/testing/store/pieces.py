"""Checks of pieces: text of growing parts, kept for recovery after a killed process."""

from collections.abc import Sequence

from kedge.domain.parts import PartTime, ReasoningPart, TextPart
from kedge.domain.sessions import SessionInfo
from kedge.domain.wire_errors import aborted
from kedge.store.queries.deletion import purge_session, stop_and_delete
from kedge.store.queries.fences import Fence
from kedge.store.queries.leases import release_lease, take_over
from kedge.store.queries.parts import put_part, remove_part
from kedge.store.queries.pieces import Piece, add_pieces
from kedge.store.queries.turns import fail_step
from kedge.store.transaction import Script, rows
from kedge.testing.replay import both
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, Scene, changed, opened

ODD = ("é\0", "\u2028😀", '"\\', "\n👩‍👩‍👧")
"""Text that is not one byte, one character or one UTF-16 unit for each visible character."""


async def pieces_are_joined_when_their_run_is_taken_over(database: Database) -> None:
    """Text and reasoning have everything that was stored of them, with one event each."""
    async with opened(database) as scene:
        info, fence, text = await _speaking(scene, "so ")
        thought = ReasoningPart(
            id=scene.ids.part(),
            sessionID=info.id,
            messageID=text.messageID,
            text="",
            time=PartTime(start=START),
        )
        await scene.put(thought)
        await _add(scene, fence, text.id, 3, *ODD)
        await _add(scene, fence, thought.id, 0, *ODD)
        head = (await scene.events())[-1].seq
        await _check_replay(scene)
        await _take_over(scene, info)
        assert await _texts(scene, info) == ["so " + "".join(ODD), "".join(ODD)]
        told = [each.type for each in await scene.events(head)]
        assert told.count("message.part.updated") == 2
        await _check_replay(scene)
        assert await scene.read(_kept, info) == []


async def pieces_are_no_events_and_no_state(database: Database) -> None:
    """Readers of the log and of messages see the part as it was stored."""
    async with opened(database) as scene:
        info, fence, text = await _speaking(scene, "so ")
        head = (await scene.events())[-1].seq
        await _add(scene, fence, text.id, 3, "far")
        assert await _texts(scene, info) == ["so "]
        assert await scene.events(head) == []


async def pieces_that_are_stored_already_are_not_said_twice(database: Database) -> None:
    """A piece may be stored late; of one that reaches farther than the part, the rest counts. A
    piece after a gap is not joined."""
    async with opened(database) as scene:
        info, fence, text = await _speaking(scene, "")
        await scene.put(changed(text, text="one two"))
        await _add(scene, fence, text.id, 0, "one ", "two three ")
        await _add(scene, fence, text.id, 0, "one tw")
        await _add(scene, fence, text.id, 16, "five")
        await _take_over(scene, info)
        assert await _texts(scene, info) == ["one two three "]


async def a_piece_that_is_kept_again_has_grown(database: Database) -> None:
    """If it is unknown whether a piece was stored, it is stored again, with the text that came
    since."""
    async with opened(database) as scene:
        info, fence, text = await _speaking(scene, "")
        await _add(scene, fence, text.id, 0, "one ")
        await _add(scene, fence, text.id, 0, "one two ")
        await _add(scene, fence, text.id, 8, "three")
        await _take_over(scene, info)
        assert await _texts(scene, info) == ["one two three"]


async def a_part_that_is_stored_whole_has_no_pieces(database: Database) -> None:
    """Neither one that goes on, nor one that has ended, nor one that was removed; those of other
    parts stay."""
    async with opened(database) as scene:
        info, fence, text = await _speaking(scene, "")
        message = text.messageID
        ended, gone, other = [changed(text, id=scene.ids.part()) for _ in range(3)]
        for part in (ended, gone, other):
            await scene.put(part)
        for part in (text, ended, gone, other):
            await _add(scene, fence, part.id, 0, "words")
        await scene.write(
            put_part, changed(text, text="words"), now=START, fence=fence, progress=True
        )
        over = changed(ended, text="words", time=PartTime(start=START, end=START))
        await scene.write(put_part, over, now=START, fence=fence)
        await scene.write(remove_part, info.id, message, gone.id, fence=fence)
        assert await scene.read(_kept, info) == [other.id]


async def an_owner_that_lost_its_lease_keeps_no_pieces(database: Database) -> None:
    """Nor one that released it; those of others in the same transaction are stored."""
    async with opened(database) as scene:
        lost, old, one = await _speaking(scene, "so ")
        released, given_back, two = await _speaking(scene, "so ")
        held, fence, three = await _speaking(scene, "so ")
        await scene.acquire(lost, "new", alive=False)
        await scene.write(release_lease, given_back)
        late = [
            Piece(owner, part.id, 3, "late")
            for owner, part in ((old, one), (given_back, two), (fence, three))
        ]
        await scene.write(add_pieces, late)
        assert await scene.read(_kept, lost, released, held) == [three.id]
        for each in (lost, released, held):
            await _take_over(scene, each)
        assert [await _texts(scene, each) for each in (lost, released, held)] == [
            ["so "],
            ["so "],
            ["so late"],
        ]


async def every_end_of_a_run_joins_its_pieces(database: Database) -> None:
    """Whether it fails, is given back, or its session is deleted."""
    async with opened(database) as scene:
        failed, fence, part = await _speaking(scene, "so ")
        await _add(scene, fence, part.id, 3, "far")
        await scene.write(fail_step, failed.id, aborted("stop"), fence=fence, now=START, tell=True)
        assert await _texts(scene, failed) == ["so far"]
        given_back, fence, part = await _speaking(scene, "so ")
        await _add(scene, fence, part.id, 3, "far")
        await scene.write(release_lease, fence)
        assert await _texts(scene, given_back) == ["so far"]
        deleted, fence, part = await _speaking(scene, "so ")
        await _add(scene, fence, part.id, 3, "far")
        await scene.write(stop_and_delete, deleted.id, "new", scene.ids, START)
        assert await scene.read(_kept, failed, given_back, deleted) == []
        await _check_replay(scene)


async def a_fork_has_the_pieces_of_its_origin(database: Database) -> None:
    """The text up to then is in the copy; the origin goes on."""
    async with opened(database) as scene:
        info, fence, text = await _speaking(scene, "so ")
        await scene.put(changed(text, id=scene.ids.part(), text="silent"))
        await _add(scene, fence, text.id, 3, *ODD)
        fork = await scene.fork(info)
        assert await _texts(scene, fork) == ["so " + "".join(ODD), "silent"]
        assert await _texts(scene, info) == ["so ", "silent"]
        assert await scene.read(_kept, info, fork) == [text.id]
        await _check_replay(scene)
        await _take_over(scene, info)
        assert await _texts(scene, info) == ["so " + "".join(ODD), "silent"]


async def a_purged_session_has_no_pieces(database: Database) -> None:
    """Also not those that were stored while another process deleted it."""
    async with opened(database) as scene:
        info, _, text = await _speaking(scene, "")
        await scene.write(stop_and_delete, info.id, "new", scene.ids, START)
        again = await scene.acquire(info, "late", alive=False)
        await _add(scene, again, text.id, 0, "words")
        assert await scene.read(_kept, info) == [text.id]
        assert await scene.write(purge_session, info.id, START)
        assert await scene.read(_kept, info) == []


async def _speaking(scene: Scene, text: str) -> tuple[SessionInfo, Fence, TextPart]:
    """A session whose run is in the middle of a text."""
    info = await scene.add_session()
    message = await scene.add_assistant(info, (await scene.add_user(info)).id)
    part = scene.running_text(message, text)
    await scene.put(part)
    return info, await scene.acquire(info), part


async def _add(scene: Scene, fence: Fence, part_id: str, start: int, *texts: str) -> None:
    """Store texts that follow each other."""
    pieces = []
    for text in texts:
        pieces.append(Piece(fence, part_id, start, text))
        start += len(text)
    await scene.write(add_pieces, pieces)


async def _take_over(scene: Scene, info: SessionInfo) -> None:
    error = aborted("killed")
    await scene.write(
        take_over, info.id, "new", is_alive=lambda owner, late: False, now=START, error=error
    )


async def _texts(scene: Scene, info: SessionInfo) -> Sequence[str]:
    """The texts of the session's answer."""
    (_, (_, parts)) = await scene.messages(info)
    return [part.text for part in parts if isinstance(part, TextPart | ReasoningPart)]


async def _check_replay(scene: Scene) -> None:
    replayed, state = await both(scene.store)
    assert replayed == state


def _kept(*sessions: SessionInfo) -> Script[list[str]]:
    """The parts that have pieces, session by session."""
    found: list[str] = []
    for info in sessions:
        found += [id for (id,) in (yield from rows("piece_parts", session_id=info.id))]
    return found
