"""Permissions and questions: asked by a run, answered by anybody, and gone when the run is."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import msgspec
import pytest

from kedge import Settings
from kedge.domain import wire
from kedge.domain.errors import (
    EngineClosed,
    InvalidId,
    InvalidInput,
    LeaseLost,
    PermissionNotFound,
    QuestionNotFound,
    QuestionRejected,
    SessionNotFound,
    StoreUnavailable,
    TurnAborted,
)
from kedge.domain.permissions import PermissionRule, ToolCallRef
from kedge.domain.questions import QuestionInfo, QuestionOption
from kedge.domain.sessions import Idle
from kedge.domain.wire_errors import aborted
from kedge.engine import asks
from kedge.engine.asks import Reply
from kedge.engine.engine import Engine
from kedge.engine.os_process import Owner
from kedge.engine.session import Session
from kedge.engine.turns import Turn
from kedge.store.queries.asks import AskAnswer, answer_permission
from kedge.store.queries.grants import RuleHolder
from kedge.store.queries.leases import renew_leases, take_over
from kedge.store.transaction import ScriptMaker, rows
from tests.engine.engine_factory import EngineFactory, stored_log
from tests.engine.engine_processes import Child
from tests.engine.event_log_fake import cycles
from tests.support.timeouts import PATIENCE

T = TypeVar("T")
WHICH = QuestionInfo(
    question="Which?",
    header="Which",
    options=[QuestionOption(label="Red"), QuestionOption(label="Blue")],
)


async def asked(engine: Engine, session: Session, count: int = 1) -> list[str]:
    """The ids of what the session has ever asked, as soon as it is so many, in their order."""
    ids: list[str] = []
    everything = engine.events.subscribe(after=engine.events.start, session=session.id)
    async with asyncio.timeout(PATIENCE), everything as events:
        async for event in events:
            if event.type in ("permission.asked", "question.asked"):
                ids.append(event.properties.id)  # type: ignore[union-attr]  # of these types
                if len(ids) == count:
                    break
    return ids


async def ends(engine: Engine, session: Session) -> list[tuple[str, str]]:
    """How the asks of a session ended, as was announced: which one, and the reply to it."""
    found = []
    for event in await stored_log(engine):
        properties: Any = engine.events.event_of(event).properties
        if event.session_id == session.id and event.type in (
            "permission.replied",
            "question.replied",
            "question.rejected",
        ):
            found.append((properties.requestID, getattr(properties, "reply", event.type)))
    return found


@asynccontextmanager
async def waiting(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Something that waits for an answer while the block runs; it has ended after it."""
    task = asyncio.create_task(work, name="waiting")
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
        await asyncio.wait({task})


def ls(engine: Engine, turn: Turn, word: str = "ls") -> Coroutine[Any, Any, Reply]:
    """Ask for a command."""
    return engine.asks.permission(turn, "bash", [f"{word} x"], always=[f"{word} *"])


async def test_a_reply_comes_from_another_engine(any_place: EngineFactory) -> None:
    """What one engine asks, another on the same database lists and answers."""
    async with any_place.open() as engine, any_place.open() as other:
        session = await engine.sessions.create("s")
        tool = ToolCallRef(messageID="msg_1", callID="call_1")
        async with session.turn("Work") as turn:
            ask = engine.asks.permission(
                turn, "edit", ["a.txt"], always=["*"], metadata={"diff": "+a"}, tool=tool
            )
            async with waiting(ask) as task:
                [id] = await asked(other, session)
                [request] = await other.asks.permissions()
                assert (request.id, request.permission, request.patterns) == (id, "edit", ["a.txt"])
                assert (request.metadata, request.always, request.tool) == (
                    {"diff": "+a"},
                    ["*"],
                    tool,
                )
                assert not task.done()
                await other.asks.reply_permission(id, "once")
                assert await task == Reply("once")
            assert await engine.asks.permissions() == []
        assert await ends(engine, session) == [(id, "once")]


