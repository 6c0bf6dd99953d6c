"""Reverts, forks and kills around a compaction: nothing of the context is lost."""

import pytest

from kedge.agent import Agent
from kedge.agent.model_input import PRUNED, SUMMARY_ASKED
from kedge.domain.messages import UserMessage
from kedge.domain.parts import ToolCompleted, ToolPart
from kedge.engine.session import Session
from kedge.testing.replay import both
from tests.agent.test_compaction import limited, seen, small, summaries
from tests.agent.test_crashes import restarted
from tests.agent.worker import Worker
from tests.agent.world import Scene, World, check_closed, info_of, text_of
from tests.support.model_server import Call, ModelServer, Reply, Request, Text, answer

LARGE = 90_000
"""The length of an output; three of them are enough to prune the first."""


async def marks(session: Session) -> list[bool]:
    """Which outputs of the session are pruned, in order."""
    return [
        part.state.time.compacted is not None
        for message in (await session.messages(limit=1000)).messages
        for part in message.parts
        if isinstance(part, ToolPart) and isinstance(part.state, ToolCompleted)
    ]


async def asked(scene: Scene, session: Session | None = None) -> list[str]:
    """The ids of the prompts, oldest first."""
    found = await scene.messages(session)
    return [each.info.id for each in found if isinstance(each.info, UserMessage)]


async def check_replayed(scene: Scene) -> None:
    """What follows from the log is what is stored."""
    log, stored = await both(scene.engine.store)
    assert log == stored


async def test_back_to_before_a_compaction(any_world: World) -> None:
    """The model sees the whole conversation again; a pending revert can be taken back."""
    small(any_world, 100_000, tail_turns=0)
    async with any_world.at_work() as scene:
        await scene.prompt("say one")
        await scene.prompt("say two")
        full = await seen(scene)
        await scene.agent.summarize(scene.session)
        await scene.prompt("say three")
        compacted = await seen(scene)
        assert compacted[0] == SUMMARY_ASKED
        compaction = (await asked(scene))[2]
        await scene.session.revert(compaction)
        await scene.session.unrevert()
        assert await seen(scene) == compacted
        await scene.session.revert(compaction)
        await scene.prompt("say four")
        assert await seen(scene) == [*full, "say four", "four"]
        (tail,) = await scene.session.tails()
        restored = await scene.session.restore_tail(tail.id)
        assert await seen(scene, restored) == compacted
        fork = await restored.fork((await asked(scene, restored))[2])
        assert await seen(scene, fork) == full
        whole = await restored.fork()
        assert await seen(scene, whole) == compacted
        await scene.prompt("say five", whole)
        assert (await seen(scene, whole))[: len(compacted)] == compacted
        await check_replayed(scene)


async def test_a_kept_tail_follows_into_a_fork(any_world: World) -> None:
    """Its first message is the copied one; what is gone from the tail brings everything back."""
    small(any_world, 100_000, tail_turns=1)
    async with any_world.at_work() as scene:
        for number in range(3):
            await scene.prompt(f"say {number}")
        await scene.agent.summarize(scene.session)
        before = await seen(scene)
        assert before[2:] == ["say 2", "2"]
        fork = await scene.session.fork()
        assert await seen(scene, fork) == before
        await fork.remove_message((await fork.messages()).messages[4].info.id)
        left = await seen(scene, fork)
        assert left[:4] == ["say 0", "0", "say 1", "1"]
        assert await seen(scene) == before


async def pruned(scene: Scene) -> None:
    """A session in which the first output was pruned."""
    for number in range(4):
        await scene.prompt(f"look {number}")
    assert await marks(scene.session) == [True, False, False, False]


def outputs(request: Request) -> Reply:
    """A model that reads the large file for each prompt."""
    if request.rounds or not request.may_call:
        return answer(Text.of("seen"))
    return answer(Call.of("bash", command="cat large.txt"))


