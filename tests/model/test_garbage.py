"""What is no stream, or a broken one, is a readable error that shows what came."""

import asyncio
import gzip
import json
from typing import Any

import pytest

from kedge.model.pydantic_ai import event_stream
from tests.model.raw_scene import DONE, STOP, failed, heard, said, sse
from tests.model.scene import (
    ANTHROPIC,
    CHAT,
    GOOGLE,
    KEY,
    RESPONSES,
    every_protocol,
    finish_of,
    text_of,
)
from tests.support.raw_server import Raw
from tests.support.timeouts import PATIENCE

PAGE = b"<!doctype html>\n<html><h1>Sign in</h1></html>"


@every_protocol
@pytest.mark.parametrize("ends", ["clean", "open"])
async def test_a_web_page(npm: str, ends: Any) -> None:  # noqa: ANN401
    """A login page that claims to be a stream is shown, and never waited for."""
    failure = await failed(Raw(body=PAGE, ends=ends), npm)
    assert not failure.retryable
    assert "no stream of events" in str(failure)
    assert "<!doctype html>" in str(failure)


@every_protocol
@pytest.mark.parametrize(
    "body", [b"", b"\n\n\n", b": only a comment\n\n", b"data:\n\n", b"id: 7\n\n"]
)
async def test_nothing(npm: str, body: bytes) -> None:
    """A body that says nothing is an empty answer."""
    failure = await failed(body, npm)
    assert "empty answer" in str(failure)
    assert failure.setback == "broken"


@every_protocol
@pytest.mark.parametrize(
    "body",
    [
        b"data: {nonsense\n\n",
        b"data: hello there\n\n",
        b"data: [1, 2]\n\n",
        b'data: "words"\n\n',
        b"data: 7\n\n",
        b"data: {]\ndata: }\n\n",
        b'data: {"a": ' + b"[" * 5000 + b"\n\n",
    ],
)
async def test_data_that_is_no_object(npm: str, body: bytes) -> None:
    """The message shows what came, cut and without secrets."""
    failure = await failed(body.replace(b"nonsense", b"nonsense " + KEY.encode()), npm)
    assert "cannot be read" in str(failure)
    assert failure.setback == "broken"
    assert len(str(failure)) < 400


@every_protocol
async def test_json_without_data(npm: str) -> None:
    """A server that sends bare JSON where a stream should be."""
    failure = await failed(b'{"hello": "there"}\n{"hello": "again"}\n', npm)
    assert "no stream of events" in str(failure)
    assert '{"hello": "there"}' in str(failure)


async def test_words_instead_of_a_stream() -> None:
    """Whatever it is, it is shown."""
    for body in (b"no such model", b"Error: no such model\n"):
        assert "no such model" in str(await failed(body))


async def test_a_page_in_the_middle() -> None:
    """A proxy that loses its server puts its own page behind what came before."""
    failure = await failed(sse(said("Hel")) + b"<html>502 Bad Gateway</html>\n\n")
    assert "502 Bad Gateway" in str(failure)


async def test_fields_that_nobody_knows_are_ignored() -> None:
    """As the standard of event streams has it."""
    body = b"\xef\xbb\xbf: hi\nretry: 5\nid: 9\nfoo: bar\ndata\n\n" + sse(said("Hello"), STOP, DONE)
    assert text_of(await heard(body)) == "Hello"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_every_end_of_line(end: bytes) -> None:
    """The three of the standard."""
    body = sse(b": hello\n\n", said("Hello"), said("!"), STOP, DONE).replace(b"\n", end)
    assert text_of(await heard(body)) == "Hello!"
    assert text_of(await heard(Raw(body=body, cuts=tuple(range(len(body)))))) == "Hello!"


async def test_no_space_and_several_lines_of_data() -> None:
    """An event may have its data in several lines, and no space after the colon."""
    text = json.dumps(said("Hello"), indent=1).encode()
    body = b"".join(b"data:" + line + b"\n" for line in text.split(b"\n"))
    assert text_of(await heard(body + b"\n" + sse(STOP, DONE))) == "Hello"