async def test_a_reply_comes_from_another_process(
    any_place: EngineFactory, children: AsyncExitStack
) -> None:
    """In both directions."""
    async with any_place.open() as engine:
        session = await engine.sessions.create("s")
        child = await children.enter_async_context(Child(any_place, "ask", session.id))
        assert await child.hear() == "asking"
        ids = {id[:3]: id for id in await asked(engine, session, 2)}
        await engine.asks.reply_question(ids["que"], [["Red"]])
        await engine.asks.reply_permission(ids["per"], "always")
        assert await child.hear() == ["always", [["Red"]]]
        mine = await engine.sessions.create("mine")
        async with mine.turn("Work") as turn, waiting(ls(engine, turn, "rm")) as task:
            [id] = await asked(engine, mine)
            helper = await children.enter_async_context(Child(any_place, "reply", id))
            assert await helper.hear() == "replied"
            assert await task == Reply("once")


async def test_what_a_killed_process_asked_is_withdrawn(
    any_place: EngineFactory, children: AsyncExitStack
) -> None:
    """Whoever opens the database next sees no dialog that nobody waits behind."""
    async with any_place.open() as engine:
        session = await engine.sessions.create("s")
        child = await children.enter_async_context(Child(any_place, "ask", session.id))
        assert await child.hear() == "asking"
        ids = await asked(engine, session, 2)
        await child.kill()
    async with any_place.open() as engine:
        assert engine.recovery.sessions == [session.id]
        assert await engine.asks.permissions() == []
        assert await engine.asks.questions() == []
        found = await engine.sessions.get(session.id)
        assert {id for id, _ in await ends(engine, found)} == set(ids)
        permission = next(id for id in ids if id.startswith("per"))
        assert (permission, "reject") in await ends(engine, found)
        with pytest.raises(PermissionNotFound):
            await engine.asks.reply_permission(permission, "once")
        async with found.turn("Go on"):
            assert await engine.asks.permissions() == []


async def test_nobody_answers_a_killed_process(
    any_place: EngineFactory, children: AsyncExitStack
) -> None:
    """From the moment of its death on: an answer that nothing comes of is not acknowledged, and
    what it asked is no longer listed, though nobody has recovered its session yet."""
    async with any_place.open() as engine:
        await engine.upkeep.close()
        session = await engine.sessions.create("s")
        child = await children.enter_async_context(Child(any_place, "ask", session.id))
        assert await child.hear() == "asking"
        ids = {id[:3]: id for id in await asked(engine, session, 2)}
        await child.kill()
        assert await engine.asks.permissions() == []
        assert await engine.asks.questions() == []
        with pytest.raises(PermissionNotFound):
            await engine.asks.reply_permission(ids["per"], "always")
        with pytest.raises(QuestionNotFound):
            await engine.asks.reply_question(ids["que"], [["Red"]])
        with pytest.raises(QuestionNotFound):
            await engine.asks.reject_question(ids["que"])
        assert await engine.asks.allowed() == []
        assert await ends(engine, session) == []


async def test_an_abort_withdraws(any_engine: Engine) -> None:
    """When it has returned, the session is idle and nothing is listed any more."""
    session = await any_engine.sessions.create("s")

    async def work() -> None:
        async with session.turn("Work") as turn, turn.step(), asyncio.TaskGroup() as tasks:
            tasks.create_task(ls(any_engine, turn))
            tasks.create_task(any_engine.asks.question(turn, [WHICH]))

    async with waiting(work()) as task:
        ids = await asked(any_engine, session, 2)
        assert await session.abort()
        assert await session.status() == Idle()
        assert await any_engine.asks.permissions() == []
        assert await any_engine.asks.questions() == []
        assert {id for id, _ in await ends(any_engine, session)} == set(ids)
        with pytest.raises(TurnAborted):
            await task