async def test_pruned_outputs_come_back(any_world: World) -> None:
    """With the revert that takes back the turn that pruned them; not with a later one, and not
    into a fork from before."""
    any_world.put("large.txt", "x" * LARGE)
    output = {"max_bytes": 200_000}
    async with ModelServer(outputs) as server:
        limited(any_world, server, compaction={"prune": True, "auto": False}, tool_output=output)
        async with any_world.at_work() as scene:
            await pruned(scene)
            assert (await seen(scene))[1] == PRUNED
            prompts = await asked(scene)
            earlier = await scene.session.fork(prompts[3])
            assert await marks(earlier) == [False] * 3
            assert await marks(await scene.session.fork()) == [True, False, False, False]
            # A revert to after the marks leaves them.
            later = await scene.agent.prompt(scene.session, "say")
            newest = await marks(scene.session)
            await scene.session.revert(info_of(later).parentID)
            await scene.prompt("fork")
            assert (await marks(scene.session))[:4] == newest[:4]
            # Pending, a revert changes nothing; final, it removes the marks.
            await scene.session.revert(prompts[2])
            assert (await marks(scene.session))[0]
            await scene.session.unrevert()
            assert (await marks(scene.session))[0]
            await scene.session.revert(prompts[2])
            limited(any_world, server, tool_output=output)
            await scene.prompt("go on")
            assert await marks(scene.session) == [False] * 3
            tails = await scene.session.tails()
            restored = await scene.session.restore_tail(tails[-1].id)
            assert (await marks(restored))[:2] == [False, False]
            await check_replayed(scene)


async def test_what_is_pruned(world: World) -> None:
    """Nothing of the newest two turns, nothing before a summary, nothing twice, and only if it is
    worth it."""
    world.put("large.txt", "x" * LARGE)
    async with ModelServer(outputs) as server:
        output = {"max_bytes": 200_000}
        limited(world, server, compaction={"prune": True, "auto": False}, tool_output=output)
        async with world.at_work() as scene:
            await pruned(scene)
            for number in range(3):
                await scene.prompt(f"again {number}")
            assert await marks(scene.session) == [True] * 4 + [False] * 3
            environ = {**world.environ, "OPENCODE_DISABLE_PRUNE": "true"}
            async with Agent(scene.engine, environ=environ) as agent:
                await agent.prompt(scene.session, "once more")
            assert await marks(scene.session) == [True] * 4 + [False] * 4


MANUAL = ["summary-due", "summary-written"]
AUTOMATIC = ["summary-begun", "summary-stored"]
FEW = [("summarize", point) for point in MANUAL] + [("prompt", point) for point in AUTOMATIC]
OTHERS = [("prompt", point) for point in MANUAL] + [("summarize", point) for point in AUTOMATIC]


@pytest.mark.parametrize(
    ("verb", "point"),
    [*FEW, *(pytest.param(*each, marks=pytest.mark.torture) for each in OTHERS)],
)
async def test_killed_in_a_compaction(
    world: World, verb: str, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each point: a summary counts or it does not, nothing is stuck, and the prompt is answered
    or says why it is not."""
    small(world, 9000, tail_turns=0, threshold=0.5)
    async with world.at_work() as scene:
        await scene.prompt("say first " + "x" * 6000)
        full = await seen(scene)
        id = scene.session.id
    monkeypatch.setenv("KEDGE_FAILPOINT", point)
    async with Worker(world, id, verb, "say second") as other:
        await other.process.wait()
    monkeypatch.delenv("KEDGE_FAILPOINT")
    async with restarted(world, id) as scene:
        await scene.agent.answer_left(scene.session)
        await scene.settled()
        await check_closed(scene)
        asked_for = {info_of(each).parentID for each in await scene.answers()}
        for prompt in await asked(scene):
            # Nothing is to be done for a compaction that kedge itself had begun.
            assert prompt in asked_for or verb == "prompt"
        whole = [each for each in await summaries(scene) if each.error is None]
        is_read = (await seen(scene))[0] == SUMMARY_ASKED
        assert is_read == bool(whole)
        if verb == "prompt":
            texts = [text_of(each) for each in await scene.messages()]
            assert texts.count("say second") == 1
            assert texts[-1] == "second"
        elif not whole:
            assert (await seen(scene))[: len(full)] == full
        assert text_of(await scene.prompt("say third")) == "third"
        await check_replayed(scene)