async def test_bytes_that_are_no_utf8() -> None:
    """They are replaced, and the rest of the answer is as it was."""
    body = sse(said("Hell?"), STOP, DONE).replace(b"?", b"\xff\xc3")
    assert text_of(await heard(body)).startswith("Hell\ufffd")


@every_protocol
async def test_separators_inside_of_text(npm: str) -> None:
    """Characters that some libraries take for the end of a line are text."""
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"
    assert text_of(await heard(whole(npm, text, ensure_ascii=False), npm)) == text


@every_protocol
async def test_compressed(npm: str) -> None:
    """A proxy may compress the stream."""
    body = gzip.compress(whole(npm, "Hello"))
    raw = Raw(body=body, cuts=(5, 20), headers={"content-encoding": "gzip"})
    assert text_of(await heard(raw, npm)) == "Hello"


async def test_compressed_and_broken() -> None:
    """What cannot be decompressed is lost."""
    raw = Raw(body=b"no gzip at all", headers={"content-encoding": "gzip"})
    assert "was lost" in str(await failed(raw))


@every_protocol
async def test_a_line_without_an_end(npm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never ends its line is stopped before the memory is full."""
    monkeypatch.setattr(event_stream, "_LINE_LIMIT", 10_000)
    for body in (b"data: " + b"x" * 20_000, b"data: x\n" * 5_000, b"[" + b"1,\n" * 9_000):
        async with asyncio.timeout(PATIENCE):
            failure = await failed(Raw(body=body, ends="open"), npm)
        assert "without an end" in str(failure)


@every_protocol
@pytest.mark.parametrize("body", [b"", b": hello\n\n"])
async def test_a_server_that_falls_silent(npm: str, body: bytes) -> None:
    """It is given up after the silence that is allowed."""
    failure = await failed(Raw(body=body, ends="open"), npm, silence_ms=300)
    assert failure.setback == "silent"
    assert "fell silent" in str(failure)


async def test_comments_do_not_keep_a_stream_alive_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A queue that only pings is given up, too."""
    monkeypatch.setattr(event_stream, "_EMPTY_TALK", 0)
    body = b": waiting\n\n" * 50
    raw = Raw(body=body, cuts=tuple(range(0, len(body), 12)), ends="open")
    assert (await failed(raw)).setback == "silent"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'error: {"code": 500, "message": "slot gone", "type": "server_error"}\n\n', "slot gone"),
        (b"event: error\ndata: it broke\n\n", "it broke"),
        (b'event: error\ndata: {"error": "it broke", "error_type": "generation"}\n\n', "it broke"),
        (b'data: {"error": {"message": "it broke", "code": 502}}\n\n', "it broke"),
        (b'data: {"object": "error", "message": "it broke", "code": 500}\n\n', "it broke"),
        (b'{"error": {"message": "it broke", "code": 500}}', "it broke"),
        (
            sse({"choices": [{"error": {"code": 502, "message": "it broke"}, "delta": {}}]}),
            "it broke",
        ),
    ],
    ids=["llama.cpp", "plain", "tgi", "openrouter", "vllm", "page", "choice"],
)
async def test_errors_with_a_good_status(body: bytes, words: str) -> None:
    """Servers report errors after they have said that all is well, each in its own way."""
    failure = await failed(body)
    assert failure.failure.name == "APIError"
    assert words in str(failure)
    assert failure.retryable == (b"it broke\n" not in body)


@pytest.mark.parametrize(
    ("npm", "error", "retryable", "setback"),
    [
        (CHAT, {"error": {"code": 429, "message": "slow down"}}, True, "busy"),
        (CHAT, {"error": {"code": "insufficient_quota", "message": "slow down"}}, False, None),
        (CHAT, {"error": {"code": 400, "message": "slow down"}}, False, None),
        (ANTHROPIC, {"type": "error", "error": {"type": "overloaded_error",
         "message": "slow down"}}, True, "busy"),
        (ANTHROPIC, {"type": "error", "error": {"type": "api_error", "message": "slow down"}},
         True, "broken"),
        (GOOGLE, {"error": {"code": 503, "status": "UNAVAILABLE", "message": "slow down"}},
         True, "busy"),
        (RESPONSES, {"type": "error", "code": "server_error", "message": "slow down"},
         True, "broken"),
        (RESPONSES, {"type": "error", "error": {"code": "server_error", "message": "slow down"}},
         True, "broken"),
    ],
)  # fmt: skip
async def test_errors_inside_of_a_stream(
    npm: str, error: dict[str, Any], retryable: bool, setback: str | None
) -> None:
    """What may pass is tried again, and what may have been paid for less often."""
    failure = await failed(sse(error), npm)
    assert "slow down" in str(failure)
    assert failure.retryable is retryable
    assert not retryable or failure.setback == setback


