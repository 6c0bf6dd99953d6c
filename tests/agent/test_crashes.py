"""A process that is killed in the middle of an answer: the next one finds the session idle, the
message interrupted, the processes gone, the files attributed, and goes on."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kedge.agent import Agent
from kedge.domain.events import SessionStatusChanged
from kedge.domain.messages import UserMessage
from kedge.domain.sessions import Idle
from tests.agent.tasks import metadata_of
from tests.agent.worker import Worker
from tests.agent.world import (
    Scene,
    World,
    check_closed,
    error_of,
    info_of,
    listening,
    text_of,
    tools_of,
)
from tests.support.model_server import Call, ModelServer, Text, Wait, answer
from tests.support.polling import until_beaten

FINE = answer(Text.of("fine"))
SHELL = "echo two > a.txt; echo new > new.txt; (sleep 600 & echo $! > bg); echo $$ > pid; sleep 600"


async def made(world: World) -> str:
    """A session for the process that will die."""
    async with world.open() as engine:
        return (await engine.sessions.create("Given")).id


@asynccontextmanager
async def restarted(world: World, session: str, *, tasks: int = 0) -> AsyncIterator[Scene]:
    """The next process: it has found what the dead one left, in a session and its subtasks."""
    async with (
        world.open() as engine,
        Agent(engine, environ=world.environ) as agent,
        listening(engine) as heard,
    ):
        given = await engine.sessions.get(session)
        children = [each.id for each in await given.children()]
        assert len(children) == tasks
        assert sorted(engine.recovery.sessions) == sorted([session, *children])
        yield Scene(world, engine, agent, given, heard)


async def check_interrupted(scene: Scene) -> None:
    """The last answer says that its process ended."""
    await check_closed(scene)
    last = (await scene.answers())[-1]
    error = info_of(last).error
    assert error is not None
    assert error.name == "MessageAbortedError"
    assert "process" in str(error.data["message"])


def is_alive(pid: int) -> bool:
    """Whether a process still runs."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def running(world: World) -> list[int]:
    """The processes of the command, when it has done all it should."""
    background = int(await world.until("bg", lambda text: text.endswith("\n")))
    shell = int(await world.until("pid", lambda text: text.endswith("\n")))
    assert is_alive(shell)
    assert is_alive(background)
    await until_beaten(world.root / "data", world.folder / "pid")
    return [shell, background]


async def test_killed_in_a_text(any_world: World) -> None:
    """What was said and stored stays, and the next prompt is answered."""
    async with ModelServer([answer(Text.of("half a ", "sen"), Wait()), FINE]) as server:
        any_world.use(server)
        session = await made(any_world)
        async with Worker(any_world, session, "prompt", "go") as other:
            await other.hears("speaks")
            await other.kill()
        async with restarted(any_world, session) as scene:
            await check_interrupted(scene)
            assert text_of(await scene.prompt("again")) == "fine"


@pytest.mark.parametrize("verb", ["prompt", "shell"])
async def test_killed_in_a_command(any_world: World, verb: str) -> None:
    """The command's processes are ended, also those in the background, and what they did until
    then is the session's and can be undone."""
    call = Call.of("bash", command=SHELL, description="works")
    async with ModelServer([answer(Text.of("I will."), call), FINE]) as server:
        any_world.use(server)
        session = await made(any_world)
        async with Worker(any_world, session, verb, SHELL) as other:
            pids = await running(any_world)
            await other.kill()
        async with restarted(any_world, session) as scene:
            assert not any(map(is_alive, pids))
            await check_interrupted(scene)
            (found,) = await scene.answers()
            (part,) = tools_of(found)
            assert part.tool == "bash"
            assert error_of(part)
            changed = {each.file for each in await scene.session.diff()}
            assert changed == {"a.txt", "new.txt", "bg", "pid"}
            await scene.session.revert(info_of(found).parentID)
            assert any_world.read("a.txt") == "one\n"
            assert not (any_world.folder / "new.txt").exists()
            await scene.session.unrevert()
            assert any_world.read("a.txt") == "two\n"
            assert text_of(await scene.prompt("say on", model="kedge/offline")) == "on"
            await check_closed(scene)


