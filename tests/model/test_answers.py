"""What a provider streams comes out as kedge's events, whatever its protocol."""

import pytest

from kedge.domain.sessions import CacheCount, TokenCount
from kedge.model.port import (
    AssistantTurn,
    Finished,
    ModelFailure,
    ReasoningDelta,
    ReasoningEnded,
    ReasoningStarted,
    TextDelta,
    TextEnded,
    TextStarted,
    ToolCalled,
    ToolResult,
    ToolStarted,
    ToolUse,
    UserTurn,
)
from tests.model.scene import (
    ANTHROPIC,
    CHAT,
    READ,
    ask,
    asking,
    both_protocols,
    every_protocol,
    finish_of,
    scripted,
    text_of,
)
from tests.support.model_server import Answer, Call, Item, Text, Thinking, Usage, answer


@both_protocols
async def test_text_comes_in_the_pieces_it_was_sent_in(npm: str) -> None:
    """Text starts, comes piece by piece, ends, and the answer finishes with what it took."""
    reply = answer(Text.of("Hello ", "wörld", "!"), usage=Usage(input=102, output=5))
    async with scripted([reply], npm) as (_, model):
        events = await ask(model)
    assert events == [
        TextStarted(),
        TextDelta(text="Hello "),
        TextDelta(text="wörld"),
        TextDelta(text="!"),
        TextEnded(),
        Finished(
            reason="stop",
            tokens=TokenCount(
                input=102, output=5, reasoning=0, cache=CacheCount(read=0, write=0), total=107
            ),
            cost=0.000112,
        ),
    ]


@both_protocols
async def test_thoughts_come_before_the_text_and_apart(npm: str) -> None:
    """Thoughts have events of their own, and end before the text begins."""
    reply = answer(Thinking.of("let ", "me see", signature="sig"), Text.of("Done."))
    async with scripted([reply], npm) as (_, model):
        events = await ask(model)
    assert [type(event) for event in events] == [
        ReasoningStarted,
        ReasoningDelta,
        ReasoningDelta,
        ReasoningEnded,
        TextStarted,
        TextDelta,
        TextEnded,
        Finished,
    ]


@both_protocols
async def test_a_tool_call_starts_and_is_complete_with_its_arguments(npm: str) -> None:
    """A call keeps its id, and is told when it begins and when its arguments are whole."""
    call = Call(name="read", pieces=('{"file', 'Path": "a', '.txt"}'), id="call_7")
    async with scripted([answer(Text.of("Reading."), call)], npm) as (_, model):
        events = await ask(model, asking(tools=(READ,)))
    assert events[:-1] == [
        TextStarted(),
        TextDelta(text="Reading."),
        TextEnded(),
        ToolStarted(call_id="call_7", name="read"),
        ToolCalled(
            call_id="call_7",
            name="read",
            input={"filePath": "a.txt"},
            raw='{"filePath": "a.txt"}',
        ),
    ]
    assert finish_of(events).reason == "tool-calls"


@both_protocols
async def test_several_calls_in_one_answer(npm: str) -> None:
    """Each call of an answer is complete before the next one starts."""
    calls = (
        Call.of("read", call_id="a", filePath="1"),
        Call.of("read", call_id="b", filePath="2"),
    )
    async with scripted([answer(*calls)], npm) as (_, model):
        events = await ask(model, asking(tools=(READ,)))
    assert [(type(event), getattr(event, "call_id", None)) for event in events[:-1]] == [
        (ToolStarted, "a"),
        (ToolCalled, "a"),
        (ToolStarted, "b"),
        (ToolCalled, "b"),
    ]


@both_protocols
async def test_malformed_arguments_are_handed_on_as_they_are(npm: str) -> None:
    """Arguments that are no JSON object come as text, and the answer still finishes."""
    for raw in ('{"filePath": ', "[1]", '"x"', "nonsense", '{"a": NaN}', "[" * 100_000):
        reply = answer(Call(name="read", pieces=(raw,), id="c"))
        async with scripted([reply], npm) as (_, model):
            events = await ask(model, asking(tools=(READ,)))
        assert events[1] == ToolCalled(call_id="c", name="read", input=None, raw=raw)
        assert finish_of(events).reason == "tool-calls"


@both_protocols
async def test_no_arguments_are_an_empty_object(npm: str) -> None:
    """A call of a tool without parameters may have no arguments at all."""
    async with scripted([answer(Call(name="read", pieces=(), id="c"))], npm) as (_, model):
        events = await ask(model, asking(tools=(READ,)))
    assert isinstance(events[1], ToolCalled)
    assert events[1].input == {}


@both_protocols
async def test_two_calls_with_one_id_become_two(npm: str) -> None:
    """A provider that gives one id twice does not make two calls into one."""
    calls = [Call.of("read", call_id="same", filePath=str(number)) for number in range(3)]
    async with scripted([answer(*calls)], npm) as (_, model):
        events = await ask(model, asking(tools=(READ,)))
    called = [event for event in events if isinstance(event, ToolCalled)]
    assert [event.input for event in called] == [{"filePath": str(n)} for n in range(3)]
    assert len({event.call_id for event in called}) == 3