def whole(npm: str, text: str, **how: Any) -> bytes:  # noqa: ANN401
    """An answer with these words in a protocol."""
    frames: list[dict[str, Any]]
    if npm == CHAT:
        frames = [said(text), STOP]
    elif npm == GOOGLE:
        parts = {"role": "model", "parts": [{"text": text}]}
        frames = [{"candidates": [{"content": parts, "finishReason": "STOP", "index": 0}]}]
    elif npm == ANTHROPIC:
        frames = [
            {"type": "message_start", "message": MESSAGE},
            {"type": "content_block_start", "index": 0,
             "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0,
             "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"},
             "usage": {"output_tokens": 5}},
            {"type": "message_stop"},
        ]  # fmt: skip
    else:
        frames = responding(
            {"type": "response.output_text.delta", "item_id": "m", "output_index": 0,
             "content_index": 0, "delta": text, "logprobs": []},
        )  # fmt: skip
    lines = [
        (f"event: {frame['type']}\n" if "type" in frame else "")
        + f"data: {json.dumps(frame, **how)}\n\n"
        for frame in frames
    ]
    return "".join(lines).encode()


MESSAGE: dict[str, Any] = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 1},
}


def responding(
    *frames: dict[str, Any],
    last: str = "completed",
    **also: Any,  # noqa: ANN401
) -> list[dict[str, Any]]:
    """Frames of OpenAI's Responses between their beginning and their end."""
    base = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": [],
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip
    usage = {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8,
             "input_tokens_details": {"cached_tokens": 0},
             "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
    found = [
        {"type": "response.created", "response": {**base, "status": "in_progress"}},
        *frames,
        {"type": f"response.{last}",
         "response": {**base, "status": last, "usage": usage, **also}},
    ]  # fmt: skip
    return [{**frame, "sequence_number": number} for number, frame in enumerate(found)]


async def test_frames_that_a_library_falls_over(caplog: pytest.LogCaptureFixture) -> None:
    """The message shows the frame, and the log where it was that the library fell."""
    body = whole(ANTHROPIC, "Hello").replace(b'"text": "Hello"', b'"text": ["Hello"]')
    failure = await failed(body, ANTHROPIC)
    assert failure.setback == "broken"
    assert "text_delta" in str(failure)
    assert "Traceback" in caplog.text


# Ends of the other protocols


async def test_a_refusal_in_responses() -> None:
    """It is shown as text."""
    refused = [
        {"type": "response.refusal.delta", "item_id": "m", "output_index": 0, "content_index": 0,
         "delta": piece}
        for piece in ("I cannot ", "do that.")
    ]  # fmt: skip
    events = await heard(sse(*responding(*refused)), RESPONSES)
    assert text_of(events) == "I cannot do that."
    assert finish_of(events).reason == "content-filter"


async def test_responses_that_fail() -> None:
    """The error that they name is the message."""
    error = {"code": "server_error", "message": "no room"}
    failure = await failed(sse(*responding(last="failed", error=error)), RESPONSES)
    assert "no room" in str(failure)
    assert failure.retryable
    assert failure.setback == "broken"


async def test_responses_that_fail_without_saying_why() -> None:
    """They are a failure all the same."""
    failure = await failed(sse(*responding(last="failed")), RESPONSES)
    assert "failed" in str(failure)


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("max_output_tokens", "MessageOutputLengthError"),
        ("content_filter", "ContentFilterError"),
        ("who knows", "APIError"),
    ],
)
async def test_responses_that_are_incomplete_and_empty(reason: str, name: str) -> None:
    """An answer that was cut before its first word is a failure that says why."""
    frames = responding(last="incomplete", incomplete_details={"reason": reason})
    assert (await failed(sse(*frames), RESPONSES)).failure.name == name


