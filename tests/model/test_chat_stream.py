"""Chat streams as real servers send them: their ends, their tool calls, what they count."""

from typing import Any

import pytest

from kedge.domain.sessions import CacheCount, TokenCount
from kedge.model.port import ReasoningEnded, ToolCalled, ToolSpec, ToolStarted
from tests.model.raw_scene import (
    DONE,
    STOP,
    called,
    calls,
    chunk,
    failed,
    heard,
    said,
    sending,
    sse,
)
from tests.model.scene import CHAT, GOOGLE, READ, ask, asking, finish_of, text_of, thought_of
from tests.support.raw_server import Raw

READING = [("read", {"filePath": "a"})]
ARGUMENTS = '{"filePath": "a"}'
LIST = ToolSpec(name="list", description="Lists.", parameters={"type": "object"})


def function(name: str | None = None, arguments: Any = None) -> dict[str, Any]:  # noqa: ANN401
    """The part of a call that names the tool and its arguments."""
    told = {"name": name, "arguments": arguments}
    return {key: value for key, value in told.items() if value is not None}


# Ends


async def test_done_without_a_reason_is_an_end() -> None:
    """The server says that it is done; what it left out is why."""
    events = await heard(sse(said("Hello"), DONE))
    assert text_of(events) == "Hello"
    assert finish_of(events).reason == "stop"


@pytest.mark.parametrize("framing", ["chunked", "length"])
async def test_a_body_that_ends_where_it_should_is_an_end(framing: Any) -> None:  # noqa: ANN401
    """Servers that forget both the reason and [DONE] still end the body properly."""
    events = await heard(Raw(body=sse(said("Hello")), framing=framing))
    assert text_of(events) == "Hello"
    assert finish_of(events).reason == "stop"


@pytest.mark.parametrize("ends", ["early", "reset"])
@pytest.mark.parametrize("framing", ["chunked", "length"])
async def test_a_body_that_breaks_off_is_lost(framing: Any, ends: Any) -> None:  # noqa: ANN401
    """A connection that closes before the announced end of the body has lost something."""
    lost = await failed(Raw(body=sse(said("Hel")), framing=framing, ends=ends))
    assert lost.retryable
    assert lost.setback == "broken"
    assert "was lost" in str(lost)


async def test_without_a_length_an_end_proves_nothing() -> None:
    """A body that only the close of the connection ends must say itself that it is whole."""
    lost = await failed(Raw(body=sse(said("Hel")), framing="close"))
    assert "was lost" in str(lost)
    whole = await heard(Raw(body=sse(said("Hello"), DONE), framing="close"))
    assert text_of(whole) == "Hello"


async def test_an_event_that_is_cut_in_the_middle_is_lost() -> None:
    """A body may end properly and its last event not."""
    lost = await failed(sse(said("Hel")) + b'data: {"choices": [{"index": 0, "del')
    assert "was lost" in str(lost)


async def test_a_last_event_without_its_blank_line_counts() -> None:
    """Servers forget the blank line after the last event."""
    events = await heard(sse(said("Hello"), said("!", "stop"))[:-2])
    assert text_of(events) == "Hello!"


@pytest.mark.parametrize("how", ["reset", "early", "open"])
async def test_nothing_is_lost_after_the_reason(how: Any) -> None:  # noqa: ANN401
    """An answer that said why it stopped is whole, whatever becomes of the connection."""
    events = await heard(Raw(body=sse(said("Hello", "stop")), ends=how), silence_ms=200)
    assert text_of(events) == "Hello"
    assert finish_of(events).reason == "stop"


def google_said(text: str) -> dict[str, Any]:
    """A frame of Google's with words and a reason."""
    content = {"role": "model", "parts": [{"text": text}]}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}]}


EACH_WITH_REASON = {
    CHAT: (said("do ", "stop"), said("not", "stop")),
    GOOGLE: (google_said("do "), google_said("not")),
}


@pytest.mark.parametrize("npm", EACH_WITH_REASON)
@pytest.mark.parametrize("how", ["reset", "early"])
async def test_a_reason_in_every_frame_is_no_end(npm: str, how: Any) -> None:  # noqa: ANN401
    """Where words followed a reason, more of them may have been lost."""
    lost = await failed(Raw(body=sse(*EACH_WITH_REASON[npm]), ends=how), npm=npm)
    assert lost.setback == "broken"
    assert "was lost" in str(lost)


