"""Titles: asked for once, of a small model, and only while nobody has named the session."""

import asyncio

import pytest

from kedge.agent.titles import clean_title
from kedge.domain.events import SessionUpdated
from kedge.domain.titles import is_default_title
from tests.agent.world import Scene, World, text_of
from tests.support.model_server import (
    ModelServer,
    Refusal,
    Reply,
    Text,
    Wait,
    answer,
)
from tests.support.timeouts import PATIENCE

FINE = answer(Text.of("fine"))


async def titled(scene: Scene, title: str) -> None:
    """Wait until the session has a title."""
    await scene.heard.until(
        lambda each: isinstance(each, SessionUpdated) and each.info.title == title
    )


async def test_a_session_without_a_name_gets_one(world: World) -> None:
    """From the small model, which sees the prompt and no tools; it does not count as activity."""
    async with ModelServer([FINE, FINE], title=answer(Text.of('"Frog counts"\n'))) as server:
        world.use(server)
        async with world.at_work(title=None) as scene:
            await scene.prompt("count the frogs")
            await titled(scene, "Frog counts")
            (request,) = server.titles
            assert request.body["model"] == "small"
            assert request.prompt == "count the frogs"
            await scene.prompt("again")
            assert len(server.titles) == 1


async def test_the_offline_model_names_sessions_too(world: World) -> None:
    """With the first words of the prompt."""
    async with world.at_work(title=None) as scene:
        await scene.prompt("say hello there")
        await titled(scene, "Say hello there")


async def test_a_name_is_never_changed(world: World) -> None:
    """A session that somebody named is not asked about."""
    async with ModelServer([FINE]) as server:
        world.use(server)
        async with world.at_work(title="Mine") as scene:
            await scene.prompt("go")
            assert server.titles == []
            assert (await scene.session.refresh()).title == "Mine"


async def test_a_name_given_meanwhile_stays(world: World) -> None:
    """The model was too slow."""
    title = answer(Wait("title"), Text.of("Late"))
    async with ModelServer([FINE], title=title) as server:
        world.use(server)
        async with world.at_work(title=None) as scene:
            await scene.prompt("go")
            await server.reached("title")
            await scene.session.update(title="Mine")
            server.release("title")
            await server.titles[0].ended.wait()
    async with world.open() as engine:
        assert (await engine.sessions.get(scene.session.id)).title == "Mine"


async def test_a_subtask_is_named_by_who_began_it(world: World) -> None:
    """Its title is not asked for."""
    async with ModelServer([FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            child = await scene.engine.sessions.create(parent=scene.session.id)
            await scene.prompt("go", child)
            assert server.titles == []


@pytest.mark.parametrize("reply", [Refusal(status=400), answer(Text.of(" \n ")), answer()])
async def test_a_title_that_fails_fails_nothing_else(world: World, reply: Reply) -> None:
    """The answer is there, nothing is said of it, and the next prompt tries again."""
    async with ModelServer([FINE, FINE], title=reply) as server:
        world.use(server)
        async with world.at_work(title=None) as scene:
            assert text_of(await scene.prompt("go")) == "fine"
            await scene.prompt("again")
            async with asyncio.timeout(PATIENCE):
                while len(server.titles) < 2:  # noqa: ASYNC110 - the server tells nobody
                    await asyncio.sleep(0.01)
            assert scene.errors() == []
            assert is_default_title((await scene.session.refresh()).title)


async def test_a_small_model_that_is_not_there_fails_nothing_else(world: World) -> None:
    """A mistyped small_model costs the title and not the answer."""
    async with ModelServer([FINE]) as server:
        world.use(server, small_model="scripted/mistyped")
        async with world.at_work(title=None) as scene:
            assert text_of(await scene.prompt("go")) == "fine"


@pytest.mark.parametrize("small", ["scripted/mistyped", "anthropic/claude-haiku-5-5"])
async def test_a_small_model_that_cannot_be_asked(world: World, small: str) -> None:
    """The title comes from the model of the answer, and nobody is told."""
    async with ModelServer([FINE]) as server:
        world.use(server, small_model=small)
        async with world.at_work(title=None) as scene:
            await scene.prompt("go")
            await titled(scene, "Scripted title")
            assert server.titles[0].body["model"] == "spoken"
            assert scene.errors() == []


async def test_only_what_was_typed_is_named(world: World) -> None:
    """What kedge put beside a file is not, and a prompt of files alone gets no title."""
    file = {"type": "file", "mime": "text/plain", "url": (world.folder / "a.txt").as_uri()}
    async with ModelServer([FINE, FINE]) as server:
        world.use(server)
        async with world.at_work(title=None) as scene:
            await scene.prompt([file])
            assert server.titles == []
            await scene.prompt([{"type": "text", "text": "look"}, file])
            await titled(scene, "Scripted title")
            assert server.titles[0].prompt == "look"


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("Plain", "Plain"),
        ("\n\n  Two   blanks \nand more", "Two blanks"),
        ("<think>\nlong\n</think>\nAfter thought", "After thought"),
        ('"Quoted"', "Quoted"),
        ("# Heading", "Heading"),
        ("x" * 200, "x" * 99 + "…"),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_what_models_say_is_tidied(said: str, title: str) -> None:
    """One line, without decoration, not too long."""
    assert clean_title(said) == title
