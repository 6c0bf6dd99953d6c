"""Hands wrong things to every method of the engine: each is refused and leaves no trace."""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import kedge
from kedge.domain.errors import (
    InternalError,
    InvalidInput,
    KedgeError,
    SessionNotFound,
    TooLarge,
)
from kedge.domain.messages import AssistantMessage, MessageModel, MessageTime, UserMessage
from kedge.domain.parts import TextPart
from kedge.domain.sessions import Todo
from kedge.testing.replay import both

Call = Callable[[Any], Any]
"""Hands one value to one parameter; what it gives is awaited or entered."""

NO_STRINGS = [7, 1.5, True, b"bytes", {}, [], object()]
BAD_IDS = [
    "", "x", "s", "\0", "é", 7, b"ses_x", {}, [], object(), "ses_ space", "ses_\0", "msg_\n",
    "prt_é", "ses_\ud800", "msg_\ud800", "ses_" + "a" * 500, "msg_" + "a" * 500, "prt_" + "a" * 500,
]  # fmt: skip
BAD_LIMITS = [-1, 10_001, 2**70, True, 1.5, float("nan"), "5", None, b"5"]
BAD_METADATA: list[Any] = [
    7, "text", [], b"bytes", {"a": object()}, {"a": float("nan")}, {"a": float("inf")},
    {"a": 2**70},
    {"a": [[float("nan")]]}, {"a": lambda: None}, {("a", "b"): 1},
]  # fmt: skip


def deep(levels: int) -> dict[str, Any]:
    """An object with this many objects in each other."""
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@dataclass
class Scene:
    """An engine with one session that has a message with a part."""

    engine: kedge.Engine
    session: kedge.Session
    message: UserMessage
    part: TextPart

    def with_part(self, **fields: Any) -> TextPart:  # noqa: ANN401 - wrong types are the point
        """The part, but with other fields."""
        return msgspec.structs.replace(self.part, **fields)

    def with_message(self, **fields: Any) -> UserMessage:  # noqa: ANN401 - as above
        """The message, but with other fields."""
        return msgspec.structs.replace(self.message, **fields)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each kind."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "data" / "kedge.db")