async def test_deleting_the_session_withdraws(any_place: EngineFactory) -> None:
    """From whatever engine; the run hears of it as of an abort."""
    async with any_place.open() as engine, any_place.open() as other:
        session = await engine.sessions.create("s")

        async def work() -> None:
            async with session.turn("Work") as turn:
                await ls(engine, turn)

        async with waiting(work()) as task:
            [id] = await asked(other, session)
            await (await other.sessions.get(session.id)).delete()
            assert await other.asks.permissions() == []
            assert await ends(other, session) == [(id, "reject")]
            with pytest.raises(TurnAborted):
                await task


async def test_closing_the_engine_withdraws(place: EngineFactory) -> None:
    """What it asked is answered for everybody else before it is gone."""
    async with place.open() as other:
        async with place.open() as engine:
            session = await engine.sessions.create("s")

            async def work() -> None:
                async with session.turn("Work") as turn:
                    await ls(engine, turn)

            task = asyncio.create_task(work())
            [id] = await asked(engine, session)
        with pytest.raises(TurnAborted):
            await task
        assert await other.asks.permissions() == []
        assert await ends(other, session) == [(id, "reject")]
        with pytest.raises(EngineClosed):
            await engine.asks.reply_permission(id, "once")


async def test_a_call_that_stops_waiting_withdraws(any_engine: Engine) -> None:
    """Only its own ask; the turn goes on."""
    session = await any_engine.sessions.create("s")
    async with session.turn("Work") as turn, waiting(ls(any_engine, turn)) as kept:
        await asked(any_engine, session)
        async with waiting(ls(any_engine, turn, "rm")) as task:
            first, second = await asked(any_engine, session, 2)
            task.cancel()
        assert task.cancelled()
        assert await ends(any_engine, session) == [(second, "reject")]
        await any_engine.asks.reply_permission(first, "once")
        assert await kept == Reply("once")


async def test_wherever_it_is_cancelled_nothing_is_left(engine: Engine) -> None:
    """Before the ask is stored, while it is, or after."""
    session = await engine.sessions.create("s")
    async with session.turn("Work") as turn:
        for n in range(60):
            async with waiting(ls(engine, turn, f"word{n}")) as task:
                await cycles(n)
                task.cancel()
            assert task.cancelled()
            assert await engine.asks.permissions() == []


async def test_a_run_that_was_taken_over_hears_it(any_engine: Engine) -> None:
    """Its ask was withdrawn by whoever thought it dead; it must not go on."""
    session = await any_engine.sessions.create("s")

    async def work() -> None:
        async with session.turn("Work") as turn:
            await ls(any_engine, turn)

    async with waiting(work()) as task:
        await asked(any_engine, session)
        gone = aborted("gone")
        thief = partial(
            take_over, session.id, "other", is_alive=lambda *_: False, now=0, error=gone
        )
        assert await any_engine.store.write(thief)
        with pytest.raises(LeaseLost):
            await task


async def test_a_rejection_says_so_to_all_calls_of_the_session(any_engine: Engine) -> None:
    """One with a message only to its own; empty words are no message."""
    session = await any_engine.sessions.create("s")
    async with (
        session.turn("Work") as turn,
        waiting(ls(any_engine, turn, "a")) as one,
        waiting(ls(any_engine, turn, "b")) as two,
        waiting(ls(any_engine, turn, "c")) as three,
    ):
        await asked(any_engine, session, 3)
        ids = {each.patterns[0][0]: each.id for each in await any_engine.asks.permissions()}
        await any_engine.asks.reply_permission(ids["a"], "reject", "use mv\ud800")
        assert await one == Reply("reject", "use mv\ufffd")
        assert {each.id for each in await any_engine.asks.permissions()} == {ids["b"], ids["c"]}
        await any_engine.asks.reply_permission(ids["b"], "reject", "  ")
        assert await two == await three == Reply("reject")


