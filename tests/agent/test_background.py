"""Subtasks in the background: what the session that gave them is told, and when."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import pytest

from kedge.domain.events import PermissionAsked, SessionIdle, SessionStatusChanged
from kedge.domain.messages import AssistantMessage, UserMessage
from kedge.domain.parts import TextPart
from kedge.domain.sessions import Busy
from kedge.engine.session import Session
from kedge.store.queries.background import BackgroundTask, background_tasks, put_task
from kedge.store.queries.leases import renew_leases
from tests.agent.tasks import begin, calls, child_of, children, metadata_of, output_of
from tests.agent.world import Scene, World, check_closed, error_of, text_of
from tests.support.timeouts import PATIENCE

FLAG = {"OPENCODE_EXPERIMENTAL_BACKGROUND_SUBAGENTS": "true"}
HANGS = "slow 2 300s say Half a word"
GATE = "bash until [ -e go ]; do sleep 0.02; done"
"""Works until the test puts a file."""


def at_work(world: World) -> AbstractAsyncContextManager[Scene]:
    """An agent whose tasks may run in the background."""
    return world.at_work(variables=FLAG)


async def reports(scene: Scene, session: Session | None = None) -> list[str]:
    """What a session was told of its tasks, oldest first."""
    return [
        part.text
        for message in await scene.messages(session)
        for part in message.parts
        if isinstance(message.info, UserMessage)
        and isinstance(part, TextPart)
        and part.synthetic
        and part.text.startswith("<task ")
    ]


def report(child: Session, ended: str, text: str) -> str:
    """What a session is told of a task."""
    title = child.title.removesuffix(" (@general subagent)")
    state, tag = ("completed", "task_result") if ended == "completed" else ("error", "task_error")
    return (
        f'<task id="{child.id}" state="{state}">\n'
        f"<summary>Background task {ended}: {title}</summary>\n"
        f"<{tag}>\n{text}\n</{tag}>\n</task>"
    )


async def idle(scene: Scene, session: Session, times: int) -> None:
    """Wait until a session was idle so often."""

    def is_it(event: Any) -> bool:  # noqa: ANN401 - any event
        return isinstance(event, SessionIdle) and event.sessionID == session.id

    heard = 0
    for _ in range(times):
        heard = await scene.heard.until(is_it, after=heard)


async def quiet(scene: Scene) -> None:
    """Wait until the agent does nothing any more, in any session."""
    async with asyncio.timeout(PATIENCE):
        while not scene.agent._running.is_empty:  # noqa: ASYNC110 - no event tells of that
            await asyncio.sleep(0.01)


async def turns(scene: Scene) -> int:
    """How many runs the session has had."""
    await scene.heard.caught_up()
    told = scene.heard.of(SessionStatusChanged, scene.session.id)
    kinds = [isinstance(each.status, Busy) for each in told]
    return sum(now and not before for before, now in zip([False, *kinds], kinds, strict=False))


STOPPED = (
    "A person stopped it. What it did so far stays. Do not begin it again unless you are asked to."
)


async def test_the_caller_does_not_wait(any_world: World) -> None:
    """The call says that the task runs; its end is a prompt of the caller's session, which the
    model answers."""
    async with at_work(any_world) as scene:
        said = await scene.prompt(
            f"task general background <<END\n{GATE}\nwrite new.txt hi\nsay It is written.\nEND\n"
            "say I go on."
        )
        assert text_of(said) == "I go on."
        (child,) = await children(scene)
        (call,) = await calls(scene)
        assert output_of(call).startswith(f'<task id="{child.id}" state="running">\n<summary>')
        assert metadata_of(call)["background"] is True
        assert metadata_of(call)["jobId"] == metadata_of(call)["sessionId"] == child.id
        assert await reports(scene) == []
        any_world.put("go", "")
        await idle(scene, scene.session, 2)
        assert await reports(scene) == [report(child, "completed", "It is written.")]
        *_, told, answered = await scene.messages()
        assert isinstance(told.info, UserMessage)
        assert told.info.agent == "build"
        assert isinstance(answered.info, AssistantMessage)
        assert answered.info.parentID == told.info.id
        assert answered.info.error is None
        assert await turns(scene) == 2
        await check_closed(scene, child)
        await check_closed(scene)
        # It is told once.
        await scene.prompt("say on")
        assert len(await reports(scene)) == 1


async def test_only_where_it_is_on(world: World) -> None:
    """Without the flag the call is an error, and no call is sent there."""
    async with world.at_work() as scene:
        await scene.prompt("task general background say hi")
        (call,) = await calls(scene)
        assert error_of(call) == (
            "Background subagents require OPENCODE_EXPERIMENTAL_BACKGROUND_SUBAGENTS=true"
        )
        assert await children(scene) == []
        running = await begin(scene, f"task general {HANGS}")
        await child_of(scene)
        assert await scene.agent.subagents.send_back(scene.session.id) is False
        await scene.agent.abort(scene.session)
        await running


@pytest.mark.parametrize(
    ("value", "is_on"), [("1", True), ("TRUE", True), ("0", False), ("no", False)]
)
@pytest.mark.parametrize(
    "name", ["OPENCODE_EXPERIMENTAL", "OPENCODE_EXPERIMENTAL_BACKGROUND_SUBAGENTS"]
)
async def test_what_turns_it_on(world: World, name: str, value: str, is_on: bool) -> None:
    """Either variable, as OpenCode reads it."""
    async with world.at_work(variables={name: value}) as scene:
        assert scene.agent.subagents.has_background is is_on


async def test_a_waiting_call_is_sent_there(world: World) -> None:
    """All calls that the session waits for end as if they had been made so; nothing else does."""
    async with at_work(world) as scene:
        assert await scene.agent.subagents.send_back(scene.session.id) is False
        running = await begin(
            scene, f"task general {HANGS}\nand task general {HANGS} more\nsay I go on."
        )
        both = [await child_of(scene, n) for n in range(2)]
        assert await scene.agent.subagents.send_back(both[0].id) is False
        assert await scene.agent.subagents.send_back(scene.session.id) is True
        assert await scene.agent.subagents.send_back(scene.session.id) is False
        assert text_of(await running) == "I go on."
        for call in await calls(scene):
            assert 'state="running"' in output_of(call)
            assert metadata_of(call)["background"] is True
        assert {metadata_of(call)["jobId"] for call in await calls(scene)} == {
            each.id for each in both
        }
        await scene.agent.abort(scene.session)


async def test_the_end_of_a_task_that_fails(world: World) -> None:
    """The caller is told why."""
    async with at_work(world) as scene:
        await scene.prompt("task general background fail request")
        await idle(scene, scene.session, 2)
        (child,) = await children(scene)
        why = "The offline model plays a provider that refuses the request (fail request)."
        assert await reports(scene) == [report(child, "failed", why)]
        await check_closed(scene)


async def test_a_busy_caller_is_told_in_its_turn(world: World) -> None:
    """As with any prompt, it is read between two steps."""
    async with at_work(world) as scene:
        _ = await begin(scene, f"task general background say Found it.\n{GATE}\nshow")
        child = await child_of(scene)
        await idle(scene, child, 1)
        while not await reports(scene):  # noqa: ASYNC110 - the prompt tells of itself
            await asyncio.sleep(0.01)
        world.put("go", "")
        await scene.settled()
        assert await turns(scene) == 1
        assert await reports(scene) == [report(child, "completed", "Found it.")]
        await check_closed(scene)


async def test_one_more_prompt_for_a_task_that_runs(world: World) -> None:
    """The call does not wait, and there is one report, at the end of all."""
    async with at_work(world) as scene:
        await scene.prompt(
            f"task general background <<END\n{GATE}\nsay One.\nEND\ntask general again say Two."
        )
        (child,) = await children(scene)
        assert "Background task updated" in output_of((await calls(scene))[1])
        world.put("go", "")
        await idle(scene, scene.session, 2)
        (told,) = await reports(scene)
        assert "Background task completed" in told
        assert told.endswith("\nTwo.\n</task_result>\n</task>")
        await check_closed(scene, child)
        await check_closed(scene)


async def test_a_person_stops_the_caller(any_world: World) -> None:
    """The task ends with it, and no model is asked; the next prompt is told."""
    async with at_work(any_world) as scene:
        await scene.prompt(f"task general background {HANGS}")
        child = await child_of(scene)
        assert await scene.agent.abort(scene.session) is True
        await check_closed(scene, child)
        await quiet(scene)
        before = await turns(scene)
        assert await reports(scene) == []
        await scene.prompt("say on")
        assert await reports(scene) == [report(child, "stopped", STOPPED)]
        assert await turns(scene) == before + 1
        *_, asked, answered = await scene.messages()
        assert isinstance(answered.info, AssistantMessage)
        assert answered.info.parentID == asked.info.id
        assert text_of(asked) == "say on"
        await scene.prompt("say on")
        assert len(await reports(scene)) == 1


@pytest.mark.parametrize("way", ["abort", "delete"])
async def test_a_person_stops_the_task_alone(world: World, way: str) -> None:
    """No model begins to work because of that: what a person has stopped would be done again."""
    async with at_work(world) as scene:
        await scene.prompt(f"task general background {HANGS}")
        child = await child_of(scene)
        before = await turns(scene)
        if way == "abort":
            assert await scene.agent.abort(child) is True
        else:
            await child.delete()
        await quiet(scene)
        assert await reports(scene) == []
        assert await turns(scene) == before
        await scene.prompt("say on")
        (told,) = await reports(scene)
        assert told.startswith(f'<task id="{child.id}" state="error">')
        assert STOPPED in told
        await check_closed(scene)


async def test_a_task_that_is_silent_is_not_a_person_s_doing(world: World) -> None:
    """It is told at once, as a failure."""
    world.configure(subagent_timeout=50)
    async with at_work(world) as scene:
        await scene.prompt("task general background bash sleep 600")
        await idle(scene, scene.session, 2)
        (told,) = await reports(scene)
        assert "Background task failed" in told
        assert "nothing was heard of it for 0.05 s" in told


async def test_stopped_just_as_it_ends(world: World) -> None:
    """What it came to is told, not that it was stopped."""
    async with at_work(world) as scene:
        await scene.prompt(f"task general background <<END\n{GATE}\nsay Done it.\nEND")
        (child,) = await children(scene)
        # As an abort does before it stops anything.
        await scene.engine.background.defer(child.id)
        world.put("go", "")
        await idle(scene, child, 1)
        await quiet(scene)
        assert await reports(scene) == []
        await scene.prompt("say on")
        (told,) = await reports(scene)
        assert "Background task completed" in told
        assert "Done it." in told


async def test_undo_takes_the_task_along(any_world: World) -> None:
    """It is stopped, its changes go in the same receipt, and when the undo is final nothing is
    told of it."""
    async with at_work(any_world) as scene:
        await scene.prompt("write first.txt one")
        script = f"write new.txt hi\nwait 1ms\nedit a.txt one two\n{HANGS}"
        begun = await scene.prompt(f"task general background <<END\n{script}\nEND\nsay Begun.")
        child = await child_of(scene)
        assert isinstance(begun.info, AssistantMessage)
        receipt = await scene.session.revert(begun.info.parentID)
        outcomes = {entry.path: entry.outcome.value for entry in receipt.files}
        assert outcomes == {"new.txt": "deleted", "a.txt": "restored"}
        assert any_world.read("a.txt") == "one\n"
        await check_closed(scene, child)
        await scene.prompt("say on")
        assert await reports(scene) == []
        await scene.prompt("say on")
        assert await reports(scene) == []
        assert any_world.read("first.txt") == "one\n"


async def test_undo_that_is_taken_back(any_world: World) -> None:
    """The changes are there again, and the conversation says that the task runs: so the next
    prompt is told that it does not."""
    async with at_work(any_world) as scene:
        begun = await scene.prompt(
            f"task general background <<END\nwrite new.txt hi\n{HANGS}\nEND\nsay Begun."
        )
        child = await child_of(scene)
        assert isinstance(begun.info, AssistantMessage)
        await scene.session.revert(begun.info.parentID)
        await scene.session.unrevert()
        assert any_world.read("new.txt") == "hi\n"
        assert await reports(scene) == []
        await scene.prompt("say on")
        (told,) = await reports(scene)
        assert f'"{child.id}"' in told
        assert STOPPED in told


async def test_while_a_revert_is_pending(world: World) -> None:
    """A prompt would make it final, so what ends meanwhile is told with the next one."""
    async with at_work(world) as scene:
        await scene.prompt(f"task general background <<END\n{GATE}\nsay Done it.\nEND")
        (child,) = await children(scene)
        later = await scene.prompt("write new.txt hi")
        assert isinstance(later.info, AssistantMessage)
        await scene.session.revert(later.info.parentID)
        world.put("go", "")
        await idle(scene, child, 1)
        await quiet(scene)
        assert await reports(scene) == []
        assert (await scene.session.refresh()).info.revert is not None
        await scene.session.unrevert()
        assert world.read("new.txt") == "hi\n"
        await scene.prompt("say on")
        (told,) = await reports(scene)
        assert "Done it." in told


async def test_a_caller_in_the_trash(world: World) -> None:
    """Its tasks stop with it; restored, it is told with the next prompt."""
    async with at_work(world) as scene:
        await scene.prompt(f"task general background {HANGS}")
        child = await child_of(scene)
        await scene.session.delete()
        assert await scene.engine.statuses() == {}
        session = await scene.engine.sessions.restore(scene.session.id)
        await scene.prompt("say on", session)
        (told,) = await reports(scene, session)
        assert f'"{child.id}"' in told
        assert STOPPED in told


async def test_permissions_of_a_task_are_asked_as_ever(world: World) -> None:
    """A rejected one is told as the task's failure."""
    world.configure(permission={"edit": "ask"})
    async with at_work(world) as scene:
        await scene.prompt("task general background write new.txt hi")
        asked = await scene.heard.asked(PermissionAsked)
        (child,) = await children(scene)
        assert asked.sessionID == child.id
        await scene.engine.asks.reply_permission(asked.id, "reject")
        await idle(scene, scene.session, 2)
        (told,) = await reports(scene)
        assert "The user rejected permission" in told
        assert json.dumps(told)


