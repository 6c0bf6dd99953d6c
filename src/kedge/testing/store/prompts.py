"""Checks of prompts: those that a run begins with, and those that wait until it accepts them."""

from functools import partial

import msgspec

from kedge.domain.conversation import PromptState
from kedge.domain.errors import InvalidInput, LeaseLost
from kedge.domain.messages import AssistantMessage, UserMessage
from kedge.domain.parts import StepFinishPart, StepStartPart
from kedge.domain.sessions import NO_TOKENS, Busy, Idle, SessionInfo
from kedge.domain.wire_errors import aborted, is_not_run
from kedge.store.queries.fences import Fence
from kedge.store.queries.leases import lease_of, take_over
from kedge.store.queries.messages import last_answer
from kedge.store.queries.prompts import (
    ABORTED,
    account_for,
    add_prompt,
    ask_again,
    queue_prompt,
    say_idle,
    sessions_with_unanswered,
    take_prompts,
    waiting_prompts,
    withdraw_prompt,
)
from kedge.store.queries.sessions import delete_session
from kedge.store.queries.turns import (
    begin_step,
    begin_turn,
    drop_unanswered,
    fail_taken,
    finish_step,
    finish_turn,
    finish_unless_asked,
    resume_turn,
)
from kedge.store.transaction import ScriptMaker
from kedge.testing.replay import both
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, Scene, opened, refused
from kedge.testing.store.undoing import conversation, revert, take


async def _queue(
    scene: Scene,
    info: SessionInfo,
    alive: bool = True,
    state: PromptState = PromptState.WAITING,
) -> UserMessage | None:
    message = scene.user(info)
    parts = [scene.text(message)]
    return await scene.write(
        queue_prompt,
        message,
        parts,
        lambda info: info,
        is_alive=lambda owner, late: alive,
        now=START,
        state=state,
    )


def _resume(
    info: SessionInfo, alive: bool = False
) -> ScriptMaker[tuple[Fence, list[UserMessage]] | None]:
    return partial(
        resume_turn, info.id, owner="next", ttl=60_000, is_alive=lambda *_: False, now=START
    )