@pytest.fixture
async def scene(database: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """Something to do wrong things to."""
    async with kedge.open(tmp_path, database=database) as engine:
        session = await engine.sessions.create("a title", metadata={"kept": 1})
        message = UserMessage(
            id=engine.ids.message(),
            sessionID=session.id,
            time=MessageTime(created=engine.clock.now()),
            agent="build",
            model=MessageModel(providerID="p", modelID="m"),
        )
        await session.put_message(message)
        part = TextPart(
            id=engine.ids.part(), sessionID=session.id, messageID=message.id, text="kept"
        )
        await session.put_part(part)
        yield Scene(engine, session, message, part)


async def outcome(call: Call, value: object) -> str:
    """What came of a call: "refused", or what else."""
    try:
        result = call(value)
        if inspect.isawaitable(result):
            result = await result
        elif isinstance(result, AbstractAsyncContextManager) or hasattr(result, "__aenter__"):
            async with result:
                pass
    except InternalError as error:
        return repr(error)
    except KedgeError as error:
        return "refused" if str(error) else "no message"
    except Exception as error:  # noqa: BLE001 - any other is what the test is about
        return repr(error)
    return f"gave {result!r:.80}"


async def check_refused(scene: Scene, calls: dict[str, Call], values: list[Any]) -> None:
    """Each call refuses each value, and the database says the same as before."""
    before = await both(scene.engine.store)
    wrong = [
        f"{name} with {value!r:.40}: {found}"
        for name, call in calls.items()
        for value in values
        if (found := await outcome(call, value)) != "refused"
    ]
    assert wrong == []
    assert await both(scene.engine.store) == before


async def test_malformed_ids_are_refused(scene: Scene) -> None:
    """An id that cannot be one is refused wherever an id is taken."""
    engine, session, message, part = scene.engine, scene.session, scene.message, scene.part
    todo = Todo(content="c", status="pending", priority="low")
    calls: dict[str, Call] = {
        "get": engine.sessions.get,
        "restore": engine.sessions.restore,
        "create id": lambda id: engine.sessions.create(id=id),
        "create parent": lambda id: engine.sessions.create(parent=id),
        "subscribe session": lambda id: engine.events.subscribe(session=id),
        "message": session.message,
        "part message": lambda id: session.part(id, part.id),
        "part": lambda id: session.part(message.id, id),
        "fork": session.fork,
        "remove_message": session.remove_message,
        "remove_part message": lambda id: session.remove_part(id, part.id),
        "remove_part": lambda id: session.remove_part(message.id, id),
        "delta message": lambda id: session.delta(id, part.id, "x", offset=0),
        "delta part": lambda id: session.delta(message.id, id, "x", offset=0),
        "todos": lambda id: session.set_todos([todo], message_id=id),
        "turn": lambda id: session.turn("x", message_id=id),
        "put_message": lambda id: session.put_message(scene.with_message(id=id)),
        "put_message session": lambda id: session.put_message(scene.with_message(sessionID=id)),
        "put_part": lambda id: session.put_part(scene.with_part(id=id)),
        "put_part message": lambda id: session.put_part(scene.with_part(messageID=id)),
        "put_part session": lambda id: session.put_part(scene.with_part(sessionID=id)),
    }
    await check_refused(scene, calls, BAD_IDS)


async def test_none_is_no_id(scene: Scene) -> None:
    """None is refused where an id is not optional."""
    session, message, part = scene.session, scene.message, scene.part
    calls: dict[str, Call] = {
        "get": scene.engine.sessions.get,
        "restore": scene.engine.sessions.restore,
        "message": session.message,
        "part message": lambda id: session.part(id, part.id),
        "part": lambda id: session.part(message.id, id),
        "remove_message": session.remove_message,
        "remove_part": lambda id: session.remove_part(message.id, id),
        "put_message": session.put_message,
        "put_part": session.put_part,
        "set_todos": session.set_todos,
        "turn": session.turn,
        "search": scene.engine.sessions.search,
        "locate": scene.engine.locate,
    }
    await check_refused(scene, calls, [None])


async def test_unknown_ids_are_not_found(scene: Scene) -> None:
    """An id that names nothing is an error with the id in it, or said to be absent."""
    engine, session = scene.engine, scene.session
    ids = engine.ids
    calls: dict[str, Call] = {
        "get": lambda _: engine.sessions.get(ids.session()),
        "restore": lambda _: engine.sessions.restore(ids.session()),
        "parent": lambda _: engine.sessions.create(parent=ids.session()),
        "message": lambda _: session.message(ids.message()),
        "part message": lambda _: session.part(ids.message(), scene.part.id),
        "part": lambda _: session.part(scene.message.id, ids.part()),
        "fork": lambda _: session.fork(ids.message()),
        "todos": lambda _: session.set_todos([], message_id=ids.message()),
        "put_part": lambda _: session.put_part(scene.with_part(messageID=ids.message())),
    }
    await check_refused(scene, calls, [None])


async def test_a_session_that_is_gone_is_not_found(scene: Scene) -> None:
    """A handle whose session was never stored says in every method that there is none."""
    info = msgspec.structs.replace(scene.session.info, id=scene.engine.ids.session())
    gone = kedge.Session(scene.engine, info)
    calls: list[Callable[[], Any]] = [
        gone.refresh,
        gone.delete,
        gone.fork,
        gone.messages,
        gone.todos,
        gone.todo_history,
        gone.children,
        gone.forks,
        lambda: gone.update(title="x"),
        lambda: gone.message(scene.message.id),
        lambda: gone.remove_message(scene.message.id),
        lambda: gone.remove_part(scene.message.id, scene.part.id),
        lambda: gone.put_message(scene.with_message(sessionID=gone.id)),
        lambda: gone.put_part(scene.with_part(sessionID=gone.id)),
        lambda: gone.set_todos([]),
        lambda: gone.turn("x").__aenter__(),
    ]
    before = await both(scene.engine.store)
    for call in calls:
        with pytest.raises(SessionNotFound, match=gone.id):
            await call()
    assert await both(scene.engine.store) == before


async def test_wrong_limits_are_refused(scene: Scene) -> None:
    """A limit is a whole number from 0 to 10,000."""
    sessions = scene.engine.sessions
    calls: dict[str, Call] = {
        "list": lambda limit: sessions.list(limit=limit),
        "search": lambda limit: sessions.search("x", limit=limit),
        "deleted": lambda limit: sessions.deleted(limit=limit),
        "messages": lambda limit: scene.session.messages(limit=limit),
    }
    await check_refused(scene, calls, BAD_LIMITS)


async def test_forged_cursors_are_refused(scene: Scene) -> None:
    """Only a cursor of the right kind is taken."""
    sessions, session, events = scene.engine.sessions, scene.session, scene.engine.events
    await sessions.create("another")
    page = (await sessions.list(limit=1)).cursor
    event = await events.head()
    assert page is not None
    forged = ["", "x", "é", "=", "W10", "e30", "bnVsbA", page[:-3], page[1:], page * 40, "a" * 600]
    no_cursors = [7, True, b"x", {}, object(), *forged]
    pages: dict[str, Call] = {
        "list": lambda cursor: sessions.list(cursor=cursor),
        "search": lambda cursor: sessions.search("title", cursor=cursor),
        "list search": lambda cursor: sessions.list(search="title", cursor=cursor),
        "deleted": lambda cursor: sessions.deleted(cursor=cursor),
        "before": lambda cursor: session.messages(before=cursor),
        "after": lambda cursor: session.messages(after=cursor),
    }
    await check_refused(scene, pages, [*no_cursors, event])
    logs: dict[str, Call] = {"subscribe": lambda cursor: events.subscribe(after=cursor)}
    epoch = event.partition("-")[0]
    wrong = [
        page,
        epoch,
        f"{epoch}-",
        f"{epoch}--1",
        f"{epoch}-01",
        f"{epoch}-{2**63}",
        f"{event} ",
    ]
    await check_refused(scene, logs, [*no_cursors, *wrong])


async def test_what_is_no_text_is_refused(scene: Scene) -> None:
    """Where text is wanted, nothing else is taken."""
    sessions, session, part = scene.engine.sessions, scene.session, scene.part
    calls: dict[str, Call] = {
        "title": sessions.create,
        "agent": lambda text: sessions.create(agent=text),
        "update": lambda text: session.update(title=text),
        "search": sessions.search,
        "list search": lambda text: sessions.list(search=text),
        "list path": lambda text: sessions.list(path=text),
        "delta": lambda text: session.delta(part.messageID, part.id, text, offset=0),
        "turn agent": lambda text: session.turn("x", agent=text),
        "put_part text": lambda text: session.put_part(scene.with_part(text=text)),
        "put_message agent": lambda text: session.put_message(scene.with_message(agent=text)),
        "todo": lambda text: session.set_todos([Todo(content=text, status="x", priority="y")]),
        "subscribe directory": lambda text: scene.engine.events.subscribe(directory=text),
    }
    await check_refused(scene, calls, NO_STRINGS)


async def test_values_of_the_wrong_kind_are_refused(scene: Scene) -> None:
    """What is not a message, part, todo list, rule, model, time or flag is not taken for one."""
    sessions, session = scene.engine.sessions, scene.session
    calls: dict[str, Call] = {
        "put_message": session.put_message,
        "put_part": session.put_part,
        "put_message part": lambda _: session.put_message(scene.part),  # type: ignore[arg-type]
        "put_part message": lambda _: session.put_part(scene.message),  # type: ignore[arg-type]
        "todos": session.set_todos,
        "todo": lambda value: session.set_todos([value]),
        "permission": lambda value: sessions.create(permission=value),
        "rule": lambda value: sessions.create(permission=[value]),
        "update permission": lambda value: session.update(permission=value),
        "model": lambda value: sessions.create(model=value),
        "turn model": lambda value: session.turn("x", model=value),
        "turn part": lambda value: session.turn([value]),
        "archived": lambda value: session.update(archived=value),
        "start": lambda value: sessions.list(start=value),
        "roots": lambda value: sessions.list(roots=value),
        "list archived": lambda value: sessions.list(archived=value),
        "everywhere": lambda value: sessions.list(everywhere=value),
        "offset": lambda value: session.delta(scene.message.id, scene.part.id, "x", offset=value),
    }
    await check_refused(scene, calls, ["text", b"bytes", float("nan"), {"a": 1}, object()])


async def test_metadata_that_is_no_json_is_refused(scene: Scene) -> None:
    """Metadata is an object of JSON values with finite numbers of at most 64 bits, not too deep."""
    sessions, session = scene.engine.sessions, scene.session
    calls: dict[str, Call] = {
        "create": lambda value: sessions.create(metadata=value),
        "update": lambda value: session.update(metadata=value),
        "put_part": lambda value: session.put_part(scene.with_part(metadata=value)),
    }
    await check_refused(scene, calls, [*BAD_METADATA, deep(500), deep(100_000)])


async def test_a_part_of_50_mb_is_too_large(scene: Scene) -> None:
    """A part that is too large is refused whole, and the engine goes on."""
    before = await both(scene.engine.store)
    for text in ("x" * 50_000_000, "é" * 20_000_000, "\0" * 10_000_000):
        with pytest.raises(TooLarge):
            await scene.session.put_part(scene.with_part(text=text))
    assert await both(scene.engine.store) == before
    await scene.session.put_part(scene.with_part(text="after"))
    assert (await scene.session.part(scene.message.id, scene.part.id)) == scene.with_part(
        text="after"
    )


async def test_a_session_object_that_is_too_large_is_refused(scene: Scene) -> None:
    """A session is repeated in every event about it, so it must be small."""
    sessions, session = scene.engine.sessions, scene.session
    calls: dict[str, Call] = {
        "title": sessions.create,
        "update": lambda text: session.update(title=text),
        "metadata": lambda text: session.update(metadata={"a": text}),
        "todos": lambda text: session.set_todos([Todo(content=text, status="", priority="")]),
    }
    await check_refused(scene, calls, ["x" * 2_000_000])


NASTY = "a\0b\ud800c\udfff\ud83d\ude00\x01\x7f\u2028"
MENDED = "a\0b\ufffdc\ufffd\U0001f600\x01\x7f\u2028"


async def test_nul_and_lone_surrogates_are_kept_or_mended(scene: Scene) -> None:
    """NUL survives everywhere; half a character becomes U+FFFD, in every text there is."""
    engine = scene.engine
    session = await engine.sessions.create(
        NASTY, agent=NASTY, metadata={NASTY: [NASTY, {"deep": NASTY}]}
    )
    assert session.title == MENDED
    await session.set_todos([Todo(content=NASTY, status=NASTY, priority=NASTY)])
    async with session.turn(NASTY, agent=NASTY) as turn, turn.step() as step:
        await step.text(NASTY)
        async with step.speak() as out:
            await out.write(NASTY)
        async with step.tool(NASTY, {NASTY: NASTY}, call_id=NASTY) as call:
            call.output = call.title = NASTY
            call.metadata = {NASTY: NASTY}
        async with step.tool("fails", {}) as call:
            call.fail(NASTY)
        await turn.retrying(1, NASTY, 5)
        step.finish = NASTY
    await session.update(title=NASTY, metadata={"a": NASTY})
    fork = await session.fork()
    replayed, stored = await both(engine.store)
    assert replayed == stored
    for each in (session, fork):
        text = repr(stored.sessions[each.id])
        assert "\\ud800" not in text
        assert "\\ufffd" in ascii(text)
    todos = [Todo(content=MENDED, status=MENDED, priority=MENDED)]
    assert await session.todos() == todos
    assert len((await session.messages()).messages) == 2
    await engine.sessions.search(NASTY)
    await engine.sessions.list(search=NASTY)


async def test_a_turn_refuses_wrong_things_and_can_go_on(scene: Scene) -> None:
    """Inside a turn a wrong value is refused where it is given; the turn itself is still good."""
    session = scene.session
    async with session.turn("prompt") as turn, turn.step() as step:
        calls: dict[str, Call] = {
            "text": step.text,
            "tool": lambda value: step.tool(value, {}),
            "tool input": lambda value: step.tool("x", value),
            "call id": lambda value: step.tool("x", {}, call_id=value),
            "todos": step.set_todos,
            "step model": lambda value: turn.step(model=value),
            "status": turn.set_status,
            "retry": lambda value: turn.retrying(value, "x", 5),
            "retry message": lambda value: turn.retrying(1, value, 5),
            "retry next": lambda value: turn.retrying(1, "x", value),
        }
        await check_refused(scene, calls, [7.5, b"bytes", object(), ["x"]])
        await step.text("good")
    found = (await session.messages()).messages[-1]
    assert isinstance(found.info, AssistantMessage)
    assert found.info.finish == "stop"


async def _step_with(session: kedge.Session, cost: Any, tokens: Any) -> None:  # noqa: ANN401
    async with session.turn("prompt") as turn, turn.step() as step:
        step.cost = cost
        step.tokens = tokens or step.tokens


async def test_a_step_with_wrong_totals_ends_with_an_error(scene: Scene) -> None:
    """Totals that are no numbers are refused when the step ends, and nothing stays open."""
    for cost, tokens in ((float("nan"), None), ("x", None), (0, "tokens")):
        with pytest.raises(InvalidInput):
            await _step_with(scene.session, cost, tokens)
        assert await scene.engine.statuses() == {}
    replayed, stored = await both(scene.engine.store)
    assert replayed == stored
    assert "NaN" not in repr(stored)
    assert (await scene.session.messages()).messages[-1].info.time.created


@pytest.mark.parametrize("name", ["directory", "data_dir", "database", "settings"])
async def test_open_refuses_what_it_cannot_use(name: str, tmp_path: Path) -> None:
    """Each parameter of `kedge.open` refuses what it cannot use."""
    for value in (7, b"\xff", object(), ["x"], "nul\0byte"):
        given = {"directory": tmp_path, "data_dir": tmp_path / "data", name: value}
        with pytest.raises(KedgeError):
            async with kedge.open(**given):  # type: ignore[arg-type]
                pass


@pytest.mark.parametrize("address", ["mysql://u:secret@host/db", "postgresql://\0"])
async def test_an_address_of_no_database_is_refused(address: str, tmp_path: Path) -> None:
    """An address that leads nowhere is refused without telling the password."""
    with pytest.raises(KedgeError) as caught:
        async with kedge.open(tmp_path, database=address):
            pass
    assert "secret" not in str(caught.value)
