"""The replay model itself: it sees what is missing, whatever order entities come in."""

from pathlib import Path

import pytest

from kedge.domain.ids import IdMaker
from kedge.store.port import StoredEvent
from kedge.store.queries.asks import AskAnswer, add_ask, answer_permission
from kedge.store.queries.messages import put_message, remove_message
from kedge.store.queries.sessions import delete_session
from kedge.store.sqlite.store import SqliteStore
from kedge.testing.replay import Replay, both, replayed, state_of
from kedge.testing.state import State
from kedge.testing.store import asks
from kedge.testing.store.scene import START, Scene


async def life(path: Path) -> tuple[list[StoredEvent], State]:
    """The log and the tables of a database in which every event counts."""
    store = await SqliteStore.open(path / "kedge.db", IdMaker())
    try:
        scene = Scene(store)
        info = await scene.add_session()
        user = scene.user(info)
        await scene.write(put_message, user)
        await scene.add_text(user, "one")
        fence = await scene.acquire(info)
        asked = [asks.permission(scene, info, "ls"), asks.permission(scene, info, "rm x")]
        for request in asked:
            await scene.write(add_ask, request, fence=fence, is_open=asks.THERE.is_open, now=START)
        await scene.write(
            answer_permission, asked[0].id, AskAnswer(reply="once"), owners=asks.THERE, now=START
        )
        await scene.fork(info)
        gone = await scene.add_session()
        doomed = scene.user(info)
        await scene.write(put_message, doomed)
        await scene.write(remove_message, info.id, doomed.id)
        await scene.write(delete_session, gone.id, START)
        assert await replayed(store) == await state_of(store)
        return await scene.events(), (await both(store))[1]
    finally:
        await store.close()


async def test_a_lost_event_is_seen(tmp_path: Path) -> None:
    """Leaving out any event that left something behind gives another state."""
    events, state = await life(tmp_path)
    assert Replay().apply_all(events).state() == state
    seen = []
    for n, event in enumerate(events):
        rest = events[:n] + events[n + 1 :]
        if Replay().apply_all(rest).state() != state:
            seen.append(event.type)
    assert seen == [
        "session.created",
        "message.updated",
        "message.part.updated",
        "session.status",
        "permission.asked",
        "permission.replied",
        "session.created",
        "session.created",
        "message.removed",
        "session.deleted",
    ]


async def test_json_text_is_taken_as_well(tmp_path: Path) -> None:
    """What comes over the wire can be replayed as it is."""
    events, state = await life(tmp_path)
    assert Replay().apply_all(event.payload for event in events).state() == state


async def test_a_part_may_come_before_its_message(tmp_path: Path) -> None:
    """As it does after compaction, when the message was changed last."""
    events, state = await life(tmp_path)
    created, message, part, *rest = events
    assert Replay().apply_all([created, part, message, *rest]).state() == state


async def test_a_part_without_a_message_is_told(tmp_path: Path) -> None:
    """It is no part of any message, but it does not vanish from the comparison."""
    events, _ = await life(tmp_path)
    created, _, part, *_ = events
    [session] = Replay().apply_all([created, part]).state().sessions.values()
    assert (session.messages, len(session.strays)) == ([], 1)


@pytest.mark.parametrize("text", ["two", "one "])
async def test_a_different_text_is_seen(tmp_path: Path, text: str) -> None:
    """States are equal only if all their values are."""
    events, state = await life(tmp_path)
    other = [
        changed_payload(event, text) if event.type == "message.part.updated" else event.payload
        for event in events
    ]
    assert Replay().apply_all(other).state() != state


def changed_payload(event: StoredEvent, text: str) -> str:
    """The event's JSON with another text in its part."""
    payload = event.payload.replace('"text":"one"', f'"text":"{text}"')
    assert payload != event.payload
    return payload
