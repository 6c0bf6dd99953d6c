"""Prompts that were stopped before their answer was whole: the next prompt is asked alone, and the
model is told what became of the others."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

from kedge.agent.loop import Loop
from kedge.domain.events import MessageUpdated
from kedge.domain.messages import UserMessage
from tests.agent.test_crashes import made, restarted
from tests.agent.worker import Worker
from tests.agent.world import Scene, World, text_of
from tests.support.model_server import (
    Call,
    Cut,
    ModelServer,
    Refusal,
    Reply,
    Text,
    Thinking,
    Wait,
    answer,
)

FINE = answer(Text.of("fine"))
LOOK = Call.of("read", filePath="a.txt")
KEY = "sk-proj-abc123def456ghi789jkl012"


def spoken(server: ModelServer, at: int = -1) -> list[str]:
    """A request in short: who spoke, and what."""
    found = []
    for each in server.requests[at].messages:
        if each["role"] == "system":
            continue
        content = each.get("content") or ""
        if not isinstance(content, str):
            content = " + ".join(part.get("text", part["type"]) for part in content)
        found.append(f"{each['role']}: {content}")
    return found


async def _silent(scene: Scene, server: ModelServer) -> None:
    """Abort when the request has arrived and nothing was said."""
    caller = asyncio.create_task(scene.prompt("delete build/"))
    await server.reached()
    await scene.agent.abort(scene.session)
    await caller


async def _speaking(scene: Scene, server: ModelServer) -> None:
    caller = asyncio.create_task(scene.prompt("delete build/"))
    await scene.speaks()
    await scene.agent.abort(scene.session)
    await caller


async def _ended(scene: Scene, server: ModelServer) -> None:
    await scene.prompt("delete build/")


INTERRUPTED = "(Interrupted before an answer.)"
CUT_SHORT = "(Interrupted here: the answer was not finished.)"

CASES: dict[str, tuple[list[Reply], Callable[[Scene, ModelServer], Awaitable[None]], str]] = {
    "abort before a word": ([answer(Wait())], _silent, INTERRUPTED),
    "abort in a thought": ([answer(Thinking.of("hm"), Wait())], _speaking, INTERRUPTED),
    "abort in a text": (
        [answer(Text.of("I will"), Wait())],
        _speaking,
        f"I will\n\n{CUT_SHORT}",
    ),
    "refused": ([Refusal(status=400, message="no such luck")], _ended, "no such luck"),
    # As often as it is asked for.
    "empty": ([answer()] * 3, _ended, "empty answer"),
}


@pytest.mark.parametrize("how", CASES)
async def test_the_next_prompt_is_asked_alone(world: World, how: str) -> None:
    """Between two prompts an answer says what happened to the first one."""
    replies, stop, expected = CASES[how]
    async with ModelServer([*replies, FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            await stop(scene, server)
            assert text_of(await scene.prompt("only list it")) == "fine"
            first, said, second = spoken(server)
            assert (first, second) == ("user: delete build/", "user: only list it")
            assert said.startswith("assistant: ")
            assert expected in said
            assert said.removeprefix("assistant: ").strip()


async def test_a_failure_after_a_tool(world: World) -> None:
    """The result stands behind its call, and the note behind the result."""
    async with ModelServer([answer(LOOK), Refusal(status=400, message="broke"), FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            await scene.prompt("delete build/")
            await scene.prompt("only list it")
            roles = [each.partition(":")[0] for each in spoken(server)]
            assert roles == ["user", "assistant", "tool", "assistant", "user"]
            assert "broke" in spoken(server)[3]
            assert spoken(server)[-1] == "user: only list it"


@contextmanager
def _no_step(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # The run in this block fails before its first step.
    async def broken(*_: Any) -> None:  # noqa: ANN401 - whatever a step is given
        raise RuntimeError("no step today")

    with monkeypatch.context() as patched:
        patched.setattr(Loop, "_request", broken)
        with pytest.raises(RuntimeError, match="no step today"):
            yield


async def test_a_run_that_fails_before_its_first_step(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only an event tells of it, and no answer is stored."""

    async with ModelServer([FINE, FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            with _no_step(monkeypatch):
                await scene.prompt("delete build/")
            assert await scene.answers() == []
            await scene.prompt("only list it")
            assert spoken(server) == [
                "user: delete build/",
                "assistant: (This was not answered.)",
                "user: only list it",
            ]
            fork = await scene.session.fork()
            await scene.prompt("and here", fork)
            assert spoken(server)[:3] == spoken(server, 0)


async def test_a_failed_prompt_that_is_asked_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is answered, and nothing says that it was not."""

    async with ModelServer([FINE, FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            with _no_step(monkeypatch):
                await scene.prompt("list build/", message_id="msg_again")
            await scene.prompt("list build/", message_id="msg_again")
            await scene.prompt("and on")
            assert spoken(server) == ["user: list build/", "assistant: fine", "user: and on"]


async def test_a_note_is_read_with_the_next_prompt(world: World) -> None:
    """It was never meant to be answered alone."""
    async with ModelServer([FINE, FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            await scene.prompt("build/ is mine", no_reply=True)
            await scene.prompt("list it")
            assert spoken(server) == ["user: build/ is mine + list it"]
            fork = await scene.session.fork()
            await scene.prompt("again", fork)
            assert spoken(server)[0] == "user: build/ is mine + list it"


async def test_prompts_that_waited_together_are_asked_together(world: World) -> None:
    """One answer answers both."""
    async with ModelServer([answer(LOOK, Wait()), FINE, FINE, FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            first = asyncio.create_task(scene.prompt("one"))
            await server.reached()
            later = [asyncio.create_task(scene.prompt(text)) for text in ("two", "three")]
            await scene.heard.until(lambda _: _prompts(scene) == 3)
            server.release()
            await asyncio.gather(first, *later)
            await scene.prompt("four")
            joined = [each for each in spoken(server) if "two" in each]
            assert joined == ["user: two + three"]


def _prompts(scene: Scene) -> int:
    told = scene.heard.of(MessageUpdated)
    return len({each.info.id for each in told if isinstance(each.info, UserMessage)})


async def test_an_answer_that_was_taken_back(world: World) -> None:
    """A prompt whose answer is gone, or stayed behind when a fork was made, is not done with the
    next one."""
    async with ModelServer([answer(Text.of("I will")), FINE, FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            said = await scene.prompt("delete build/")
            fork = await scene.session.fork(said.info.id)
            await scene.session.remove_message(said.info.id)
            for session in (scene.session, fork):
                await scene.prompt("only list it", session)
                assert spoken(server) == [
                    "user: delete build/",
                    "assistant: (This was not answered.)",
                    "user: only list it",
                ]


async def test_a_fork_of_a_prompt_that_is_being_answered(world: World) -> None:
    """Nobody answers it in the fork, which is told there."""
    async with ModelServer([answer(Wait()), FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            caller = asyncio.create_task(scene.prompt("delete build/"))
            await server.reached()
            fork = await scene.session.fork()
            await scene.prompt("only list it", fork)
            assert spoken(server) == [
                "user: delete build/",
                f"assistant: {INTERRUPTED}",
                "user: only list it",
            ]
            await scene.agent.abort(scene.session)
            await caller


async def test_a_killed_process(world: World) -> None:
    """What it had begun and not said a word of is told to have been interrupted."""
    async with ModelServer([answer(Wait()), FINE]) as server:
        world.use(server)
        session = await made(world)
        async with Worker(world, session, "prompt", "delete build/") as other:
            await server.reached()
            await other.kill()
        async with restarted(world, session) as scene:
            await scene.prompt("only list it")
            assert spoken(server) == [
                "user: delete build/",
                f"assistant: {INTERRUPTED}",
                "user: only list it",
            ]


async def test_a_failure_is_told_in_few_words(world: World) -> None:
    """Neither a key nor a page of text goes to the model."""
    message = f"bad key {KEY} at https://me:secret@example.org/ {'so it is ' * 500}"
    async with ModelServer([Refusal(status=400, message=message), FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            await scene.prompt("delete build/")
            await scene.prompt("only list it")
            said = spoken(server)[1]
            assert "bad key" in said
            assert KEY not in said
            assert "secret" not in said
            assert len(said) < 300


async def test_what_was_told_once_stays(world: World) -> None:
    """Each request begins with all of the one before, apart from the words of the new prompt:
    providers keep what they have read."""
    script = [answer(Text.of("a")), answer(Text.of("so"), Cut()), FINE, answer(LOOK), FINE, FINE]
    async with ModelServer(script) as server:
        world.use(server)
        async with world.at_work() as scene:
            await scene.prompt("one")
            await scene.prompt("to know", no_reply=True)
            await scene.prompt("two")
            await scene.prompt("three")
            await scene.prompt("four")
            told = [spoken(server, at) for at in range(len(server.requests))]
            for earlier, later in pairwise(told):
                assert later[: len(earlier)] == earlier