@pytest.mark.parametrize("npm", EACH_WITH_REASON)
async def test_a_reason_in_every_frame_and_a_proper_end(npm: str) -> None:
    """The end of the body is the end of the answer."""
    events = await heard(sse(*EACH_WITH_REASON[npm]), npm=npm)
    assert text_of(events) == "do not"
    assert finish_of(events).reason == "stop"


async def test_a_reason_in_every_frame_and_one_alone() -> None:
    """A reason without words is the end, whatever became of those before."""
    frames = [*EACH_WITH_REASON[CHAT], STOP]
    events = await heard(Raw(body=sse(*frames), ends="reset"))
    assert text_of(events) == "do not"


async def test_a_connection_that_stays_open_after_done() -> None:
    """[DONE] is the end, though the server never closes the body."""
    events = await heard(Raw(body=sse(said("Hello", "stop"), DONE), ends="open"))
    assert text_of(events) == "Hello"


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("stop", "stop"),
        ("eos_token", "stop"),
        ("eos", "stop"),
        ("stop_sequence", "stop"),
        ("end_turn", "stop"),
        ("STOP", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("model_length", "length"),
        ("content_filter", "content-filter"),
        ("SAFETY", "content-filter"),
        ("sensitive", "content-filter"),
        ("tired", "other"),
        (17, "other"),
    ],
)
async def test_whatever_the_reason_it_is_an_end(told: object, reason: str) -> None:
    """Servers have their own words for why they stopped."""
    events = await heard(sse(said("Hello"), chunk({}, told), DONE))
    assert text_of(events) == "Hello"
    assert finish_of(events).reason == reason


async def test_a_reason_in_every_chunk() -> None:
    """What comes after a reason is still heard."""
    events = await heard(sse(said("Hel", "stop"), said("lo", "stop"), said("!", ""), DONE))
    assert text_of(events) == "Hello!"
    assert finish_of(events).reason == "stop"


@pytest.mark.parametrize("told", ["error", "abort", "insufficient_system_resource"])
async def test_reasons_that_are_failures(told: str) -> None:
    """A server that gave up in mid-answer has not answered."""
    broken = await failed(sse(said("Hel"), chunk({}, told), DONE))
    assert broken.setback == "broken"
    assert told in str(broken)


async def test_a_refusal_is_shown() -> None:
    """A model that refuses says so in a field of its own."""
    frames = [chunk({"refusal": "I cannot "}), chunk({"refusal": "do that."}), STOP, DONE]
    events = await heard(sse(*frames))
    assert text_of(events) == "I cannot do that."
    assert finish_of(events).reason == "content-filter"


# Answers that say nothing


@pytest.mark.parametrize(
    "frames",
    [
        [DONE],
        [STOP, DONE],
        [said(""), STOP, DONE],
        [said(" \n"), STOP, DONE],
        [chunk({"reasoning_content": "hm"}), STOP, DONE],
        [b": nothing\n\n", DONE],
        [{"choices": []}, DONE],
        [{"choices": None}, DONE],
    ],
    ids=["done", "stop", "empty", "blank", "thought", "comment", "no choice", "null"],
)
async def test_an_empty_answer_is_a_failure(frames: list[object]) -> None:
    """An answer without a word and without a call is asked for again, and not ten times."""
    empty = await failed(sse(*frames))
    assert empty.retryable
    assert empty.setback == "broken"
    assert "empty answer" in str(empty)


@pytest.mark.parametrize("reason", ["stop", "error", "content_filter", "length"])
async def test_what_an_answer_of_no_use_took(reason: str) -> None:
    """It was paid for like any other."""
    failure = await failed(sse(chunk({}, reason), used(**PROMPT), DONE))
    assert (failure.tokens.input, failure.tokens.output) == (1000, 50)
    assert failure.cost == pytest.approx((1000 * 1 + 50 * 2) / 1_000_000)


async def test_a_thought_that_takes_all_the_room() -> None:
    """A model that thinks until its output is used up has said nothing."""
    failure = await failed(sse(chunk({"reasoning": "hm"}), chunk({}, "length"), DONE))
    assert failure.failure.name == "MessageOutputLengthError"
    assert not failure.retryable


async def test_a_filter_that_leaves_nothing() -> None:
    """An answer that the provider's filter swallowed is a failure of that name."""
    failure = await failed(sse(chunk({}, "content_filter"), DONE))
    assert failure.failure.name == "ContentFilterError"
    assert not failure.retryable


