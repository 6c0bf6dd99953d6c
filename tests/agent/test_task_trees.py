"""Subtasks as part of their caller: what undo, deletion and restoration take along."""

import asyncio

import pytest

from kedge.domain.errors import SessionNotFound
from kedge.domain.messages import AssistantMessage, MessageWithParts
from kedge.domain.sessions import Idle
from tests.agent.tasks import begin, calls, child_of, children
from tests.agent.world import Scene, World, check_closed

HANGS = "slow 2 300s say Half a word"
NESTED = """\
task general <<A
write middle.txt hi
task general <<B
bash echo deep > deep.txt
edit b.txt "line 2" "LINE 2"
B
edit a.txt one two
A
write own.txt mine
"""


def prompt_of(answer: MessageWithParts) -> str:
    """The prompt that a message answers."""
    assert isinstance(answer.info, AssistantMessage)
    return answer.info.parentID


def names(world: World) -> set[str]:
    """The files of the worktree."""
    return {each.name for each in world.folder.iterdir()} - {".git"}


async def test_undo_takes_what_tasks_did(any_world: World) -> None:
    """Of all generations, with the caller's own changes, in one receipt; and back again."""
    any_world.configure(subagent_depth=2, permission={"task": "allow"})
    async with any_world.at_work() as scene:
        await scene.prompt("write before.txt x")
        answer = await scene.prompt(NESTED)
        assert names(any_world) == {
            *("a.txt", "b.txt", "before.txt", "middle.txt", "deep.txt", "own.txt")
        }
        expected = {
            **dict.fromkeys(("middle.txt", "deep.txt", "own.txt"), "deleted"),
            **dict.fromkeys(("a.txt", "b.txt"), "restored"),
        }
        preview = await scene.session.revert(prompt_of(answer), dry_run=True)
        assert {each.path: each.outcome.value for each in preview.files} == expected
        receipt = await scene.session.revert(prompt_of(answer))
        assert {each.path: each.outcome.value for each in receipt.files} == expected
        assert names(any_world) == {"a.txt", "b.txt", "before.txt"}
        assert any_world.read("a.txt") == "one\n"
        assert any_world.read("b.txt").startswith("line 1\nline 2\n")
        await scene.session.unrevert()
        assert any_world.read("a.txt") == "two\n"
        assert any_world.read("deep.txt") == "deep\n"
        # Final, it stays undone.
        await scene.session.revert(prompt_of(answer))
        await scene.prompt("say on")
        assert names(any_world) == {"a.txt", "b.txt", "before.txt"}


async def test_undo_of_one_of_two_calls(any_world: World) -> None:
    """A task that went on for a later call keeps what it did for the one before."""
    async with any_world.at_work() as scene:
        await scene.prompt("task general write first.txt one")
        later = await scene.prompt("task general write second.txt two")
        first, second = await children(scene)
        again = await scene.prompt(
            f'call task {{"description": "d", "prompt": "edit first.txt one more",'
            f' "subagent_type": "general", "task_id": "{first.id}"}}'
        )
        assert any_world.read("first.txt") == "more\n"
        receipt = await scene.session.revert(prompt_of(again))
        assert {each.path: each.outcome.value for each in receipt.files} == {
            "first.txt": "restored"
        }
        assert any_world.read("first.txt") == "one\n"
        receipt = await scene.session.revert(prompt_of(later))
        assert any_world.read("first.txt") == "one\n"
        assert names(any_world) == {"a.txt", "b.txt", "first.txt"}
        await scene.session.unrevert()
        assert any_world.read("first.txt") == "more\n"
        assert any_world.read("second.txt") == "two\n"
        assert {first.id, second.id} == {each.id for each in await children(scene)}


async def test_undo_of_a_task_by_itself(any_world: World) -> None:
    """Only that; the caller's undo has then nothing more to do for it."""
    async with any_world.at_work() as scene:
        answer = await scene.prompt("write own.txt mine\ntask general write new.txt hi")
        (child,) = await children(scene)
        (asked, *_) = await scene.messages(child)
        receipt = await child.revert(asked.info.id)
        assert {each.path for each in receipt.files} == {"new.txt"}
        assert names(any_world) == {"a.txt", "b.txt", "own.txt"}
        await scene.session.revert(prompt_of(answer))
        assert names(any_world) == {"a.txt", "b.txt"}
        await scene.session.unrevert()
        assert names(any_world) == {"a.txt", "b.txt", "own.txt"}