async def test_what_lasts_is_remembered_for_the_project_alone(any_place: EngineFactory) -> None:
    """It survives a restart, answers at once, and can be forgotten; another folder asks again."""
    elsewhere = any_place.folder.parent / "elsewhere"
    elsewhere.mkdir()
    async with any_place.open() as engine:
        session = await engine.sessions.create("s")
        async with (
            session.turn("Work") as turn,
            waiting(ls(engine, turn)) as one,
            waiting(ls(engine, turn)) as two,
        ):
            ids = await asked(engine, session, 2)
            await engine.asks.reply_permission(
                ids[0], "always", "a message has no meaning here", lasting=True
            )
            assert await one == await two == Reply("always")
    async with any_place.open() as engine:
        allow = PermissionRule(permission="bash", pattern="ls *", action="allow")
        [allowed] = await engine.asks.allowed()
        assert (allowed.rule, allowed.lasting) == (allow, True)
        session = await engine.sessions.create("again")
        assert await engine.asks.rules(session.id) == ([], [allow])
        async with session.turn("Work") as turn:
            assert await ls(engine, turn) == Reply("always")
        other = await engine.sessions.create("other", directory=elsewhere)
        assert await engine.asks.allowed(other.info.projectID) == []
        async with other.turn("Work") as turn, waiting(ls(engine, turn)) as task:
            [id] = await asked(engine, other)
            await engine.asks.reply_permission(id, "reject")
            assert await task == Reply("reject")
        assert await engine.asks.forget_allowed(id="rule_other") == 0
        assert await engine.asks.forget_allowed("elsewhere", id=allowed.id) == 0
        assert await engine.asks.allowed() == [allowed]
        assert await engine.asks.forget_allowed(id=allowed.id) == 1
        assert await engine.asks.allowed() == []


async def test_always_ends_with_the_engine_that_took_it(any_place: EngineFactory) -> None:
    """Until then every engine on the database keeps to it; one that was given to two engines ends
    with the later of them."""
    async with any_place.open() as engine:
        session = await engine.sessions.create("s")
        async with session.turn("Work") as turn:
            async with any_place.open() as first:
                async with any_place.open() as second:
                    async with waiting(ls(engine, turn)) as task:
                        [id] = await asked(engine, session)
                        await second.asks.reply_permission(id, "always")
                        assert await task == Reply("always")
                    assert await ls(engine, turn) == Reply("always")
                    [allowed] = await first.asks.allowed()
                    assert not allowed.lasting
                    assert await engine.asks.rules(session.id) == ([], [allowed.rule])
                    # It answers what else waits, so that this one has to need a little more.
                    more = engine.asks.permission(
                        turn, "bash", ["ls x", "rm x"], always=["ls *", "rm *"]
                    )
                    async with waiting(more) as task:
                        _, id = await asked(engine, session, 2)
                        await first.asks.reply_permission(id, "always")
                        await task
                patterns = [each.pattern for each in await engine.asks.allowed()]
                assert patterns == ["ls *", "rm *"]
            project = engine.project.id
            assert (
                await engine.store.read(lambda: rows("permission_rule_list", project_id=project))
                == []
            )
            async with waiting(ls(engine, turn)) as task:
                *_, id = await asked(engine, session, 3)
                await engine.asks.reply_permission(id, "once")
                assert await task == Reply("once")


async def test_always_ends_with_a_process_that_is_killed(
    any_place: EngineFactory, children: AsyncExitStack
) -> None:
    """Nothing of it is left from that moment on, and its rows go when the next rule is given."""
    async with any_place.open() as engine:
        session = await engine.sessions.create("s")
        async with session.turn("Work") as turn:
            async with waiting(ls(engine, turn)) as task:
                [id] = await asked(engine, session)
                child = await children.enter_async_context(Child(any_place, "allow", id))
                assert await child.hear() == "allowed"
                assert await task == Reply("always")
            assert [each.pattern for each in await engine.asks.allowed()] == ["ls *"]
            await child.kill()
            assert await engine.asks.allowed() == []
            assert await engine.asks.rules(session.id) == ([], [])
            async with waiting(ls(engine, turn)) as task:
                _, id = await asked(engine, session, 2)
                await engine.asks.reply_permission(id, "always", lasting=True)
                await task
        project = engine.project.id
        found = await engine.store.read(lambda: rows("permission_rule_list", project_id=project))
        assert [(pattern, owner) for _, pattern, owner, *_ in found] == [("ls *", "")]