async def test_events_of_responses_that_nobody_knows() -> None:
    """Servers that resemble OpenAI's have events of their own."""
    frames = responding(
        {"type": "response.reasoning_part.added", "item_id": "x"},
        {"type": "response.output_text.delta", "item_id": "m", "output_index": 0,
         "content_index": 0, "delta": "Hello", "logprobs": []},
    )  # fmt: skip
    assert text_of(await heard(sse(*frames), RESPONSES)) == "Hello"


@pytest.mark.parametrize(
    "reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "LANGUAGE", "MALFORMED_RESPONSE"]
)
async def test_google_gives_up(reason: str) -> None:
    """A call that Google could not read is a failure with Google's word for it."""
    candidate = {"finishReason": reason, "finishMessage": "Malformed: read(", "index": 0}
    failure = await failed(sse({"candidates": [candidate]}), GOOGLE)
    assert reason in str(failure)
    assert "Malformed: read(" in str(failure)
    assert failure.retryable
    assert failure.setback == "broken"


async def test_google_blocks_a_prompt() -> None:
    """Asking again would be blocked again."""
    feedback = {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "not this"}
    failure = await failed(sse({"promptFeedback": feedback}), GOOGLE)
    assert failure.failure.name == "ContentFilterError"
    assert "PROHIBITED_CONTENT not this" in str(failure)
    assert not failure.retryable


@pytest.mark.parametrize(
    ("reason", "word"), [("OTHER", "other"), ("BRAND_NEW", "other"), ("SAFETY", "content-filter")]
)
async def test_any_reason_of_google_is_an_end(reason: str, word: str) -> None:
    """Also those that came after the library."""
    body = whole(GOOGLE, "Hello").replace(b'"STOP"', f'"{reason}"'.encode())
    events = await heard(body, GOOGLE)
    assert text_of(events) == "Hello"
    assert finish_of(events).reason == word


async def test_google_as_a_list() -> None:
    """A proxy that drops `alt=sse` gets a list of the same frames."""
    parts = {"role": "model", "parts": [{"text": "Hello"}]}
    frames = [{"candidates": [{"content": parts}]}, {"candidates": [{"finishReason": "STOP"}]}]
    body = json.dumps(frames, indent=2).encode()
    assert text_of(await heard(Raw(body=body), GOOGLE)) == "Hello"


async def test_google_counts_what_was_cached_once() -> None:
    """The prompt includes it."""
    usage = {"promptTokenCount": 1000, "cachedContentTokenCount": 600, "candidatesTokenCount": 20,
             "thoughtsTokenCount": 30, "totalTokenCount": 1050}  # fmt: skip
    body = whole(GOOGLE, "Hello").replace(
        b"}\n\n", f', "usageMetadata": {json.dumps(usage)}}}\n\n'.encode()
    )
    finished = finish_of(await heard(body, GOOGLE))
    assert (finished.tokens.input, finished.tokens.cache.read) == (400, 600)
    assert finished.cost == (400 * 1 + 50 * 2 + 600 * 0.5) / 1e6


@pytest.mark.parametrize("reason", ["pause_turn", "brand_new"])
async def test_any_reason_of_anthropic_is_an_end(reason: str) -> None:
    """Also those that came after the library."""
    body = whole(ANTHROPIC, "Hello").replace(b"end_turn", reason.encode())
    events = await heard(body, ANTHROPIC)
    assert text_of(events) == "Hello"
    assert finish_of(events).reason == "other"


async def test_anthropics_frames_without_their_names() -> None:
    """Some proxies drop the names of the events."""
    lines = whole(ANTHROPIC, "Hello").split(b"\n")
    body = b"\n".join(line for line in lines if not line.startswith(b"event:"))
    assert text_of(await heard(body, ANTHROPIC)) == "Hello"


async def test_anthropics_end_without_its_last_frame() -> None:
    """After the reason, nothing is missing."""
    body = whole(ANTHROPIC, "Hello").partition(b"event: message_stop")[0]
    for ends in ("clean", "reset"):
        assert text_of(await heard(Raw(body=body, ends=ends), ANTHROPIC)) == "Hello"