async def test_a_person_works_on_after_the_kill(any_world: World) -> None:
    """What they save before the next start stays when the agent's work is undone."""
    session = await made(any_world)
    async with Worker(any_world, session, "prompt", f"bash {SHELL}") as other:
        await running(any_world)
        await other.kill()
    theirs = {"a.txt": "a person's\n", "b.txt": "a person's\n", "theirs.txt": "a person's\n"}
    for name, text in theirs.items():
        any_world.put(name, text)
    async with restarted(any_world, session) as scene:
        (found,) = await scene.answers()
        receipt = await scene.session.revert(info_of(found).parentID)
        told = {entry.path: entry.outcome.value for entry in receipt.files}
        assert told == {
            **dict.fromkeys(theirs, "shared"),
            **dict.fromkeys(("bg", "new.txt", "pid"), "deleted"),
        }
        assert {name: any_world.read(name) for name in theirs} == theirs
        await scene.session.unrevert()
        assert {name: any_world.read(name) for name in theirs} == theirs
        assert any_world.read("new.txt") == "new\n"


async def test_killed_between_two_steps(world: World) -> None:
    """What the first step did stays the session's; the second is interrupted."""
    call = Call.of("write", filePath=str(world.folder / "new.txt"), content="new\n")
    async with ModelServer([answer(call), answer(Text.of("and"), Wait()), FINE]) as server:
        world.use(server)
        session = await made(world)
        async with Worker(world, session, "prompt", "go") as other:
            await other.hears("speaks")
            await other.kill()
        async with restarted(world, session) as scene:
            await check_interrupted(scene)
            first, second = await scene.answers()
            assert info_of(first).error is None
            assert [each.file for each in await scene.session.diff()] == ["new.txt"]
            await scene.session.revert(info_of(second).parentID)
            assert not (world.folder / "new.txt").exists()


@pytest.mark.parametrize("prompt", ["write new.txt x", "ask Which? | red | blue"])
async def test_killed_while_somebody_is_asked(world: World, prompt: str) -> None:
    """What was asked is withdrawn: nobody answers into the void."""
    world.configure(permission={"edit": "ask"})
    session = await made(world)
    async with Worker(world, session, "prompt", prompt) as other:
        await other.hears("permission.asked" if "write" in prompt else "question.asked")
        await other.kill()
    async with restarted(world, session) as scene:
        await check_interrupted(scene)
        assert error_of(tools_of((await scene.answers())[0])[0])
        assert not (world.folder / "new.txt").exists()
        assert text_of(await scene.prompt("say on")) == "on"


async def test_killed_while_a_retry_is_waited_for(world: World) -> None:
    """Nobody retries any more."""
    session = await made(world)
    async with Worker(world, session, "prompt", "fail rate-limit after 500s") as other:
        await other.hears("retry")
        await other.kill()
    async with restarted(world, session) as scene:
        await check_interrupted(scene)
        assert text_of(await scene.prompt("say on")) == "on"


async def test_a_session_is_used_again_without_a_restart(world: World) -> None:
    """An engine that was there all the time ends the dead run when the next prompt comes."""
    async with world.at_work() as scene:
        async with Worker(world, scene.session.id, "prompt", f"bash {SHELL}") as other:
            pids = await running(world)
            await other.kill()
        assert text_of(await scene.prompt("say on")) == "on"
        assert not any(map(is_alive, pids))
        await check_closed(scene)
        told = scene.heard.of(SessionStatusChanged, scene.session.id)
        assert isinstance(told[-1].status, Idle)


