"""One session: changing it, its messages, parts and todos; forking it."""

from typing import Any

import pytest

from kedge.domain.errors import (
    InvalidCursor,
    InvalidId,
    InvalidInput,
    MessageNotFound,
    PartNotFound,
    SessionNotFound,
    TooLarge,
)
from kedge.domain.messages import AssistantMessage, MessageTime, UserMessage
from kedge.domain.parts import TextPart
from kedge.domain.permissions import PermissionRule
from kedge.domain.sessions import Todo
from kedge.engine.engine import Engine
from kedge.engine.prompts import NO_MODEL
from kedge.engine.session import Session
from kedge.testing.clock import ManualClock
from tests.engine.engine_factory import EngineFactory, stored_log
from tests.engine.repositories import git

NOW = 1_800_000_000_000


def message(session: Session, id: str, created: int = 0) -> UserMessage:
    """A user message."""
    time = MessageTime(created=created)
    return UserMessage(id=id, sessionID=session.id, time=time, agent="build", model=NO_MODEL)


def text(session: Session, message_id: str, id: str, body: str = "x") -> TextPart:
    """A text part."""
    return TextPart(id=id, sessionID=session.id, messageID=message_id, text=body)


@pytest.mark.parametrize(
    ("change", "touches", "events"),
    [
        ({"title": "new"}, False, 1),
        ({"archived": True}, False, 1),
        ({"archived": -5.5}, False, 1),
        ({"metadata": {"a": 1}}, True, 1),
        ({"permission": [{"permission": "x", "pattern": "*", "action": "ask"}]}, True, 1),
        ({}, False, 0),
        ({"title": "old"}, False, 0),
        ({"archived": False}, False, 0),
        ({"title": "new", "metadata": {}, "archived": True}, True, 3),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_an_update_touches(
    any_place: EngineFactory, change: dict[str, Any], touches: bool, events: int
) -> None:
    """Title and archive leave `time.updated` alone; each changed field gives one event, no change
    none."""
    clock = ManualClock(NOW)
    async with any_place.open(clock=clock) as engine:
        session = await engine.sessions.create("old")
        before = (await stored_log(engine))[-1].seq
        clock.advance(1000)
        await session.update(**change)
        assert session.info.time.updated == NOW + (1000 if touches else 0)
        assert (await engine.sessions.get(session.id)).info == session.info
        log = await stored_log(engine, before)
        assert [event.type for event in log] == ["session.updated"] * events


async def test_a_session_is_archived_and_taken_out_again(any_place: EngineFactory) -> None:
    """The archive time is now or as given, and False removes it."""
    clock = ManualClock(NOW)
    async with any_place.open(clock=clock) as engine:
        session = await engine.sessions.create("s")
        assert (await session.update(archived=True)).info.time.archived == NOW
        assert (await session.update(archived=0)).info.time.archived == 0
        assert [each.id for each in (await engine.sessions.list(archived=True)).sessions]
        assert (await session.update(archived=False)).info.time.archived is None
        assert (await engine.sessions.list(archived=True)).sessions == []


async def test_rules_are_added_and_metadata_replaced(any_engine: Engine) -> None:
    """Permission rules pile up in order; metadata is what was given last."""
    rules = [PermissionRule(permission=name, pattern="*", action="allow") for name in "abc"]
    session = await any_engine.sessions.create("s", permission=rules[:1], metadata={"a": 1})
    await session.update(permission=rules[1:2], metadata={"b": 2})
    await session.update(permission=rules[2:])
    assert (session.info.permission, session.info.metadata) == (rules, {"b": 2})


async def test_a_stale_handle_overwrites_nothing_else(any_engine: Engine) -> None:
    """Two handles that change different things both win."""
    one = await any_engine.sessions.create("old")
    two = await any_engine.sessions.get(one.id)
    await one.update(title="new")
    await two.update(metadata={"a": 1})
    assert (two.info.title, two.info.metadata) == ("new", {"a": 1})
    assert (await one.refresh()).info == two.info


@pytest.mark.parametrize(
    "wrong",
    [{"title": 5}, {"metadata": 5}, {"permission": "x"}, {"archived": "x"}, {"archived": 1e300}],
    ids=lambda value: str(value)[:40],
)
async def test_a_wrong_update_changes_nothing(engine: Engine, wrong: dict[str, Any]) -> None:
    """A typed error, although another field of the same call was fine."""
    session = await engine.sessions.create("old")
    before = await stored_log(engine)
    with pytest.raises(InvalidInput):
        await session.update(**{"title": "new", **wrong})
    assert await stored_log(engine) == before


async def test_messages_keep_the_order_they_came_in(any_engine: Engine) -> None:
    """Creation times rise within a session and never change, whatever ids and clocks say."""
    session = await any_engine.sessions.create("s")
    for id, created in (("msg_f", 100), ("msg_1", 50), ("msg_z", 100)):
        await session.put_message(message(session, id, created))
    await session.put_message(message(session, "msg_f", 900))
    found = (await session.messages()).messages
    assert [(each.info.id, each.info.time.created) for each in found] == [
        ("msg_f", 100),
        ("msg_1", 101),
        ("msg_z", 102),
    ]


async def test_messages_are_paged_both_ways(any_engine: Engine) -> None:
    """Pages of every size cover all messages once, from the newest back and from the oldest on."""
    session = await any_engine.sessions.create("s")
    ids = [f"msg_{n}" for n in range(7)]
    for id in ids:
        await session.put_message(message(session, id))
        await session.put_part(text(session, id, "prt_1", id))
    for limit in (1, 2, 3, 7, 100):
        page = await session.messages(limit=limit)
        back = [each.info.id for each in page.messages]
        while page.older is not None:
            page = await session.messages(limit=limit, before=page.older)
            back = [each.info.id for each in page.messages] + back
        assert back == ids
        forth = [each.info.id for each in page.messages]
        while page.newer is not None:
            page = await session.messages(limit=limit, after=page.newer)
            forth += [each.info.id for each in page.messages]
        assert forth == ids
    assert (await session.messages(limit=0)).messages == []
    with pytest.raises(InvalidCursor):
        await session.messages(before="nonsense")
    with pytest.raises(InvalidInput):
        await session.messages(before="x", after="y")


async def test_parts_are_stored_read_and_removed(any_engine: Engine) -> None:
    """A part is upserted; what is not there is not found, and removing it says so."""
    session = await any_engine.sessions.create("s")
    await session.put_message(message(session, "msg_1"))
    await session.put_part(text(session, "msg_1", "prt_1", "one"))
    await session.put_part(text(session, "msg_1", "prt_1", "two"))
    assert await session.part("msg_1", "prt_1") == text(session, "msg_1", "prt_1", "two")
    with pytest.raises(PartNotFound):
        await session.part("msg_1", "prt_2")
    with pytest.raises(MessageNotFound):
        await session.part("msg_2", "prt_1")
    with pytest.raises(MessageNotFound):
        await session.put_part(text(session, "msg_2", "prt_1"))
    assert [await session.remove_part("msg_1", "prt_1") for _ in range(2)] == [True, False]
    assert [await session.remove_message("msg_1") for _ in range(2)] == [True, False]
    with pytest.raises(MessageNotFound):
        await session.message("msg_1")


async def test_odd_text_survives(any_engine: Engine) -> None:
    """NUL bytes stay, lone surrogates become U+FFFD, and everything can be read back."""
    session = await any_engine.sessions.create("s")
    await session.put_message(message(session, "msg_1"))
    await session.put_part(text(session, "msg_1", "prt_1", "a\0b\ud800c\U0001f600"))
    part = await session.part("msg_1", "prt_1")
    assert isinstance(part, TextPart)
    assert part.text == "a\0b\ufffdc\U0001f600"


async def test_what_is_not_mine_or_malformed_is_refused(engine: Engine) -> None:
    """Ids of another session and ids of the wrong form are typed errors."""
    session, other = [await engine.sessions.create(name) for name in "ab"]
    with pytest.raises(InvalidInput, match="belongs to"):
        await session.put_message(message(other, "msg_1"))
    with pytest.raises(InvalidInput, match="belongs to"):
        await session.put_part(text(other, "msg_1", "prt_1"))
    with pytest.raises(InvalidId):
        await session.put_message(message(session, "msg 1"))
    with pytest.raises(InvalidId):
        await session.put_part(text(session, "msg_1", "x"))
    for attempt in (session.message("x"), session.remove_message("x"), session.part("msg_1", "x")):
        with pytest.raises(InvalidId):
            await attempt
    with pytest.raises(InvalidId):
        session.delta("x", "prt_1", "d", offset=0)


async def test_a_part_of_50_megabytes_is_refused(engine: Engine) -> None:
    """What is too large is one typed error, and nothing is stored."""
    session = await engine.sessions.create("s")
    await session.put_message(message(session, "msg_1"))
    with pytest.raises(TooLarge):
        await session.put_part(text(session, "msg_1", "prt_1", "x" * 50_000_000))
    assert (await session.message("msg_1")).parts == []


async def test_todos_are_replaced_and_kept(any_engine: Engine) -> None:
    """The list is always replaced whole; each version is kept with the message that wrote it."""
    session = await any_engine.sessions.create("s")
    await session.put_message(message(session, "msg_1"))
    one = [Todo(content="a", status="pending", priority="low")]
    await session.set_todos(one)
    await session.set_todos([], message_id="msg_1")
    assert await session.todos() == []
    history = [(each.messageID, each.todos) for each in await session.todo_history()]
    assert history == [(None, one), ("msg_1", [])]
    with pytest.raises(MessageNotFound):
        await session.set_todos([], message_id="msg_2")


async def test_a_fork_holds_what_came_before(any_engine: Engine) -> None:
    """A fork at a message has copies of everything before it, with new ids, old times and its
    todos."""
    session = await any_engine.sessions.create("Trip", metadata={"a": 1})
    for n in range(3):
        async with session.turn(f"prompt {n}") as turn, turn.step() as step:
            step.cost = 1
            await step.set_todos([Todo(content=str(n), status="pending", priority="low")])
    originals = (await session.messages()).messages
    before = (await stored_log(any_engine))[-1].seq
    fork = await session.fork(originals[4].info.id)
    assert [event.type for event in await stored_log(any_engine, before)] == ["session.created"]
    copies = (await fork.messages()).messages
    assert [each.info.time for each in copies] == [each.info.time for each in originals[:4]]
    assert not {each.info.id for each in copies} & {each.info.id for each in originals}
    prompt, answer = copies[0].info, copies[1].info
    assert isinstance(answer, AssistantMessage)
    assert answer.parentID == prompt.id
    assert [todo.content for todo in await fork.todos()] == ["1"]
    assert (fork.title, fork.info.metadata, fork.info.cost) == ("Trip (fork #1)", {"a": 1}, 2)
    assert fork.origin is not None
    assert (fork.origin.sessionID, fork.origin.messageID) == (session.id, originals[4].info.id)
    whole = await fork.fork()
    assert (whole.title, len((await whole.messages()).messages)) == ("Trip (fork #2)", 4)
    with pytest.raises(MessageNotFound):
        await session.fork("msg_unknown")


async def test_a_fork_of_a_running_session_is_closed(any_engine: Engine) -> None:
    """What runs in the origin is not running in the copy, and the origin goes on undisturbed."""
    session = await any_engine.sessions.create("s")
    async with session.turn("Go") as turn, turn.step() as step, step.tool("bash", {}):
        fork = await session.fork()
        (_, answer) = (await fork.messages()).messages
        assert isinstance(answer.info, AssistantMessage)
        assert answer.info.error is not None
        async with fork.turn("Mine"):
            pass
    (_, original) = (await session.messages()).messages
    assert isinstance(original.info, AssistantMessage)
    assert original.info.error is None


async def test_the_status_of_a_session_that_is_not_there_is_an_error(any_engine: Engine) -> None:
    """A session that does not exist is not idle."""
    session = await any_engine.sessions.create("s")
    await session.delete()
    with pytest.raises(SessionNotFound):
        await session.status()
    with pytest.raises(SessionNotFound):
        await session.abort()


async def test_several_changes_are_one_transaction(any_engine: Engine) -> None:
    """If one of the changes is refused, none is made; each that is made has its event."""
    session = await any_engine.sessions.create("s")
    with pytest.raises(TooLarge):
        await session.update(title="new", metadata={"large": "x" * 2**21})
    assert (await session.refresh()).title == "s"
    async with any_engine.events.subscribe(session=session.id) as events:
        await session.update(title="new", metadata={"a": 1}, archived=True)
        told = [await anext(events) for _ in range(3)]
    assert [event.type for event in told] == ["session.updated"] * 3


async def test_a_session_knows_its_worktree(place: EngineFactory) -> None:
    """The root is the directory without the path that leads to it."""
    below = place.folder / "a" / "b"
    below.mkdir(parents=True)
    git(place.folder, "init", "-q")
    async with EngineFactory(below, place.database).open() as engine:
        session = await engine.sessions.create("s")
        assert session.info.path == "a/b"
        assert session.worktree == str(place.folder)