async def a_prompt_waits_for_the_run(database: Database) -> None:
    """It is stored at once, with its parts, and the run does not end before it has accepted it."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await scene.acquire(info)
        one, two = await _queue(scene, info), await _queue(scene, info)
        assert one is not None
        assert two is not None
        assert [message.id for message, parts in await scene.messages(info) if parts] == [
            one.id,
            two.id,
        ]
        assert await scene.write(finish_unless_asked, None, fence=fence) is None
        assert (await scene.read(lease_of, info.id))[0] == "owner"
        taken = await scene.write(take_prompts, info.id, fence)
        assert [message.id for message in taken] == [one.id, two.id]
        assert await scene.write(take_prompts, info.id, fence) == []
        assert await scene.write(finish_unless_asked, None, fence=fence) is not None
        assert await scene.read(lease_of, info.id) == (None, False, Idle())
        replayed, tables = await both(scene.store)
        assert replayed == tables


async def nobody_waits_for_no_run(database: Database) -> None:
    """A prompt is not left for a session that is idle, nor for a run that is dead."""
    async with opened(database) as scene:
        info = await scene.add_session()
        assert await _queue(scene, info) is None
        await scene.acquire(info)
        assert await _queue(scene, info, alive=False) is None
        assert await scene.messages(info) == []


async def a_prompt_may_be_withdrawn(database: Database) -> None:
    """It alone, and only while no run has accepted it."""
    async with opened(database) as scene:
        info = await scene.add_session()
        await scene.acquire(info)
        one, two = await _queue(scene, info), await _queue(scene, info)
        assert one is not None
        await scene.write(withdraw_prompt, info.id, one.id, scene.ids, now=START)
        assert await scene.read(waiting_prompts, info.id) == [two]
        assert await _told(scene, info) == {one.id: True}


async def a_revert_drops_what_waits(database: Database) -> None:
    """The revert may hide it, and hidden prompts are not answered."""
    async with opened(database) as scene:
        info = await conversation(scene, turns=1)
        fence = await scene.acquire(info)
        await _queue(scene, info)
        await scene.write(finish_turn, None, fence=fence)
        await revert(scene, info, (await scene.messages(info))[0][0].id)
        assert await scene.read(waiting_prompts, info.id) == []


async def a_revert_takes_no_prompts(database: Database) -> None:
    """It would hide them with what it takes back."""
    async with opened(database) as scene:
        info = await scene.add_session()
        await take(scene, info)
        assert await _queue(scene, info) is None
        assert await scene.messages(info) == []


async def a_prompt_is_left_to_the_next_run(database: Database) -> None:
    """A run that does not look for prompts leaves them; the next one gets the newest of them."""
    async with opened(database) as scene:
        info = await scene.add_session()
        assert await scene.store.write(_resume(info)) is None
        fence = await scene.acquire(info)
        await _queue(scene, info)
        newest = await _queue(scene, info)
        await scene.write(finish_turn, None, fence=fence)
        resumed = await scene.store.write(_resume(info))
        assert resumed is not None
        assert resumed[1][-1] == newest
        assert len(resumed[1]) == 2
        assert (await scene.read(lease_of, info.id))[2] == Busy()
        assert await scene.read(waiting_prompts, info.id) == []


async def who_lost_the_run_takes_no_prompt(database: Database) -> None:
    """Only the owner of the lease may."""
    async with opened(database) as scene:
        info = await scene.add_session()
        await scene.acquire(info)
        await _queue(scene, info)
        with refused(LeaseLost):
            await scene.write(take_prompts, info.id, Fence(info.id, 99))


async def an_abort_drops_what_waits(database: Database) -> None:
    """It stays in the conversation, and no run accepts it; the same holds for prompts that the run
    has accepted and not begun. Each has an answer that says so."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await _begin(scene, info)
        await _queue(scene, info)
        drop = partial(drop_unanswered, ids=scene.ids, now=START)
        await scene.write(finish_turn, None, fence=fence, settle=drop)
        assert await scene.read(waiting_prompts, info.id) == []
        one, two, *answers = [message for message, _ in await scene.messages(info)]
        told = [
            (each.parentID, each.error) for each in answers if isinstance(each, AssistantMessage)
        ]
        assert told == [(one.id, aborted("Aborted")), (two.id, ABORTED)]