async def test_undo_of_a_part(any_world: World) -> None:
    """From a call on: the task that was given before it stays."""
    async with any_world.at_work() as scene:
        await scene.prompt(
            "task general write one.txt 1\nand task general write two.txt 2\nsay Both."
        )
        first, second = await calls(scene)
        receipt = await scene.session.revert(second.messageID, second.id)
        (undone,) = receipt.files
        gone = "two.txt" if first.state.input["prompt"].startswith("write one") else "one.txt"
        assert undone.path == gone
        assert len(names(any_world)) == 3


async def test_subtask_parts_are_undone_with_their_prompt(any_world: World) -> None:
    """Whoever gave the task, it is part of the turn."""
    async with any_world.at_work() as scene:
        answer = await scene.prompt(
            [
                {"type": "subtask", "agent": "general", "description": n, "prompt": f"write {n} x"}
                for n in ("one.txt", "two.txt")
            ]
        )
        assert names(any_world) == {"a.txt", "b.txt", "one.txt", "two.txt"}
        receipt = await scene.session.revert(prompt_of(answer))
        assert {each.path for each in receipt.files} == {"one.txt", "two.txt"}
        assert names(any_world) == {"a.txt", "b.txt"}


async def family(scene: Scene) -> tuple[asyncio.Task[MessageWithParts], list[str]]:
    """A session that waits for a task that waits for one; all ids."""
    running = await begin(scene, f"task general <<A\ntask general {HANGS}\nA")
    while not (found := await children(scene)):  # noqa: ASYNC110 - no event of this session
        await asyncio.sleep(0.01)
    while not await children(scene, found[0]):  # noqa: ASYNC110 - no event of this session
        await asyncio.sleep(0.01)
    (below,) = await children(scene, found[0])
    await scene.heard.until(
        lambda event: (
            type(event).__name__ == "PartDelta" and getattr(event, "sessionID", "") == below.id
        )
    )
    return running, [scene.session.id, found[0].id, below.id]


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_stop_goes_down_and_not_up(world: World, which: int) -> None:
    """The session that is stopped and all below; who waits for it goes on."""
    world.configure(subagent_depth=2, permission={"task": "allow"})
    async with world.at_work() as scene:
        running, ids = await family(scene)
        session = await scene.engine.sessions.get(ids[which])
        assert await scene.agent.abort(session) is True
        for id in ids[which:]:
            assert isinstance(await (await scene.engine.sessions.get(id)).status(), Idle)
        answer = await running
        assert isinstance(answer.info, AssistantMessage)
        assert (answer.info.error is not None) is (which == 0)
        for id in ids:
            session = await scene.engine.sessions.get(id)
            await check_closed(scene, session)
            last = (await scene.answers(session))[-1].info
            assert isinstance(last, AssistantMessage)
            assert (last.error is not None and last.error.name == "MessageAbortedError") is (
                session.id in ids[which:]
            )


@pytest.mark.parametrize("which", [0, 1])
async def test_the_trash_takes_all_that_is_below(world: World, which: int) -> None:
    """While they work, too; and all come back together, with what they did to files."""
    world.configure(subagent_depth=2, permission={"task": "allow"})
    async with world.at_work() as scene:
        running, ids = await family(scene)
        session = await scene.engine.sessions.get(ids[which])
        await session.delete()
        await asyncio.gather(running, return_exceptions=True)
        await scene.heard.caught_up()
        assert await scene.engine.statuses() == {}
        for id in ids[which:]:
            with pytest.raises(SessionNotFound):
                await scene.engine.sessions.get(id)
        await scene.engine.sessions.restore(ids[which])
        for id in ids[which:]:
            assert isinstance(await (await scene.engine.sessions.get(id)).status(), Idle)
        assert [each.id for each in await children(scene)] == [ids[1]]


async def test_a_task_in_the_trash_is_undone_all_the_same(any_world: World) -> None:
    """Its changes belong to the call, wherever its messages are."""
    async with any_world.at_work() as scene:
        answer = await scene.prompt("task general write new.txt hi")
        (child,) = await children(scene)
        await child.delete()
        receipt = await scene.session.revert(prompt_of(answer))
        assert {each.path: each.outcome.value for each in receipt.files} == {"new.txt": "deleted"}
        assert names(any_world) == {"a.txt", "b.txt"}


async def test_a_busy_task_keeps_its_caller_s_undo_out(world: World) -> None:
    """Undo of the caller's turn while its task works is refused, as that of any busy session."""
    from kedge.domain.errors import SessionBusy

    async with world.at_work() as scene:
        running = await begin(scene, f"task general {HANGS}")
        child = await child_of(scene)
        (asked, *_) = await scene.messages()
        with pytest.raises(SessionBusy):
            await scene.session.revert(asked.info.id)
        await scene.agent.abort(child)
        await running
