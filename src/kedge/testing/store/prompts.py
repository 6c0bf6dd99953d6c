"""Checks of prompts: those that a run begins with, and those that wait until it takes them up."""

from functools import partial

from kedge.domain.errors import InvalidInput, LeaseLost
from kedge.domain.failures import aborted
from kedge.domain.messages import UserMessage
from kedge.domain.sessions import SessionInfo
from kedge.domain.status import Busy, Idle
from kedge.store.script import ScriptMaker
from kedge.store.verbs.fences import Fence
from kedge.store.verbs.leases import lease_of, take_over
from kedge.store.verbs.prompts import (
    add_prompt,
    ask_again,
    queue_prompt,
    say_idle,
    take_prompts,
    waiting_prompts,
    withdraw_prompt,
)
from kedge.store.verbs.turns import begin_turn, finish_turn, finish_unless_asked, resume_turn
from kedge.testing.replay import both
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, Scene, opened, refused
from kedge.testing.store.undoing import conversation, revert, take


async def _queue(scene: Scene, info: SessionInfo, alive: bool = True) -> UserMessage | None:
    message = scene.user(info)
    parts = [scene.text(message)]
    return await scene.write(
        queue_prompt,
        message,
        parts,
        lambda info: info,
        is_alive=lambda owner, late: alive,
        now=START,
    )


def _resume(
    info: SessionInfo, alive: bool = False
) -> ScriptMaker[tuple[Fence, list[UserMessage]] | None]:
    return partial(
        resume_turn, info.id, owner="next", ttl=60_000, is_alive=lambda *_: False, now=START
    )


async def a_prompt_waits_for_the_run(database: Database) -> None:
    """It is stored at once, with its parts, and the run does not end before it has taken it up."""
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
    """It alone, and only as long as no run has taken it up."""
    async with opened(database) as scene:
        info = await scene.add_session()
        await scene.acquire(info)
        one, two = await _queue(scene, info), await _queue(scene, info)
        assert one is not None
        await scene.write(withdraw_prompt, info.id, one.id)
        assert await scene.read(waiting_prompts, info.id) == [two]


async def a_revert_drops_what_waits(database: Database) -> None:
    """What is undone may hide it, and nobody answers in what is hidden."""
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
    """It stays in the conversation, and no run takes it up."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await scene.acquire(info)
        await _queue(scene, info)
        await scene.write(finish_turn, None, fence=fence, drops_prompts=True)
        assert await scene.read(waiting_prompts, info.id) == []
        assert len(await scene.messages(info)) == 1


async def a_prompt_outlives_the_run(database: Database) -> None:
    """When its process died, whoever waits for the answer can still resume, or a new run takes it
    up with its own; a run that does not answer it leaves it."""
    async with opened(database) as scene:
        info = await scene.add_session()
        await scene.acquire(info)
        left = await _queue(scene, info)
        ended = await scene.bulk(
            take_over,
            info.id,
            "heir",
            is_alive=lambda *_: False,
            now=START,
            error=aborted("gone"),
        )
        assert ended
        assert await scene.read(waiting_prompts, info.id) == [left]
        message = scene.user(info)
        fence = await scene.write(
            begin_turn,
            message,
            [scene.text(message)],
            lambda info: info,
            owner="next",
            ttl=60_000,
            is_alive=lambda *_: False,
            now=START,
        )
        assert await scene.read(waiting_prompts, info.id) == [left]
        assert await scene.write(take_prompts, info.id, fence) == [left]
        assert await scene.read(waiting_prompts, info.id) == []


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


async def a_prompt_is_asked_again(database: Database) -> None:
    """Only if nobody answered it and nobody is about to: then the next run takes it up."""
    async with opened(database) as scene:
        info = await scene.add_session()
        message = scene.user(info)
        await scene.bulk(add_prompt, message, [], lambda info: info, now=START)
        fence = await scene.acquire(info)
        again = partial(ask_again, info.id, message.id, is_alive=lambda *_: True)
        assert not await scene.store.write(again)
        await scene.write(finish_turn, None, fence=fence)
        assert await scene.store.write(again)
        waiting = await scene.read(waiting_prompts, info.id)
        assert [each.id for each in waiting] == [message.id]
        await scene.write(withdraw_prompt, info.id, message.id)
        await scene.add_assistant(info, message.id)
        assert not await scene.store.write(again)
        assert await scene.read(waiting_prompts, info.id) == []


async def an_idle_session_says_so(database: Database) -> None:
    """Whoever asks hears it as at the end of a turn, and no prompt waits after that; a busy one
    says nothing."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await scene.acquire(info)
        await _queue(scene, info)
        say = partial(say_idle, info.id, is_alive=lambda *_: True)
        assert not await scene.store.write(say)
        await scene.write(finish_turn, None, fence=fence)
        head = (await scene.events())[-1].seq
        assert await scene.store.write(say)
        told = await scene.events(head)
        assert [event.type for event in told] == ["session.status", "session.idle"]
        assert await scene.read(waiting_prompts, info.id) == []
        replayed, tables = await both(scene.store)
        assert replayed == tables