async def a_prompt_whose_run_failed_has_no_answer_of_others(database: Database) -> None:
    """An event has announced the failure, as in OpenCode; later answers are not its answer."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await _begin(scene, info)
        fail = partial(fail_taken, error=aborted("no model"), ids=scene.ids, now=START)
        await scene.write(finish_turn, None, fence=fence, settle=fail)
        ((one, _),) = await scene.messages(info)
        two = await scene.add_user(info)
        await scene.add_assistant(info, two.id)
        assert await scene.read(last_answer, info.id, one.id) is None
        assert await scene.read(last_answer, info.id, two.id) is not None


async def _begin(scene: Scene, info: SessionInfo, state: PromptState = PromptState.TAKEN) -> Fence:
    message = scene.user(info)
    return await scene.write(
        begin_turn,
        message,
        [scene.text(message)],
        lambda info: info,
        owner="owner",
        ttl=60_000,
        is_alive=lambda *_: False,
        now=START,
        ids=scene.ids,
        state=state,
    )


async def _die(scene: Scene, info: SessionInfo) -> None:
    """End the process of the run, and let another one find out."""
    ended = await scene.bulk(
        take_over, info.id, "heir", is_alive=lambda *_: False, now=START, error=aborted("gone")
    )
    assert ended


def _account(scene: Scene, info: SessionInfo, oldest: int = 0) -> ScriptMaker[bool]:
    return partial(
        account_for, info.id, scene.ids, oldest=oldest, is_alive=lambda *_: False, now=START
    )


async def _told(scene: Scene, info: SessionInfo) -> dict[str, bool]:
    """Which prompts have an answer, and whether that says that they were not run."""
    answers = [each for each, _ in await scene.messages(info) if isinstance(each, AssistantMessage)]
    return {each.parentID: each.error is not None and is_not_run(each.error) for each in answers}


async def a_prompt_outlives_the_run(database: Database) -> None:
    """When its process died, a caller that waits for the answer can still resume; a new run with
    another prompt does not answer it, and the old prompt gets an answer that says so, before the
    new one."""
    async with opened(database) as scene:
        info = await scene.add_session()
        await scene.acquire(info)
        left = await _queue(scene, info)
        assert left is not None
        await _die(scene, info)
        assert await scene.read(waiting_prompts, info.id) == [left]
        await _begin(scene, info)
        assert await scene.read(waiting_prompts, info.id) == []
        assert await _told(scene, info) == {left.id: True}
        roles = [type(message) for message, _ in await scene.messages(info)]
        assert roles == [UserMessage, AssistantMessage, UserMessage]
        replayed, tables = await both(scene.store)
        assert replayed == tables


async def a_prompt_is_run_once_more(database: Database) -> None:
    """One whose run died before it began is left for another run; if that dies too, it is not."""
    async with opened(database) as scene:
        info = await scene.add_session()
        await _begin(scene, info)
        await _die(scene, info)
        assert await scene.store.write(_account(scene, info))
        assert await scene.read(sessions_with_unanswered) == [info.id]
        resumed = await scene.store.write(_resume(info))
        assert resumed is not None
        (prompt,) = resumed[1]
        await _die(scene, info)
        assert not await scene.store.write(_account(scene, info))
        assert await _told(scene, info) == {prompt.id: True}
        assert await scene.read(sessions_with_unanswered) == []


async def a_prompt_that_was_begun_is_not_run_again(database: Database) -> None:
    """Its commands may have had effects."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await _begin(scene, info)
        ((prompt, _),) = await scene.messages(info)
        answer = scene.assistant(info, prompt.id)
        start = StepStartPart(id=scene.ids.part(), sessionID=info.id, messageID=answer.id)
        await scene.write(begin_step, answer, start, fence=fence, now=START)
        await _die(scene, info)
        assert await scene.read(sessions_with_unanswered) == []
        assert not await scene.store.write(_account(scene, info))
        assert await _told(scene, info) == {prompt.id: False}


async def an_old_prompt_is_not_run(database: Database) -> None:
    """It gets an answer that says so, whether it waited or its run had just accepted it; one of a
    deleted session gets none."""
    async with opened(database) as scene:
        info, deleted = await scene.add_session(), await scene.add_session()
        for each in (info, deleted):
            await _begin(scene, each)
            await _queue(scene, each)
            await _die(scene, each)
        await scene.write(delete_session, deleted.id, START)
        assert await scene.read(sessions_with_unanswered) == [info.id]
        assert not await scene.store.write(_account(scene, info, oldest=2 * START))
        assert list((await _told(scene, info)).values()) == [True, True]
        assert not await scene.store.write(_account(scene, deleted, oldest=2 * START))


