"""What goes wrong with a provider is a failure that says so, and whether trying again may help."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from kedge.model.port import Model, ModelEvent, ModelFailure, TextDelta
from tests.model.scene import (
    ANTHROPIC,
    CHAT,
    GOOGLE,
    KEY,
    RESPONSES,
    ask,
    asking,
    both_protocols,
    every_protocol,
    scripted,
)
from tests.support.model_server import Cut, Fault, Junk, Refusal, Reply, Text, answer

_JUNK = "event: content_block_delta\ndata: {nonsense\n\n"


async def failure_of(reply: Reply, npm: str = CHAT) -> ModelFailure:
    """What asking raises when the provider answers so."""
    async with scripted([reply], npm) as (_, model):
        with pytest.raises(ModelFailure) as caught:
            await ask(model)
    assert KEY not in repr(caught.value.failure)
    return caught.value


@both_protocols
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
async def test_what_may_pass_is_retryable(npm: str, status: int) -> None:
    """Overload, rate limits and a broken server may be better the next time."""
    failed = await failure_of(Refusal(status=status), npm)
    assert failed.retryable
    assert failed.failure.name == "APIError"
    data = failed.failure.data
    assert (data["message"], data["statusCode"]) == ("scripted failure", status)
    assert data["isRetryable"] is True
    assert "scripted failure" in data["responseBody"]
    assert data["metadata"]["url"].startswith("http://127.0.0.1:")


@both_protocols
@pytest.mark.parametrize("status", [400, 403, 404, 422])
async def test_what_the_provider_refuses_is_not_retryable(npm: str, status: int) -> None:
    """Asking the same again would be refused again."""
    failed = await failure_of(Refusal(status=status), npm)
    assert not failed.retryable
    assert failed.failure.name == "APIError"
    assert failed.failure.data["message"] == "scripted failure"
    assert failed.failure.data["isRetryable"] is False


async def test_the_recorded_form_of_an_api_error() -> None:
    """An API error has the fields that OpenCode's has."""
    failed = await failure_of(Refusal(status=400, code="fake"))
    assert set(failed.failure.data) == {
        "message",
        "statusCode",
        "isRetryable",
        "responseHeaders",
        "responseBody",
        "metadata",
    }
    body = '{"error": {"message": "scripted failure", "type": "fake", "code": "fake"}}'
    assert failed.failure.data["responseBody"] == body
    assert failed.failure.data["responseHeaders"]["content-type"] == "application/json"


@both_protocols
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
async def test_how_long_to_wait(npm: str, headers: dict[str, str], seconds: float | None) -> None:
    """The provider's wish is read from either header; what makes no sense is no wish."""
    failed = await failure_of(Refusal(status=429, headers=headers), npm)
    assert failed.retry_after == seconds


@both_protocols
async def test_how_long_to_wait_as_a_date(npm: str) -> None:
    """The wish may be a date."""
    date = datetime.now(UTC) + timedelta(hours=10)
    headers = {"retry-after": format_datetime(date, usegmt=True)}
    failed = await failure_of(Refusal(status=503, headers=headers), npm)
    assert failed.retry_after is not None
    assert 9 * 3600 < failed.retry_after <= 10 * 3600


@both_protocols
async def test_a_refused_key(npm: str) -> None:
    """A refused key is a failure of its own, which says where the key comes from."""
    failed = await failure_of(Refusal(status=401, message=f"bad key {KEY}"), npm)
    assert failed.failure.name == "ProviderAuthError"
    assert failed.failure.data["providerID"] == "fake"
    assert "provider.fake.options.apiKey" in failed.failure.data["message"]
    assert not failed.retryable