# Tool calls


async def test_arguments_may_come_later_than_names() -> None:
    """Two calls are named first and get their arguments then; an empty text is not {} yet."""
    frames = [
        calls(
            {"index": 0, "id": "a", "function": function("read", "")},
            {"index": 1, "id": "b", "function": function("read", "")},
        ),
        calls({"index": 0, "function": function(None, '{"filePath"')}),
        calls({"index": 1, "function": function(None, '{"filePath": "b"}')}),
        calls({"index": 0, "function": function(None, ': "a"}')}, finish="tool_calls"),
        DONE,
    ]
    events = await heard(sse(*frames))
    assert sorted(called(events), key=str) == [*READING, ("read", {"filePath": "b"})]
    assert finish_of(events).reason == "tool-calls"


async def test_no_arguments_at_all() -> None:
    """At the end, an empty text of arguments is an empty object."""
    for arguments in ("", None, "{}", " "):
        delta = {"index": 0, "id": "a", "function": function("read", arguments)}
        assert called(await heard(sse(calls(delta), STOP, DONE))) == [("read", {})]


@pytest.mark.parametrize(
    "names", [["read", "read", "read"], ["re", "ad", None], ["r", "read", ""], ["read", "", None]]
)
async def test_names_repeated_or_in_pieces(names: list[str | None]) -> None:
    """The name may come once, in every chunk, or bit by bit."""
    arguments = ["", "", ARGUMENTS]
    frames = [
        calls({"index": 0, "id": "a", "function": {"name": name, "arguments": piece}})
        for name, piece in zip(names, arguments, strict=True)
    ]
    assert called(await heard(sse(*frames, DONE))) == READING


async def test_names_repeated_with_every_piece() -> None:
    """A name that comes with every piece of the arguments is one call."""
    frames = [
        calls({"index": 0, "id": "a", "function": function("read", piece)})
        for piece in ('{"file', 'Path": ', '"a"}')
    ]
    assert called(await heard(sse(*frames, STOP, DONE))) == READING


@pytest.mark.parametrize("index", [{"index": 0}, {"index": None}, {}, {"index": "0"}])
async def test_two_calls_with_one_index(index: dict[str, Any]) -> None:
    """A new id is a new call, whatever its index."""
    frames = [
        calls({**index, "id": "a", "function": function("read", '{"filePath": "1"}')}),
        calls({**index, "id": "b", "function": function("read", '{"filePath": "2"}')}),
    ]
    events = await heard(sse(*frames, STOP, DONE))
    assert called(events) == [("read", {"filePath": "1"}), ("read", {"filePath": "2"})]
    assert [each.call_id for each in events if isinstance(each, ToolCalled)] == ["a", "b"]


@pytest.mark.parametrize("id", [{}, {"id": ""}, {"id": None}])
@pytest.mark.parametrize("index", [{}, {"index": 0}, {"index": None}])
async def test_calls_without_an_id(index: dict[str, Any], id: dict[str, Any]) -> None:
    """Whole calls one after the other are as many calls, each with an id of its own."""
    frames = [
        calls({**index, **id, "function": function("read", '{"filePath": "1"}')}),
        calls({**index, **id, "function": function("read", '{"filePath": "2"}')}),
    ]
    events = await heard(sse(*frames, STOP, DONE))
    assert called(events) == [("read", {"filePath": "1"}), ("read", {"filePath": "2"})]
    assert len({each.call_id for each in events if isinstance(each, ToolCalled)}) == 2


@pytest.mark.parametrize("id", [{}, {"id": "x"}])
@pytest.mark.parametrize("index", [{}, {"index": 0}])
@pytest.mark.parametrize("name", ["read", "list", "made_up"])
@pytest.mark.parametrize("pieces", [['{"filePath": "b"}'], ['{"file', 'Path": "b"}']])
async def test_two_calls_that_are_named_before_their_arguments(
    index: dict[str, Any], id: dict[str, Any], name: str, pieces: list[str]
) -> None:
    """A name after a whole call, and then arguments that begin anew, are another call."""
    frames = [
        calls({**index, **id, "function": function("read", "")}),
        calls({**index, "function": function(None, ARGUMENTS)}),
        calls({**index, **id, "function": function(name, "")}),
        *(calls({**index, "function": function(None, piece)}) for piece in pieces),
    ]
    async with sending(sse(*frames, STOP, DONE)) as (_, model):
        events = await ask(model, asking(tools=(READ, LIST)))
    assert called(events) == [*READING, (name, {"filePath": "b"})]
    assert len({each.call_id for each in events if isinstance(each, ToolCalled)}) == 2