async def test_always_ends_with_an_engine_elsewhere_that_is_silent(
    any_place: EngineFactory,
) -> None:
    """Whether an engine of another machine lives, only its renewals tell."""
    async with any_place.open(settings=Settings(lease_time=10.0)) as engine:
        session = await engine.sessions.create("s")
        here = wire.decode(engine.runs.owner, Owner)
        foreign = wire.encode(msgspec.structs.replace(here, machine="another"))
        async with session.turn("Work") as turn, waiting(ls(engine, turn)) as task:
            [id] = await asked(engine, session)
            script = partial(
                answer_permission,
                id,
                AskAnswer(reply="always"),
                owners=engine.runs,
                now=0,
                holder=RuleHolder(foreign, -1),
            )
            await engine.store.write(script)
            await task
        async with asyncio.timeout(PATIENCE):
            # A PostgreSQL that started less than a lease ago gives others time to renew.
            while await engine.asks.allowed():  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.05)
        await engine.store.write(partial(renew_leases, foreign, ttl=10**6))
        assert [each.pattern for each in await engine.asks.allowed()] == ["ls *"]
        await engine.store.write(partial(renew_leases, foreign, ttl=-1))
        assert await engine.asks.allowed() == []


async def test_a_question_is_answered_or_not(any_engine: Engine) -> None:
    """The answers come back as they were given, words of one's own too; a refusal is an error."""
    session = await any_engine.sessions.create("s")
    async with session.turn("Work") as turn:
        ask = any_engine.asks.question(turn, [WHICH, WHICH])
        async with waiting(ask) as task:
            [id] = await asked(any_engine, session)
            [request] = await any_engine.asks.questions(session=session.id)
            assert (request.id, request.questions) == (id, [WHICH, WHICH])
            for wrong in ([["a"]] * 3, "Red", [["a"], [1]], [None]):
                with pytest.raises(InvalidInput):
                    await any_engine.asks.reply_question(id, wrong)  # type: ignore[arg-type]
            await any_engine.asks.reply_question(id, [["Red", "my own"]])
            assert await task == [["Red", "my own"], []]
        async with waiting(any_engine.asks.question(turn, [WHICH])) as task:
            _, id = await asked(any_engine, session, 2)
            await any_engine.asks.reject_question(id)
            with pytest.raises(QuestionRejected, match="The user dismissed this question"):
                await task
        assert await any_engine.asks.questions() == []


async def test_of_two_replies_one_counts(any_place: EngineFactory) -> None:
    """However close they come, the waiting call gets the one that was not refused."""
    async with any_place.open() as engine, any_place.open() as other:
        session = await engine.sessions.create("s")
        async with session.turn("Work") as turn:
            for n in range(1, 6):
                async with waiting(ls(engine, turn)) as task:
                    id = (await asked(engine, session, n))[-1]
                    outcomes = await asyncio.gather(
                        engine.asks.reply_permission(id, "once"),
                        other.asks.reply_permission(id, "reject"),
                        return_exceptions=True,
                    )
                    refused = [each for each in outcomes if each is not None]
                    assert [type(each) for each in refused] == [PermissionNotFound]
                    assert (await task).reply == ("once" if outcomes[0] is None else "reject")