OVERFLOWS = {
    "openai": "This model's maximum context length is 8192 tokens. However, your messages ...",
    "anthropic": "prompt is too long: 250000 tokens > 200000 maximum",
    "anthropic sum": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    "bedrock": "Input is too long for requested model.",
    "google": "The input token count (1200000) exceeds the maximum number of tokens allowed (1).",
    "llama.cpp": "the request exceeds the available context size. try increasing the context size"
    " or enable context shift",
    "llama.cpp new": "request (9000 tokens) exceeds the available context size (8192 tokens), try"
    " increasing it",
    "vllm": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "tgi": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: ...",
    "tgi inputs": "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",
    "ollama": "the input length exceeds the context length",
    "lm studio": "Trying to keep the first 9000 tokens when context the overflows. However, the"
    " model is loaded with context length of only 4096 tokens, which is not enough.",
    "lm studio keep": "The number of tokens to keep from the initial prompt is greater than the"
    " context length.",
    "openrouter": "This endpoint's maximum context length is 131072 tokens. However, you ...",
    "groq": "Please reduce the length of the messages or completion.",
    "mistral": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768"
    " maximum context length",
    "xai": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "moonshot": "Invalid request: Your request exceeded model token limit: 131072",
    "minimax": "invalid params, context window exceeds limit",
    "zai": "tokens in request more than max tokens allowed",
    "copilot": "prompt token count of 70000 exceeds the limit of 64000",
    "fireworks": "The prompt is too long: 140000, model maximum context length: 131071",
}


@both_protocols
@pytest.mark.parametrize("message", OVERFLOWS.values(), ids=OVERFLOWS)
async def test_too_long_a_conversation(npm: str, message: str) -> None:
    """A conversation that does not fit is a failure of its own, whoever says it."""
    failed = await failure_of(Refusal(status=400, message=message), npm)
    assert failed.failure.name == "ContextOverflowError"
    assert failed.failure.data["message"] == message
    assert not failed.retryable


@pytest.mark.parametrize("status", [400, 413, 422, 500])
async def test_too_long_by_any_status(status: int) -> None:
    """llama.cpp said 500 for it, TGI says 422."""
    refusal = Refusal(status=status, message=OVERFLOWS["llama.cpp"])
    assert (await failure_of(refusal)).failure.name == "ContextOverflowError"


async def test_too_long_by_its_kind() -> None:
    """Some only say it in the kind of the error."""
    for code in ("exceed_context_size_error", "context_length_exceeded"):
        failed = await failure_of(Refusal(status=400, message="too big", code=code))
        assert failed.failure.name == "ContextOverflowError"


@pytest.mark.parametrize("message", [OVERFLOWS["lm studio"], OVERFLOWS["llama.cpp"]])
async def test_too_long_inside_of_a_stream(message: str) -> None:
    """Servers of one's own find out when they have already begun to answer."""
    failed = await failure_of(answer(Fault(message=message, kind="other")))
    assert failed.failure.name == "ContextOverflowError"


@both_protocols
@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            400,
            "max_tokens is too large: 100000. This model supports at most 4096 completion tokens",
        ),
        (400, "max_tokens must be at most the maximum of 4096 tokens"),
        (400, "Unknown parameter: context"),
        (400, "The tool description is too long"),
        (429, "Rate limit reached for tokens per minute: too many tokens, maximum 6000 tokens"),
        (503, "The context length cache is unavailable"),
        (404, "There is no model with a context window of a million tokens"),
    ],
)
async def test_what_only_sounds_too_long(npm: str, status: int, message: str) -> None:
    """Shortening the conversation would not help."""
    failed = await failure_of(Refusal(status=status, message=message), npm)
    assert failed.failure.name == "APIError"


async def test_a_spent_quota_is_not_retryable() -> None:
    """OpenAI says 429 too when the account is empty; waiting does not fill it."""
    failed = await failure_of(Refusal(status=429, code="insufficient_quota"))
    assert not failed.retryable


@both_protocols
async def test_a_body_that_is_a_web_page(npm: str) -> None:
    """A proxy's error page is not shown as a message."""
    page = "<html><h1>Bad gateway</h1></html>"
    refusal = Refusal(status=502, body=page, headers={"content-type": "text/html"})
    failed = await failure_of(refusal, npm)
    assert failed.retryable
    assert failed.failure.data["message"] == "The provider answered 502 (Bad Gateway)"
    assert failed.failure.data["responseBody"] == page


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"detail": "no such route"}', "no such route"),
        ('{"error": "just words"}', "just words"),
        ('{"message": "at the top"}', "at the top"),
        ("plain words", "plain words"),
        ("", "The provider answered 418 (I'm a Teapot)"),
        ("[1, 2]", "The provider answered 418 (I'm a Teapot)"),
    ],
)
async def test_the_message_is_found(body: str, message: str) -> None:
    """Servers put their message in different places."""
    failed = await failure_of(Refusal(status=418, body=body))
    assert failed.failure.data["message"] == message