async def test_a_stop_while_it_is_sent_there(world: World) -> None:
    """Whichever comes first, no model is asked because of it."""
    async with at_work(world) as scene:
        for number in range(3):
            running = await begin(scene, f"task general {HANGS}\nsay I go on.")
            _ = await child_of(scene, number)
            before = await turns(scene)
            await asyncio.gather(
                scene.agent.subagents.send_back(scene.session.id),
                scene.agent.abort(scene.session),
            )
            await asyncio.gather(running, return_exceptions=True)
            await quiet(scene)
            assert await turns(scene) == before
            assert await scene.engine.statuses() == {}
            # What is known of it now is told before the next prompt.
            await scene.prompt("say on")
        await check_closed(scene)


async def test_a_task_is_its_engine_s_for_as_long_as_that_lives(world: World) -> None:
    """Like a lease: another machine takes it for left only if nobody has renewed it."""
    async with world.at_work() as scene:
        store, title = scene.engine.store, "d"
        task = BackgroundTask(
            session_id="ses_a", parent_id="ses_b", prompt_id="msg_a", title=title, owner="elsewhere"
        )
        await store.write(partial(put_task, task, ttl=-1))
        assert [each.expired for each in await store.read(background_tasks)] == [True]
        await store.write(partial(renew_leases, "elsewhere", ttl=60_000))
        assert [each.expired for each in await store.read(background_tasks)] == [False]