async def test_processes_that_are_gone_already_are_no_trouble(world: World) -> None:
    """Whoever else killed them, the session is recovered."""
    session = await made(world)
    async with Worker(world, session, "prompt", f"bash {SHELL}") as other:
        pids = await running(world)
        await other.kill()
    for pid in pids:
        os.kill(pid, 9)
    async with restarted(world, session) as scene:
        await check_interrupted(scene)


async def test_killed_while_it_waits_for_tasks(any_world: World) -> None:
    """One task works and one waits for a person: nothing is stuck, the caller says what was
    interrupted, and one revert takes back what both did."""
    any_world.configure(permission={"edit": {"*": "allow", "asked.txt": "ask"}})
    session = await made(any_world)
    prompt = f"""\
write own.txt mine
task general <<A
write first.txt hi
bash {SHELL}
A
and task general <<B
write second.txt hi
edit b.txt "line 1\\n" "LINE 1\\n"
write asked.txt hi
B
say Both are done."""
    async with Worker(any_world, session, "prompt", prompt) as other:
        pids = await running(any_world)
        await other.hears("permission.asked")
        await other.kill()
    async with restarted(any_world, session, tasks=2) as scene:
        assert not any(map(is_alive, pids))
        children = await scene.session.children()
        await check_interrupted(scene)
        parts = [part for each in await scene.answers() for part in tools_of(each)][1:]
        assert {metadata_of(part)["sessionId"] for part in parts} == {each.id for each in children}
        for part in parts:
            id = metadata_of(part)["sessionId"]
            assert f"The session {id} that worked for it was interrupted too" in error_of(part)
        for child in children:
            await check_closed(scene, child)
            error = info_of((await scene.answers(child))[-1]).error
            assert error is not None
            assert error.name == "MessageAbortedError"
        assert not (any_world.folder / "asked.txt").exists()
        prompt_id = info_of((await scene.answers())[0]).parentID
        receipt = await scene.session.revert(prompt_id)
        assert {entry.path for entry in receipt.files} == {
            *("own.txt", "first.txt", "second.txt", "a.txt", "b.txt", "new.txt", "bg", "pid")
        }
        assert any_world.read("a.txt") == "one\n"
        assert any_world.read("b.txt").startswith("line 1\n")
        assert sorted(each.name for each in any_world.folder.iterdir()) == [
            ".git",
            "a.txt",
            "b.txt",
        ]
        await scene.session.unrevert()
        assert any_world.read("second.txt") == "hi\n"
        assert text_of(await scene.prompt("say on")) == "on"
        await check_closed(scene)


async def test_killed_while_tasks_run_in_the_background(
    any_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process tells the caller what became of them, without asking a model; the next
    prompt reads it, once."""
    monkeypatch.setenv("OPENCODE_EXPERIMENTAL", "1")
    session = await made(any_world)
    prompt = f"task general background <<A\nwrite first.txt hi\nbash {SHELL}\nA\nsay Begun."
    async with Worker(any_world, session, "prompt", prompt) as other:
        pids = await running(any_world)
        await other.kill()
    async with any_world.open() as engine:
        assert not any(map(is_alive, pids))
        given = await engine.sessions.get(session)
        (child,) = await given.children()
        assert (await engine.statuses()) == {}
        told = (await given.messages()).messages[-1]
        assert isinstance(told.info, UserMessage)
        text = text_of(told)
        assert text.startswith(f'<task id="{child.id}" state="error">')
        assert "Background task failed: Write first.txt hi" in text
        assert "process" in text
    async with any_world.at_work() as scene:
        given = await scene.engine.sessions.get(session)
        await scene.prompt("say on", given)
        found = await scene.messages(given)
        assert [text_of(each) for each in found].count(text) == 1
        receipt = await given.revert(found[0].info.id)
        changed = {entry.path for entry in receipt.files}
        assert changed == {"first.txt", "a.txt", "new.txt", "bg", "pid"}