@both_protocols
async def test_a_huge_error_is_cut(npm: str) -> None:
    """An error of megabytes does not end up in the database."""
    failed = await failure_of(Refusal(status=400, message="x" * 5_000_000), npm)
    assert len(repr(failed.failure)) < 40_000


@both_protocols
async def test_secrets_do_not_come_back(npm: str) -> None:
    """A provider that repeats the key in body and headers does not get it into a message."""
    refusal = Refusal(
        status=400, message=f"key {KEY}", headers={"x-echo": KEY, "set-cookie": "s=1"}
    )
    failed = await failure_of(refusal, npm)
    assert failed.failure.data["message"] == "key ***"
    assert failed.failure.data["responseHeaders"]["x-echo"] == "***"
    assert "set-cookie" not in failed.failure.data["responseHeaders"]


async def _until_failure(reply: Reply, npm: str) -> tuple[list[ModelEvent], ModelFailure]:
    events: list[ModelEvent] = []
    async with scripted([reply], npm) as (_, model):
        with pytest.raises(ModelFailure) as caught:
            await _listen(model, events)
    return events, caught.value


async def _listen(model: Model, events: list[ModelEvent]) -> None:
    async with model.stream(asking()) as heard:
        async for event in heard:
            events.append(event)


@both_protocols
async def test_a_cut_stream(npm: str) -> None:
    """A connection that is reset in mid-sentence is a failure after the words that came."""
    events, failed = await _until_failure(answer(Text.of("Half a ", "sent"), Cut()), npm)
    assert events[-1] == TextDelta(text="sent")
    assert failed.retryable
    assert failed.failure.name == "APIError"
    assert failed.failure.data["message"].startswith("The connection to fake was lost: ")


@pytest.mark.parametrize("npm", [ANTHROPIC, RESPONSES, GOOGLE])
async def test_a_stream_that_just_ends(npm: str) -> None:
    """These protocols say when they are over; chat servers forget it, which has its own tests."""
    events, failed = await _until_failure(answer(Text.of("Half"), ends=False), npm)
    assert events[-1] == TextDelta(text="Half")
    assert failed.retryable


@both_protocols
async def test_nothing_at_all(npm: str) -> None:
    """A connection that is reset before the first word is lost."""
    failed = await failure_of(answer(Cut()), npm)
    assert failed.retryable


@both_protocols
async def test_an_error_inside_the_stream(npm: str) -> None:
    """A provider may report overload after it began to answer."""
    events, failed = await _until_failure(answer(Text.of("Well"), Fault(message="busy now")), npm)
    assert events[-1] == TextDelta(text="Well")
    assert "busy now" in failed.failure.data["message"]
    assert failed.failure.name == "APIError"


async def test_overload_inside_anthropics_stream_is_retryable() -> None:
    """Anthropic's own name for overload is known."""
    failed = await failure_of(answer(Fault()), "@ai-sdk/anthropic")
    assert failed.retryable


@both_protocols
async def test_a_stream_of_junk(npm: str) -> None:
    """Frames that are no JSON are a failure, not a crash."""
    failed = await failure_of(answer(Text.of("a"), Junk(text=_JUNK)), npm)
    assert failed.failure.name in ("APIError", "UnknownError")


@every_protocol
@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/json"])
async def test_what_is_no_stream_of_events(npm: str, kind: str) -> None:
    """A login page, say, will still be one when it is asked again: the address is wrong."""
    body = "{}" if "json" in kind else "<html>Who are you?</html>"
    failed = await failure_of(Refusal(status=200, body=body, headers={"content-type": kind}), npm)
    message = failed.failure.data["message"]
    assert not failed.retryable
    assert failed.failure.data["isRetryable"] is False
    assert "lost" not in message
    for word in (kind.partition(";")[0], "http://127.0.0.1:", "provider.fake.options.baseURL"):
        assert word in message