@both_protocols
async def test_every_reason_to_stop_has_its_word(npm: str) -> None:
    """The reasons are the same words for every provider."""
    for reason in ("stop", "length", "content-filter", "tool-calls"):
        async with scripted([answer(Text.of("x"), finish=reason)], npm) as (_, model):
            assert finish_of(await ask(model)).reason == reason


async def test_a_server_that_calls_tools_and_says_stop() -> None:
    """An answer with tool calls asks for their results, whatever its provider calls it."""
    reply = answer(Call.of("read", filePath="a"), finish="stop")
    async with scripted([reply]) as (_, model):
        assert finish_of(await ask(model, asking(tools=(READ,)))).reason == "tool-calls"


@every_protocol
@pytest.mark.parametrize("items", [(), (Thinking.of("hm", signature="s"),)], ids=["all", "thought"])
async def test_an_empty_answer_is_a_failure(npm: str, items: tuple[Item, ...]) -> None:
    """A model that says nothing has not answered; it is asked again, but not ten times."""
    async with scripted([answer(*items)], npm, reasoning=True) as (_, model):
        with pytest.raises(ModelFailure, match="empty answer") as caught:
            await ask(model)
    assert caught.value.retryable
    assert caught.value.setback == "broken"


@both_protocols
@pytest.mark.parametrize("id", ["claude-x", "other"])
async def test_claude_may_say_nothing_behind_its_tools(npm: str, id: str) -> None:
    """Its work is done; of other models, or as the answer to a prompt, that is a failure."""
    use = ToolUse(call_id="c", name="read", input={})
    result = ToolResult(call_id="c", name="read", output="text")
    turns = (*asking().turns, AssistantTurn(content=(use,)), UserTurn(content=(result,)))
    async with scripted([answer()] * 2, npm, id=id) as (_, model):
        with pytest.raises(ModelFailure, match="empty answer"):
            await ask(model)
        request = asking(tools=(READ,), turns=turns)
        if id == "other":
            with pytest.raises(ModelFailure, match="empty answer"):
                await ask(model, request)
        else:
            assert finish_of(await ask(model, request)).reason == "stop"


@both_protocols
async def test_a_huge_answer_comes_whole(npm: str) -> None:
    """Megabytes in one answer are neither cut nor changed."""
    pieces = tuple(f"{number:07} " * 100 for number in range(2_000))
    reply = Answer(items=(Text(pieces=pieces),), at_once=True)
    async with scripted([reply], npm) as (_, model):
        assert text_of(await ask(model)) == "".join(pieces)


@both_protocols
async def test_lone_surrogates_are_replaced(npm: str) -> None:
    """What cannot be stored or sent as UTF-8 does not come in."""
    call = Call(name="read", pieces=('{"filePath": "\\ud800"}',), id="c")
    async with scripted([answer(Text.of("a\ud800b"), call)], npm) as (_, model):
        events = await ask(model, asking(tools=(READ,)))
    assert text_of(events) == "a\ufffdb"
    called = next(event for event in events if isinstance(event, ToolCalled))
    assert called.input == {"filePath": "\ufffd"}


async def test_thought_tags_in_the_text_are_thoughts() -> None:
    """Servers of open models send thoughts between tags; they are not shown as text."""
    async with scripted([answer(Text.of("<think>", "hm", "</think>", "Yes."))]) as (_, model):
        events = await ask(model)
    assert text_of(events) == "Yes."


async def test_tokens_of_chat_completions() -> None:
    """Cached tokens are not input, and thoughts are not output; all of them are in the total."""
    usage = Usage(input=100, output=20, reasoning=30, cache_read=400)
    async with scripted([answer(Text.of("x"), usage=usage)], CHAT) as (_, model):
        finished = finish_of(await ask(model))
    assert finished.tokens == TokenCount(
        input=100, output=20, reasoning=30, cache=CacheCount(read=400, write=0), total=550
    )
    assert finished.cost == (100 * 1 + 50 * 2 + 400 * 0.5) / 1e6


async def test_tokens_of_anthropic() -> None:
    """What is read from and written to the cache is apart from the input."""
    usage = Usage(input=100, output=20, cache_read=400, cache_write=50)
    async with scripted([answer(Text.of("x"), usage=usage)], ANTHROPIC) as (_, model):
        finished = finish_of(await ask(model))
    assert finished.tokens == TokenCount(
        input=100, output=20, reasoning=0, cache=CacheCount(read=400, write=50), total=570
    )
    assert finished.cost == (100 * 1 + 20 * 2 + 400 * 0.5 + 50 * 4) / 1e6


async def test_a_server_that_counts_nothing() -> None:
    """Without usage there are no tokens and no cost, but an answer all the same."""
    async with scripted([answer(Text.of("x"), usage=None)]) as (_, model):
        finished = finish_of(await ask(model))
    assert (finished.reason, finished.tokens.total, finished.cost) == ("stop", 0, 0)
