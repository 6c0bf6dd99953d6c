"""Prompts that come while a turn runs: who takes them up, and what becomes of those that nobody
does."""

import asyncio

import pytest

from kedge.domain.conversation import PromptState
from kedge.domain.errors import InvalidInput, TurnAborted
from kedge.domain.messages import AssistantMessage
from kedge.domain.sessions import Idle
from kedge.domain.wire_errors import aborted
from kedge.engine.engine import Engine
from kedge.engine.prompts import Prompt
from kedge.engine.session import Session
from kedge.engine.turns import NothingWaits, Turn
from kedge.store.queries.prompts import ABORTED
from tests.engine.engine_factory import EngineFactory
from tests.support.timeouts import PATIENCE


async def parents(session: Session) -> list[str]:
    """Which prompt each answer is for."""
    found = (await session.messages()).messages
    return [each.info.parentID for each in found if isinstance(each.info, AssistantMessage)]


async def test_a_turn_takes_up_what_came(engine: Engine) -> None:
    """The steps that follow answer the newest prompt, and the session stays busy for it."""
    session = await engine.sessions.create()
    async with session.turn("one", message_id="msg_1") as turn:
        async with turn.step() as step:
            await step.text("first")
        assert await turn.next_prompt() is None
        assert await session.queue("two", agent="plan", message_id="msg_2")
        assert await session.queue("three", agent="plan", message_id="msg_3")
        assert not await turn.finish()
        newest = await turn.next_prompt()
        assert newest is not None
        assert (newest.id, turn.message.id, turn.agent) == ("msg_3", "msg_3", "plan")
        assert turn.prompts == ["msg_1", "msg_2", "msg_3"]
        async with turn.step() as step:
            await step.text("second")
        assert await turn.finish()
        assert await session.status() == Idle()
        with pytest.raises(InvalidInput, match="over"):
            turn.step()
    assert await parents(session) == ["msg_1", "msg_3"]


async def test_nothing_is_left_for_a_session_that_is_idle(engine: Engine) -> None:
    """Whoever wants an answer then has to run a turn."""
    session = await engine.sessions.create()
    assert not await session.queue("hello")
    assert (await session.messages()).messages == []


async def test_a_finished_session_is_free_at_once(engine: Engine) -> None:
    """The next turn can begin before the block of the one before has ended."""
    session = await engine.sessions.create()
    async with session.turn("one") as turn:
        assert await turn.finish()
        async with session.turn("two"):
            pass
    assert await session.status() == Idle()


async def test_another_process_leaves_a_prompt(place: EngineFactory, engine: Engine) -> None:
    """The run takes it up wherever it was asked."""
    session = await engine.sessions.create()
    async with place.open() as other, session.turn("one") as turn:
        far = await other.sessions.get(session.id)
        assert await far.queue("two", message_id="msg_far")
        found = await turn.next_prompt()
        assert found is not None
        assert found.id == "msg_far"


async def test_an_abort_drops_them(engine: Engine) -> None:
    """They stay in the conversation, and no later turn takes them for its own."""
    session = await engine.sessions.create()
    begun = asyncio.Event()

    async def run() -> None:
        async with session.turn("one"):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    async with asyncio.timeout(PATIENCE):
        await begun.wait()
        assert await session.queue("two")
        assert await session.abort()
        with pytest.raises(TurnAborted):
            await task
    one, two, *answers = (await session.messages()).messages
    infos = [each.info for each in answers]
    errors = [(each.parentID, each.error) for each in infos if isinstance(each, AssistantMessage)]
    assert errors == [(one.info.id, aborted("Aborted")), (two.info.id, ABORTED)]
    with pytest.raises(NothingWaits):
        async with Turn(engine, session, None):
            raise AssertionError("there is nothing to answer")
    assert await session.status() == Idle()


async def test_a_turn_without_a_prompt_answers_those_that_wait(engine: Engine) -> None:
    """A turn that did not look for them leaves them to another one."""
    session = await engine.sessions.create()
    async with session.turn("one"):
        assert await session.queue("two", message_id="msg_2")
        assert await session.queue("three", message_id="msg_3")
    async with Turn(engine, session, None) as turn:
        assert turn.message.id == "msg_3"
        assert turn.prompts == ["msg_2", "msg_3"]


async def test_a_turn_answers_what_others_left(engine: Engine) -> None:
    """Along with its own prompt, which is the newest of them; a plain turn leaves it there."""
    session = await engine.sessions.create()
    async with session.turn("one"):
        assert await session.queue("left", message_id="msg_left")
    async with session.turn("plain") as plain:
        assert plain.prompts == [plain.message.id]
    async with session.turn("two", takes_up=True) as turn:
        assert turn.prompts == ["msg_left", turn.message.id]
        assert await session.queue("three", message_id="msg_3")
        assert turn.prompts == ["msg_left", turn.message.id]
        assert await turn.next_prompt() is not None


async def test_an_abort_of_an_idle_session_drops_what_waits(engine: Engine) -> None:
    """Whoever aborts does not want it answered later."""
    session = await engine.sessions.create()
    async with session.turn("one"):
        assert await session.queue("left")
    assert await session.abort()
    async with session.turn("two", takes_up=True) as turn:
        assert len(turn.prompts) == 1


async def test_an_earlier_answer_is_left_as_it_was(engine: Engine) -> None:
    """A turn that ended well with a call has no error, whatever becomes of the next one."""
    session = await engine.sessions.create()
    async with session.turn("one") as turn, turn.step() as step, step.tool("look", {}):
        pass
    before = (await session.messages()).messages
    for state in (PromptState.TAKEN, PromptState.TAKEN_LAST):
        prompt = Prompt(engine, session.id, "two", agent="build", model=None, message_id=None)
        with pytest.raises(ZeroDivisionError):
            async with Turn(engine, session, prompt, state=state):
                raise ZeroDivisionError
        assert (await session.messages()).messages[:2] == before


async def test_a_turn_that_is_cancelled_says_so(engine: Engine) -> None:
    """Not that its process ended; what waits for another turn waits on."""
    session = await engine.sessions.create()

    async def run() -> None:
        async with session.turn("one", message_id="msg_1"):
            assert await session.queue("two")
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await run()
    await engine.recovery.recover()
    *_, answer = [each.info for each in (await session.messages()).messages]
    assert isinstance(answer, AssistantMessage)
    assert (answer.parentID, answer.error) == ("msg_1", aborted("The turn was cancelled"))
    async with session.turn("three", takes_up=True) as turn:
        assert len(turn.prompts) == 2