async def test_a_call_without_arguments_after_a_whole_one() -> None:
    """The name of another tool is another call, though its index is the same."""
    frames = [
        calls({"index": 0, "function": function("read", ARGUMENTS)}),
        calls({"index": 0, "function": function("list", "")}),
    ]
    async with sending(sse(*frames, STOP, DONE)) as (_, model):
        events = await ask(model, asking(tools=(READ, LIST)))
    assert called(events) == [*READING, ("list", {})]


async def test_a_call_that_is_named_and_said_once_more() -> None:
    """Where calls have ids, a name and the same arguments at the end are no other call."""
    frames = [
        calls({"index": 0, "id": "a", "function": function("read", ARGUMENTS)}),
        calls({"index": 0, "id": "a", "function": function("read", "")}),
    ]
    assert called(await heard(sse(*frames, STOP, DONE))) == READING
    again = calls({"index": 0, "id": "a", "function": function(None, ARGUMENTS)})
    assert called(await heard(sse(*frames, again, STOP, DONE))) == READING


@pytest.mark.parametrize("index", [{}, {"index": 0}, {"index": None}])
async def test_pieces_without_an_index(index: dict[str, Any]) -> None:
    """What names no call belongs to the last one."""
    frames = [
        calls({**index, "id": "a", "function": function("read", '{"file')}),
        calls({**index, "function": function(None, 'Path": ')}),
        calls({**index, "id": "", "function": function(None, '"a"}')}),
    ]
    assert called(await heard(sse(*frames, STOP, DONE))) == READING


async def test_a_new_id_in_every_piece() -> None:
    """An id without a name begins nothing."""
    frames = [
        calls({"index": 0, "id": "a1", "function": function("read", '{"file')}),
        calls({"index": 0, "id": "a2", "function": function(None, 'Path": "a"}')}),
    ]
    assert called(await heard(sse(*frames, STOP, DONE))) == READING


async def test_two_tools_without_arguments_ids_or_indices() -> None:
    """Two names that are both of tools are two calls and not one name in pieces."""
    frames = [calls({"index": 0, "function": function(name, "")}) for name in ("read", "list")]
    async with sending(sse(*frames, STOP, DONE)) as (_, model):
        events = await ask(model, asking(tools=(READ, LIST)))
    assert called(events) == [("read", {}), ("list", {})]


async def test_one_id_in_two_answers() -> None:
    """Ids that begin anew with each answer are handed on as they are."""
    body = sse(calls({"index": 0, "id": "call_0", "function": function("read", ARGUMENTS)}), DONE)
    async with sending(body, body) as (_, model):
        for _ in range(2):
            events = await ask(model, asking(tools=(READ,)))
            assert events[0] == ToolStarted(call_id="call_0", name="read")
            assert called(events) == READING


@pytest.mark.parametrize(
    "frames",
    [
        [chunk({"function_call": function("read", "")})]
        + [chunk({"function_call": function(None, piece)}) for piece in ('{"filePath"', ': "a"}')],
        [chunk({"function_call": function("read", ARGUMENTS)}, "function_call")],
    ],
    ids=["pieces", "whole"],
)
async def test_the_old_way_to_call(frames: list[object]) -> None:
    """Servers of years ago send one function_call and no list."""
    events = await heard(sse(*frames, DONE))
    assert called(events) == READING
    assert finish_of(events).reason == "tool-calls"


@pytest.mark.parametrize(
    "delta",
    [
        {"tool_calls": [{"index": 0, "id": "a", "function": function("read", {"filePath": "a"})}]},
        {"tool_calls": {"index": 0, "id": "a", "function": function("read", ARGUMENTS)}},
        {"tool_calls": [{"id": "a", "name": "read", "arguments": {"filePath": "a"}}]},
        {"tool_calls": [None, {"index": 1, "id": "a", "function": function("read", ARGUMENTS)}]},
    ],
    ids=["object", "no list", "flat", "null"],
)
async def test_calls_in_odd_shapes(delta: dict[str, Any]) -> None:
    """Arguments as an object, a call that is no list, and a call without its function."""
    assert called(await heard(sse(chunk(delta), STOP, DONE))) == READING