async def a_prompt_of_a_living_run_is_left_alone(database: Database) -> None:
    """A prompt that is about to be answered is left as it is."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await _begin(scene, info)
        lives = partial(
            account_for,
            info.id,
            scene.ids,
            oldest=2 * START,
            is_alive=lambda *_: True,
            now=START,
        )
        assert not await scene.store.write(lives)
        await scene.write(finish_turn, None, fence=fence)
        assert await _told(scene, info) == {}
        assert await scene.read(sessions_with_unanswered) == []


async def whoever_asks_alone_is_not_run_again(database: Database) -> None:
    """A turn that only its own program can answer is marked as not run."""
    async with opened(database) as scene:
        info = await scene.add_session()
        await _begin(scene, info, PromptState.TAKEN_LAST)
        await _queue(scene, info, state=PromptState.WAITING_LAST)
        await _die(scene, info)
        assert await scene.read(waiting_prompts, info.id) == []
        assert not await scene.store.write(_account(scene, info))
        assert list((await _told(scene, info)).values()) == [True, True]


async def a_run_that_is_cut_between_steps_says_so(database: Database) -> None:
    """Its last answer gets the error, if it was not complete."""
    async with opened(database) as scene:
        for finish, says_so in (("tool-calls", True), ("stop", False)):
            info = await scene.add_session()
            fence = await _begin(scene, info)
            ((prompt, _),) = await scene.messages(info)
            answer = scene.assistant(info, prompt.id)
            start = StepStartPart(id=scene.ids.part(), sessionID=info.id, messageID=answer.id)
            stored = await scene.write(begin_step, answer, start, fence=fence, now=START)
            end = StepFinishPart(
                id=scene.ids.part(),
                sessionID=info.id,
                messageID=answer.id,
                reason=finish,
                cost=0,
                tokens=NO_TOKENS,
            )
            whole = msgspec.structs.replace(stored, finish=finish)
            await scene.write(finish_step, whole, end, fence=fence, now=START)
            await _die(scene, info)
            message = (await scene.messages(info))[-1][0]
            assert isinstance(message, AssistantMessage)
            assert (message.error is not None) is says_so
        replayed, tables = await both(scene.store)
        assert replayed == tables


async def a_prompt_needs_no_answer(database: Database) -> None:
    """One that only adds to the conversation is stored whether or not the session is busy."""
    async with opened(database) as scene:
        info = await scene.add_session()
        message = scene.user(info)
        await scene.bulk(add_prompt, message, [], lambda info: info, now=START)
        with refused(InvalidInput):
            await scene.bulk(add_prompt, message, [], lambda info: info, now=START)
        await scene.acquire(info)
        await scene.bulk(add_prompt, scene.user(info), [], lambda info: info, now=START)
        assert len(await scene.messages(info)) == 2
        assert await scene.read(waiting_prompts, info.id) == []


def _again(scene: Scene, info: SessionInfo, id: str, *, alive: bool) -> ScriptMaker[bool]:
    return partial(ask_again, info.id, id, scene.ids, is_alive=lambda owner, late: alive, now=START)


async def asking_again_gives_no_more_attempts(database: Database) -> None:
    """A prompt that was left is accepted for the last time, and a spent one gets an answer that
    says so."""
    async with opened(database) as scene:
        info = await scene.add_session()
        await _begin(scene, info)
        ((prompt, _),) = await scene.messages(info)
        again = _again(scene, info, prompt.id, alive=False)
        await _die(scene, info)
        assert await scene.store.write(again)
        assert await scene.store.write(_resume(info)) is not None
        await _die(scene, info)
        assert not await scene.store.write(again)
        assert await _told(scene, info) == {prompt.id: True}
        assert not await scene.store.write(again)


async def a_prompt_is_asked_again(database: Database) -> None:
    """Only if no run has answered it or is about to: then the next run accepts it."""
    async with opened(database) as scene:
        info = await scene.add_session()
        message = scene.user(info)
        await scene.bulk(add_prompt, message, [], lambda info: info, now=START)
        fence = await scene.acquire(info)
        again = _again(scene, info, message.id, alive=True)
        assert not await scene.store.write(again)
        await scene.write(finish_turn, None, fence=fence)
        assert await scene.store.write(again)
        waiting = await scene.read(waiting_prompts, info.id)
        assert [each.id for each in waiting] == [message.id]
        await scene.write(withdraw_prompt, info.id, message.id, scene.ids, now=START)
        assert not await scene.store.write(again)
        assert await scene.read(waiting_prompts, info.id) == []


async def an_idle_session_says_so(database: Database) -> None:
    """It is announced again as at the end of a turn, and no prompt waits after that; a busy session
    announces nothing."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await scene.acquire(info)
        await _queue(scene, info)
        say = partial(say_idle, info.id, scene.ids, is_alive=lambda *_: True, now=START)
        assert not await scene.store.write(say)
        await scene.write(finish_turn, None, fence=fence)
        head = (await scene.events())[-1].seq
        assert await scene.store.write(say)
        told = await scene.events(head)
        types = [event.type for event in told]
        assert types == ["message.updated", "session.status", "session.idle"]
        assert await scene.read(waiting_prompts, info.id) == []
        replayed, tables = await both(scene.store)
        assert replayed == tables
