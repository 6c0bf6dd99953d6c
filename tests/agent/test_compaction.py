"""Compaction: what is summarized, what is kept, and what the model sees afterwards."""

from typing import Any

from kedge.domain.messages import AssistantMessage, MessageWithParts, UserMessage
from kedge.domain.parts import CompactionPart, TextPart
from tests.agent.world import Scene, World, check_closed, info_of, text_of

SMALL = "kedge/small"


def small(world: World, context: int, output: int = 1000, **compaction: Any) -> None:  # noqa: ANN401 - any configuration
    """Give the offline model a small context."""
    models = {"small": {"limit": {"context": context, "output": output}}}
    world.configure(model=SMALL, provider={"kedge": {"models": models}}, compaction=compaction)


def compactions(messages: list[MessageWithParts]) -> list[CompactionPart]:
    """The compactions of a conversation, oldest first."""
    return [part for each in messages for part in each.parts if isinstance(part, CompactionPart)]


async def test_try(world: World) -> None:
    small(world, 9000)
    async with world.at_work() as scene:
        for n in range(30):
            answer = await scene.prompt(f"say {n} " + "x" * 1000)
            print(n, info_of(answer).error, info_of(answer).tokens.total, text_of(answer)[:20])
        for m in await scene.messages():
            print(m.info.id[-5:], type(m.info).__name__, getattr(m.info,'summary',None), [type(p).__name__ for p in m.parts], text_of(m)[:60])
        print(text_of([m for m in await scene.messages() if getattr(m.info,'summary',None) is True][-1]))
        print(scene.errors())
        assert 0
