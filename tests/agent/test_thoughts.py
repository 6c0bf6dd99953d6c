"""Thoughts that were taken for text become thoughts, and the other way round, in the message and
for those who listen."""

from kedge.domain.events import PartRemoved, SessionUpdated
from kedge.domain.parts import ReasoningPart, TextPart
from tests.agent.world import World, check_closed
from tests.support.model_server import ModelServer, Text, answer


async def test_what_was_a_thought_after_all(world: World) -> None:
    """The text is taken back, stands as a thought, and the answer follows it."""
    said = Text.of("Let me ", "see.\n", "</think>", "\n\nDone.")
    async with ModelServer([answer(said)]) as server:
        world.use(server)
        async with world.at_work() as scene:
            found = await scene.prompt("go")
            parts = [part for part in found.parts if isinstance(part, TextPart | ReasoningPart)]
            assert [(type(part), part.text) for part in parts] == [
                (ReasoningPart, "Let me see.\n"),
                (TextPart, "Done."),
            ]
            (removed,) = scene.heard.of(PartRemoved)
            assert scene.heard.spoken()[removed.partID] == "Let me see.\n"
            await check_closed(scene)


async def test_what_was_no_thought_after_all(world: World) -> None:
    """An answer that is nothing but a thought in tags is shown as it came, and asked for once."""
    said = Text.of("<thinking>\n<step>", "do x</step>\n", "</thinking>")
    async with ModelServer([answer(said)]) as server:
        world.use(server)
        async with world.at_work() as scene:
            found = await scene.prompt("give me XML")
            parts = [part for part in found.parts if isinstance(part, TextPart | ReasoningPart)]
            assert [(type(part), part.text) for part in parts] == [
                (TextPart, "<thinking>\n<step>do x</step>\n</thinking>")
            ]
            assert len(server.requests) == 1
            await check_closed(scene)


async def test_a_title_is_no_thought(world: World) -> None:
    """A model that thinks before it names a session names it all the same."""
    title = answer(Text.of("What is it about?\n", "</think>\n", "Frogs"))
    async with ModelServer([answer(Text.of("fine"))], title=title) as server:
        world.use(server)
        async with world.at_work(title=None) as scene:
            await scene.prompt("tell me of frogs")
            await scene.heard.until(
                lambda each: isinstance(each, SessionUpdated) and each.info.title == "Frogs"
            )