async def test_an_empty_object_before_the_arguments() -> None:
    """Some gateways send {} as a placeholder, and the arguments after it."""
    frames = [
        calls({"index": 0, "id": "a", "function": function("read", "{}")}),
        calls({"index": 0, "function": function(None, ARGUMENTS)}),
    ]
    assert called(await heard(sse(*frames, STOP, DONE))) == READING


async def test_arguments_repeated_at_the_end() -> None:
    """Some servers send all arguments once more with the last chunk."""
    whole = {"index": 0, "id": "a", "function": function("read", ARGUMENTS)}
    frames = [calls(whole), calls(whole, finish="tool_calls")]
    assert called(await heard(sse(*frames, DONE))) == READING


async def test_a_call_that_is_never_named() -> None:
    """Arguments for nothing are told to the model as a call of a tool that is not there."""
    events = await heard(
        sse(calls({"index": 0, "id": "a", "function": function(None, "{}")}), DONE)
    )
    assert called(events) == [("unknown", {})]


async def test_text_between_two_calls() -> None:
    """Words between calls neither end nor join them."""
    frames = [
        calls({"index": 0, "id": "a", "function": function("read", '{"filePath": "1"}')}),
        said("and"),
        calls({"index": 1, "id": "b", "function": function("read", '{"filePath": "2"}')}),
    ]
    events = await heard(sse(*frames, STOP, DONE))
    assert called(events) == [("read", {"filePath": "1"}), ("read", {"filePath": "2"})]
    assert text_of(events) == "and"


# Whole answers and odd frames


async def test_a_server_that_does_not_stream() -> None:
    """A whole answer in one piece of JSON is an answer."""
    message = {
        "role": "assistant",
        "content": "Hello",
        "tool_calls": [{"id": "a", "type": "function", "function": function("read", ARGUMENTS)}],
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    whole = {"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}
    body = sse(whole).removeprefix(b"data: ")
    for headers in ({}, {"content-type": "application/json"}):
        events = await heard(Raw(body=body, headers=headers))
        assert text_of(events) == "Hello"
        assert called(events) == READING
        assert finish_of(events).tokens.total == 7


@pytest.mark.parametrize(
    "delta",
    [
        {"content": [{"type": "text", "text": "Hello"}]},
        {"content": "Hello", "role": None, "tool_calls": None, "function_call": None},
        {"content": "Hello", "reasoning_content": None, "refusal": None},
        {"content": "Hello", "reasoning": 7, "tool_calls": "none"},
    ],
)
async def test_odd_words(delta: dict[str, Any]) -> None:
    """Text as a list of parts, and fields that are there and empty."""
    assert text_of(await heard(sse(chunk(delta), STOP, DONE))) == "Hello"


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"reasoning": "hm", "reasoning_content": "hm"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
    ],
    ids=["content", "reasoning", "both", "details", "summary", "mistral"],
)
async def test_thoughts_in_fields_of_their_own(delta: dict[str, Any]) -> None:
    """Each family of servers has its own field for thoughts."""
    events = await heard(sse(chunk(delta), said("Yes."), STOP, DONE))
    assert (thought_of(events), text_of(events)) == ("hm", "Yes.")


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
async def test_a_thought_keeps_its_field(name: str) -> None:
    """Servers want thoughts back in the field in which they sent them."""
    events = await heard(sse(chunk({name: "hm"}), said("Yes."), STOP, DONE))
    (ended,) = [each for each in events if isinstance(each, ReasoningEnded)]
    assert ended.metadata is not None
    assert ended.metadata["id"] == name


# What was used


