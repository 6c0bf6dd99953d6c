"""Who leaves an answer early ends it: the connection is closed, and nothing stays behind."""

import asyncio
from contextlib import nullcontext

import pytest

from kedge.model.port import Model, ModelFailure, TextDelta, TextStarted
from tests.model.scene import ask, asking, every_protocol, scripted, text_of
from tests.support.model_server import Cut, Refusal, Reply, Text, Wait, answer
from tests.support.timeouts import PATIENCE


@every_protocol
async def test_cancelled_before_the_first_word(npm: str) -> None:
    """A model that thinks for minutes can be left at once."""
    refusal = Refusal(status=500, wait="go")
    async with asyncio.timeout(PATIENCE), scripted([refusal], npm) as (server, model):
        asked = asyncio.create_task(ask(model))
        await server.reached()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await server.requests[0].ended.wait()
        assert server.requests[0].dropped


@every_protocol
async def test_cancelled_in_mid_sentence(npm: str) -> None:
    """The provider sees the connection close while it still has things to say."""
    reply = answer(Text.of("one "), Wait(), Text.of("two"))
    async with asyncio.timeout(PATIENCE), scripted([reply], npm) as (server, model):
        asked = asyncio.create_task(ask(model))
        await server.reached()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await server.requests[0].ended.wait()
        assert server.requests[0].dropped


@every_protocol
async def test_left_in_mid_sentence(npm: str) -> None:
    """Leaving the block is enough, nothing has to be cancelled."""
    reply = answer(Text.of("one "), Wait(), Text.of("two"))
    async with asyncio.timeout(PATIENCE), scripted([reply], npm) as (server, model):
        async with model.stream(asking()) as events:
            assert await anext(events) == TextStarted()
            assert await anext(events) == TextDelta(text="one ")
        await server.requests[0].ended.wait()
        assert server.requests[0].dropped


@every_protocol
async def test_left_without_listening(npm: str) -> None:
    """An answer that nobody wants to hear is closed too."""
    async with (
        asyncio.timeout(PATIENCE),
        scripted([answer(Text.of("x"), Wait())], npm) as (
            server,
            model,
        ),
    ):
        async with model.stream(asking()):
            pass
        await server.requests[0].ended.wait()


@every_protocol
async def test_what_the_listener_raises_is_its_own(npm: str) -> None:
    """An error between two events is the listener's, not a failure of the model."""
    async with scripted([answer(Text.of("a", "b"))], npm) as (_, model):
        with pytest.raises(RuntimeError, match="mine"):
            await _listen_badly(model)


async def _listen_badly(model: Model) -> None:
    async with model.stream(asking()) as events:
        async for _ in events:
            raise RuntimeError("mine")


@every_protocol
async def test_cancelled_at_any_moment(npm: str) -> None:
    """Wherever a cancellation strikes, it comes out, and the next answer is whole."""
    reply = answer(Text.of("one ", "two"))
    for delay in range(0, 60, 3):
        async with asyncio.timeout(PATIENCE), scripted([reply, reply], npm) as (_, model):
            asked = asyncio.create_task(ask(model))
            for _ in range(delay):
                await asyncio.sleep(0)
            asked.cancel()
            await asyncio.wait([asked])
            assert asked.cancelled() or text_of(asked.result()) == "one two"
            assert text_of(await ask(model)) == "one two"


@every_protocol
async def test_one_connection_serves_many_answers(npm: str) -> None:
    """Connections are kept, also after errors, and a lost one is replaced."""
    said = answer(Text.of("a"))
    script: list[Reply] = [said, Refusal(status=500), said, answer(Cut()), said]
    async with scripted(script, npm) as (server, model):
        for reply in script:
            failing = nullcontext() if reply is said else pytest.raises(ModelFailure)
            with failing:
                await ask(model)
        assert server.connections == 2


@every_protocol
async def test_answers_at_the_same_time(npm: str) -> None:
    """Several sessions may ask one provider at once."""
    async with scripted(lambda request: answer(Text.of(request.prompt)), npm) as (_, model):
        heard = await asyncio.gather(*(ask(model, asking(f"nr {number}")) for number in range(8)))
    assert [events[1] for events in heard] == [TextDelta(text=f"nr {n}") for n in range(8)]