async def test_lists_are_of_all_of_a_directory_or_of_a_session(engine: Engine) -> None:
    """The oldest first."""
    (engine.directory / "sub").mkdir()
    above = await engine.sessions.create("above")
    below = await engine.sessions.create("below", directory=engine.directory / "sub")
    async with (
        above.turn("Work") as one,
        below.turn("Work") as two,
        waiting(ls(engine, one)),
        waiting(ls(engine, two)),
    ):
        [first], [second] = await asked(engine, above), await asked(engine, below)
        everything = [each.id for each in await engine.asks.permissions()]
        assert sorted(everything) == sorted([first, second])
        here = await engine.asks.permissions(directory=engine.directory)
        assert [each.id for each in here] == [first]
        there = await engine.asks.permissions(directory=engine.directory / "sub")
        assert [each.id for each in there] == [second]
        own = await engine.asks.permissions(session=below.id)
        assert [each.id for each in own] == [second]
        assert await engine.asks.questions() == []


async def test_a_listener_that_is_too_slow_still_gets_its_answer(place: EngineFactory) -> None:
    """While it does not run, more happens in the session than waits for anybody."""
    async with place.open(settings=Settings(queue_length=1)) as engine:
        session = await engine.sessions.create("s")
        async with (
            session.turn("Work") as turn,
            turn.step() as step,
            waiting(ls(engine, turn)) as task,
        ):
            [id] = await asked(engine, session)
            async with step.speak() as out:
                for _ in range(10):
                    await out.write("word ")
            await engine.asks.reply_permission(id, "once")
            for _ in range(10):
                session.delta(step.message.id, "prt_1", "more", offset=0)
            assert await task == Reply("once")


async def test_a_database_that_comes_back_is_looked_at_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call waits on while the database cannot be reached."""
    monkeypatch.setattr(asks, "_PAUSE", 0.0)
    session = await engine.sessions.create("s")
    read, failures = engine.store.read, [StoreUnavailable(), StoreUnavailable()]

    async def failing(script: ScriptMaker[T], /) -> T:
        current = asyncio.current_task()
        if failures and current is not None and current.get_name() == "waiting":
            raise failures.pop()
        return await read(script)

    monkeypatch.setattr(engine.store, "read", failing)
    async with session.turn("Work") as turn, waiting(ls(engine, turn)) as task:
        [id] = await asked(engine, session)
        await engine.asks.reply_permission(id, "once")
        assert await task == Reply("once")
    assert failures == []


async def test_bad_input_is_named(engine: Engine) -> None:
    """Words, ids and things that are not there are refused, and nothing is changed by that."""
    session = await engine.sessions.create("s")
    with pytest.raises(InvalidInput, match="once, always or reject"):
        await engine.asks.reply_permission("per_1", "zzz")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="message must be a string"):
        await engine.asks.reply_permission("per_1", "reject", 1)  # type: ignore[arg-type]
    for bad in ("bad", "que_1"):
        with pytest.raises(InvalidId):
            await engine.asks.reply_permission(bad, "once")
    with pytest.raises(InvalidId):
        await engine.asks.reply_question("per_1", [])
    with pytest.raises(PermissionNotFound, match="Permission request not found: per_unknown"):
        await engine.asks.reply_permission("per_unknown", "once")
    with pytest.raises(QuestionNotFound):
        await engine.asks.reply_question("que_unknown", [])
    with pytest.raises(QuestionNotFound):
        await engine.asks.reject_question("que_unknown")
    with pytest.raises(SessionNotFound):
        await engine.asks.rules("ses_unknown")
    async with session.turn("Work") as turn:
        for patterns in ([1], ["a", None]):
            with pytest.raises(InvalidInput):
                await engine.asks.permission(turn, "bash", patterns)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            await engine.asks.question(turn, "Which?")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            await engine.asks.permission(turn, "bash", [], metadata={"x": object()})
        async with waiting(ls(engine, turn)) as task:
            [id] = await asked(engine, session)
            with pytest.raises(PermissionNotFound):
                await engine.asks.reply_permission(id, "once", session_id="ses_other")
            await engine.asks.reply_permission(id, "once", session_id=session.id)
            assert await task == Reply("once")
    with pytest.raises(InvalidInput, match="enter the turn"):
        await ls(engine, session.turn("Never entered"))