def used(**usage: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """A frame that only counts."""
    return {"id": "c1", "choices": [], "usage": usage}


PROMPT = {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050}


@pytest.mark.parametrize(
    "cached",
    [
        {"prompt_tokens_details": {"cached_tokens": 600}},
        {"prompt_cache_hit_tokens": 600, "prompt_cache_miss_tokens": 400},
        {
            "prompt_cache_hit_tokens": 600,
            "prompt_cache_miss_tokens": 400,
            "prompt_tokens_details": {"cached_tokens": 600},
        },
        {"cached_tokens": 600},
        {"cache_read_input_tokens": 600},
        {"input_tokens_details": {"cached_tokens": 600}},
    ],
    ids=["openai", "deepseek", "both", "moonshot", "anthropic", "responses"],
)
async def test_cached_tokens_are_counted_once(cached: dict[str, Any]) -> None:
    """Whatever the field is called, what came from the cache costs less."""
    finished = finish_of(await heard(sse(said("x", "stop"), used(**PROMPT, **cached), DONE)))
    assert finished.tokens == TokenCount(
        input=400, output=50, reasoning=0, cache=CacheCount(read=600, write=0), total=1050
    )
    assert finished.cost == (400 * 1 + 50 * 2 + 600 * 0.5) / 1e6


async def test_what_is_written_to_the_cache() -> None:
    """Claude behind OpenRouter tells what was written to the cache, too."""
    details = {"cached_tokens": 600, "cache_write_tokens": 100}
    body = sse(said("x", "stop"), used(**PROMPT, prompt_tokens_details=details), DONE)
    finished = finish_of(await heard(body))
    assert finished.tokens.cache == CacheCount(read=600, write=100)
    assert finished.cost == (300 * 1 + 50 * 2 + 600 * 0.5 + 100 * 4) / 1e6


async def test_counts_that_grow_are_not_added_up() -> None:
    """A server that counts in every chunk counts from the beginning each time."""
    frames = [
        {
            **said("x"),
            "usage": {"prompt_tokens": 10, "completion_tokens": n, "total_tokens": 10 + n},
        }
        for n in (1, 2, 3)
    ]
    finished = finish_of(await heard(sse(*frames, STOP, DONE)))
    assert (finished.tokens.input, finished.tokens.output) == (10, 3)


@pytest.mark.parametrize(
    "frame",
    [
        {**STOP, "x_groq": {"usage": PROMPT}},
        {"choices": [{**STOP["choices"][0], "usage": PROMPT}]},
    ],
    ids=["groq", "moonshot"],
)
async def test_counts_in_odd_places(frame: dict[str, Any]) -> None:
    """Groq and Moonshot put the counts elsewhere."""
    assert finish_of(await heard(sse(said("x"), frame, DONE))).tokens.total == 1050


async def test_thoughts_that_are_counted_apart() -> None:
    """At xAI the output is without the thoughts, at others with them; the total tells."""
    for output in (20, 50):
        usage = {
            "prompt_tokens": 100,
            "completion_tokens": output,
            "total_tokens": 150,
            "completion_tokens_details": {"reasoning_tokens": 30},
        }
        tokens = finish_of(await heard(sse(said("x", "stop"), used(**usage), DONE))).tokens
        assert (tokens.output, tokens.reasoning, tokens.total) == (20, 30, 150)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        ({"cost": 0.25}, 0.25),
        ({"cost": 0.01, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.2}}, 0.21),
        ({"cost": 0}, (1000 * 1 + 50 * 2) / 1e6),
        ({"cost": "much"}, (1000 * 1 + 50 * 2) / 1e6),
        ({"cost": -1}, (1000 * 1 + 50 * 2) / 1e6),
    ],
)
async def test_the_provider_says_what_it_charged(usage: dict[str, Any], cost: float) -> None:
    """OpenRouter names the price of each answer."""
    finished = finish_of(await heard(sse(said("x", "stop"), used(**PROMPT, **usage), DONE)))
    assert finished.cost == pytest.approx(cost)


@pytest.mark.parametrize("details", [{}, {"prompt_tokens_details": {"cached_tokens": 0}}])
async def test_counts_that_are_told_twice(details: dict[str, Any]) -> None:
    """What only the first of them says is not forgotten: what was cached, and what it cost."""
    first = {**PROMPT, "cost": 0.5, "prompt_tokens_details": {"cached_tokens": 4}}
    frames = [said("x"), chunk({}, "stop", usage=first), used(**PROMPT, **details), DONE]
    finished = finish_of(await heard(sse(*frames)))
    assert finished.tokens.cache.read == 4
    assert finished.cost == pytest.approx(0.5)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        7,
        [],
        {},
        {"prompt_tokens": None, "completion_tokens": "many"},
        {"prompt_tokens": -5, "completion_tokens": 1e300, "total_tokens": True},
        {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": 3},
    ],
)
async def test_counts_that_make_no_sense(usage: object) -> None:
    """Wrong counts do not spoil an answer."""
    finished = finish_of(await heard(sse({**said("x", "stop"), "usage": usage}, DONE)))
    assert finished.cost >= 0
    assert finished.tokens.input >= 0
