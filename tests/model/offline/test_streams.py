"""The stream of events: its form, its pace, its failures, and what hostile prompts do to it."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.model.offline import OfflineModel
from kedge.model.offline import commands as c
from kedge.model.offline.commands import FAULTS
from kedge.model.offline.model import Pause, acts_of
from kedge.model.offline.writer import written
from kedge.model.port import (
    Finished,
    Model,
    ModelEvent,
    ModelFailure,
    ReasoningDelta,
    ReasoningEnded,
    ReasoningStarted,
    Text,
    TextDelta,
    TextEnded,
    TextStarted,
    ToolCalled,
    ToolStarted,
)
from tests.model.offline import strategies
from tests.model.offline.requests import ask, events, in_short, request, said_by_person


def check_nesting(heard: Sequence[ModelEvent], *, to_the_end: bool = True) -> None:
    """Raise if something begins inside something else, ends that did not begin, or is left open."""
    opened: object = None
    for n, event in enumerate(heard):
        match event:
            case TextStarted() | ReasoningStarted():
                assert opened is None
                opened = type(event)
            case ToolStarted(call_id=id):
                assert opened is None
                opened = id
            case TextDelta(text=text):
                assert opened is TextStarted
                assert text
            case ReasoningDelta(text=text):
                assert opened is ReasoningStarted
                assert text
            case TextEnded():
                assert opened is TextStarted
                opened = None
            case ReasoningEnded():
                assert opened is ReasoningStarted
                opened = None
            case ToolCalled(call_id=id):
                assert opened == id
                opened = None
            case Finished():
                assert opened is None
                assert n == len(heard) - 1
    assert not to_the_end or isinstance(heard[-1], Finished)


async def listened(prompt: str, attempt: int = 1) -> tuple[list[ModelEvent], ModelFailure | None]:
    """What is heard, and how it failed if it did."""
    heard: list[ModelEvent] = []
    try:
        async with OfflineModel().stream(request(prompt, attempt=attempt)) as stream:
            async for event in stream:
                heard.append(event)
    except ModelFailure as failure:
        return heard, failure
    return heard, None


@given(strategies.scripts(), st.integers(1, 3))
async def test_any_script_is_well_formed(lines: tuple[c.Line, ...], attempt: int) -> None:
    """Events are nested, and come to an end or to a failure, whatever the script is."""
    heard, failure = await listened(written(*lines), attempt=attempt)
    check_nesting(heard, to_the_end=failure is None)
    assert failure is None or any(isinstance(line.command, c.Fail) for line in lines)


@given(strategies.texts, strategies.texts)
async def test_pieces_add_up(thought: str, said: str) -> None:
    """What comes in pieces is what was to be said."""
    prompt = written(
        c.Line(command=c.Think(thought), pace=c.Pace(pieces=3, milliseconds=0)),
        c.Say(said),
    )
    answer = await ask(prompt)
    assert (answer.thought, answer.text) == (thought, said)


def test_slowly() -> None:
    """A text comes in as many pieces as wanted, with a pause between each two of them."""
    acts = list(acts_of(request("slow 4 20ms say abcdefgh"), given=0))
    pieces = [each.text if isinstance(each, TextDelta) else each for each in acts[1:-2]]
    pause = Pause(0.02)
    assert pieces == ["ab", pause, "cd", pause, "ef", pause, "gh"]


def test_slow_calls_and_waiting() -> None:
    """Time can pass before the first event, and between the beginning of a call and its end."""
    acts = list(acts_of(request("wait 1s\nslow 2 5ms bash ls"), given=0))
    assert acts[0] == Pause(1)
    assert isinstance(acts[1], ToolStarted)
    assert acts[2:4] == [Pause(0.005)] * 2
    assert isinstance(acts[4], ToolCalled)


def test_fewer_characters_than_pieces() -> None:
    """No piece is empty."""
    acts = list(acts_of(request("slow 100 0ms say abc"), given=0))
    assert [each.text for each in acts if isinstance(each, TextDelta)] == ["a", "b", "c"]


async def test_pauses_are_waited_for() -> None:
    """A slow stream gives other tasks their turn between two pieces."""
    heard = await events(request("slow 3 1ms say abc"))
    assert in_short(heard).text == "abc"


@pytest.mark.parametrize("size", [0, 1, 63, 4096, 100_001])
async def test_a_huge_answer(size: int) -> None:
    """Exactly as many characters come as were wanted, in pieces or not."""
    whole = (await ask(f"huge {size}")).text
    assert len(whole) == size
    assert (await ask(f"slow 7 0ms huge {size}")).text == whole


async def test_waiting_alone_gets_words() -> None:
    """An answer is never empty, unless a reason to finish was given."""
    assert (await ask("wait 1ms")).text == "Done."
    answer = await ask("finish length")
    assert (answer.text, answer.finish.reason) == ("", "length")


@pytest.mark.parametrize("reason", ["stop", "length", "content-filter", "other"])
async def test_reasons_to_finish(reason: str) -> None:
    """The reason can be chosen."""
    answer = await ask(f"say Well\nfinish {reason}")
    assert (answer.text, answer.finish.reason) == ("Well", reason)


async def test_tokens_and_cost() -> None:
    """Four characters count as a token, and nothing costs anything."""
    asked = request("think 12345\nsay 123456789", tools=())
    finish = in_short(await events(asked)).finish
    tokens = finish.tokens
    assert (tokens.input, tokens.output, tokens.reasoning, tokens.total) == (7, 3, 2, 12)
    assert finish.cost == 0


# Failing.


@pytest.mark.parametrize("kind", FAULTS)
async def test_every_fault(kind: str) -> None:
    """Each fault has the name that clients know, and says whether to try again."""
    with pytest.raises(ModelFailure) as caught:
        await events(request(f"fail {kind}"))
    failure = caught.value
    name = {
        "auth": "ProviderAuthError",
        "context": "ContextOverflowError",
        "filter": "ContentFilterError",
        "length": "MessageOutputLengthError",
        "unknown": "UnknownError",
    }.get(kind, "APIError")
    assert failure.failure.name == name
    passing = kind in ("overloaded", "rate-limit", "server", "connection", "cut")
    assert failure.retryable is passing
    assert failure.retry_after is None
    if name == "APIError":
        assert failure.failure.data["isRetryable"] is passing
        status = {"overloaded": 529, "rate-limit": 429, "server": 500, "request": 400}.get(kind)
        assert failure.failure.data.get("statusCode") == status


async def test_failing_at_first() -> None:
    """After as many attempts as were told it works, and does the rest."""
    for attempt in (1, 2):
        with pytest.raises(ModelFailure) as caught:
            await events(request("fail rate-limit 2 after 1.5s\nbash ls", attempt=attempt))
        assert caught.value.retry_after == 1.5
        assert caught.value.failure.data["responseHeaders"] == {"retry-after-ms": "1500"}
    answer = await ask("fail rate-limit 2 after 1.5s\nbash ls", attempt=3)
    assert answer.text == "It works now, at attempt 3."
    assert len(answer.calls) == 1


async def test_cut_off_in_the_middle() -> None:
    """A stream can end inside a text, after others, and after calls."""
    heard, failure = await listened("say a\nbash b\nand fail cut")
    assert failure is not None
    assert [type(event) for event in heard] == [
        *(TextStarted, TextDelta, TextEnded),
        *(ToolStarted, ToolCalled),
        *(TextStarted, TextDelta),
    ]


# Being left.


@pytest.mark.parametrize("taken", range(8))
async def test_leaving_early(taken: int) -> None:
    """A stream can be left after any event, and nothing is left behind."""
    async with OfflineModel().stream(request("think a\nsay b\nbash c")) as stream:
        for _ in range(taken):
            await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


@pytest.mark.parametrize("prompt", ["wait 3600s", "slow 2 3600s say ab", "slow 1 3600s bash ls"])
async def test_cancelled_while_it_waits(prompt: str) -> None:
    """A pause ends at once when the task is cancelled."""
    heard: list[ModelEvent] = []
    begun = asyncio.Event()

    async def listen() -> None:
        async with OfflineModel().stream(request(f"think a\n{prompt}")) as stream:
            async for event in stream:
                heard.append(event)
                begun.set()

    task = asyncio.create_task(listen())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    check_nesting(heard, to_the_end=False)


async def test_many_at_once() -> None:
    """One model answers any number of requests at the same time."""
    model: Model = OfflineModel()
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(model.stream(request(f"say {n}"))) for n in range(5)
        ]
        firsts = [await anext(stream) for stream in streams]
        seconds = [await anext(stream) for stream in streams]
    assert firsts == [TextStarted()] * 5
    assert seconds == [TextDelta(text=str(n)) for n in range(5)]


# Hostile prompts.


@pytest.mark.parametrize(
    ("begin", "more", "end"),
    [
        ("", "x", ""),
        ("", "\n", ""),
        ("", "say a\n", ""),
        ("", "#\n", ""),
        ("", " \t", ""),
        ("say <<END\n", "ENDx\n", ""),
        ("say <<END\n", "x\n", "END"),
        ("", "say <<END\n", ""),
        ("todo ", "a|", ""),
        ("todo ", " !high", ""),
        ("ask a | b", ": b", ""),
        ("edit a.txt ", '"', ""),
        ('edit a.txt "', '\\"', ""),
        ("write a.txt ", "\0", ""),
        ("say ", " ", "x"),
        ("glob ", "a ", ""),
        ("", "try ", "bash x"),
        ("", "repeat 2 ", "bash x"),
        ("", "try", " bash"),
        ("repeat ", "9", " bash x"),
        ("wait ", "9", "s"),
        ("huge ", "9", ""),
        ("fail ", "x", ""),
        ("call ", "x", ""),
        ("call x ", "[", ""),
        ("call x ", '{"a":', ""),
    ],
    ids=ascii,
)
async def test_hostile_prompts(begin: str, more: str, end: str) -> None:
    """A prompt of 20 MB gets an answer of ordinary form, of not too many pieces."""
    prompt = f"{begin}{more * (20_000_000 // len(more))}{end}"
    heard = await events(request(said_by_person(Text(text=prompt, is_prompt=True))))
    check_nesting(heard)
    assert len(heard) < 1_000


@pytest.mark.parametrize(
    "prompt",
    [
        "say \ud800 \udc00\ud800",
        'say "\\ud800"',
        'call x {"a": "\\ud800"}',
        "write \ud800.txt \udfff",
        "\ud800",
        "write \0.txt \0",
        'edit a.txt "\\ud83d" "\\ude00"',
    ],
    ids=ascii,
)
async def test_texts_that_cannot_be_stored(prompt: str) -> None:
    """What is heard is text that can be encoded, whatever was asked."""
    answer = await ask(prompt)
    for text in (answer.text, *(call.raw for call in answer.calls)):
        assert text.encode().decode() == text
