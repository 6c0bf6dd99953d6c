"""OpenAI's Responses API and Google's Gemini API, by the same events as the others."""

import pytest

from kedge.domain.sessions import CacheCount, TokenCount
from kedge.model.catalog import Catalog
from kedge.model.port import (
    AssistantTurn,
    Finished,
    ModelFailure,
    ModelRequest,
    Reasoning,
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
from kedge.model.port import Text as Said
from tests.model.scene import (
    GOOGLE,
    READ,
    RESPONSES,
    ask,
    asking,
    config_for,
    finish_of,
    scripted,
    thought_of,
)
from tests.support.model_server import (
    Call,
    Cut,
    ModelServer,
    Refusal,
    Reply,
    Text,
    Thinking,
    Usage,
    answer,
)

both = pytest.mark.parametrize("npm", [RESPONSES, GOOGLE], ids=["responses", "google"])


@both
async def test_text_and_its_tokens(npm: str) -> None:
    """Text comes piece by piece; tokens are counted as everywhere."""
    usage = Usage(input=100, output=20, reasoning=30, cache_read=400)
    async with scripted([answer(Text.of("Hello ", "there"), usage=usage)], npm) as (_, model):
        events = await ask(model)
    assert events[:-1] == [
        TextStarted(),
        TextDelta(text="Hello "),
        TextDelta(text="there"),
        TextEnded(),
    ]
    finished = finish_of(events)
    assert finished.reason == "stop"
    assert finished.tokens == TokenCount(
        input=100, output=20, reasoning=30, cache=CacheCount(read=400, write=0), total=550
    )
    assert finished.cost == (100 * 1 + 50 * 2 + 400 * 0.5) / 1e6


@both
async def test_thoughts_then_a_call(npm: str) -> None:
    """Thoughts are apart from the text, and a call has its id and its arguments."""
    call = Call.of("read", call_id="call_1", filePath="a")
    reply = answer(Thinking.of("hm", signature="sealed"), Text.of("Reading."), call)
    async with scripted([reply], npm) as (_, model):
        events = await ask(model, asking(tools=(READ,)))
    assert [type(event) for event in events] == [
        ReasoningStarted,
        ReasoningDelta,
        ReasoningEnded,
        TextStarted,
        TextDelta,
        TextEnded,
        ToolStarted,
        ToolCalled,
        Finished,
    ]
    called = events[-2]
    assert isinstance(called, ToolCalled)
    assert (called.call_id, called.input) == ("call_1", {"filePath": "a"})
    assert finish_of(events).reason == "tool-calls"


@both
async def test_what_the_provider_wants_back_it_gets_back(npm: str) -> None:
    """Sealed thoughts and signatures on calls go back with the result of the call."""
    call = Call.of("read", call_id="call_1", filePath="a")
    reply = answer(Thinking.of("hm", signature="sealed"), call)
    script = [reply, answer(Text.of("ok"))]
    async with scripted(script, npm, reasoning=True) as (server, model):
        events = await ask(model, asking("go", tools=(READ,)))
        ended = next(event for event in events if isinstance(event, ReasoningEnded))
        called = next(event for event in events if isinstance(event, ToolCalled))
        thought = Reasoning(text=thought_of(events), metadata=ended.metadata)
        use = ToolUse(
            call_id=called.call_id,
            name="read",
            input=called.input or {},
            metadata=called.metadata,
        )
        result = ToolResult(call_id=called.call_id, name="read", output="the text of it")
        turns = (
            UserTurn(content=(Said(text="go"),)),
            AssistantTurn(content=(thought, use), model="fake/fake-model"),
            UserTurn(content=(result,)),
        )
        await ask(model, ModelRequest(system=(), turns=turns, tools=(READ,)))
        sent = repr(server.requests[1].body)
    assert "the text of it" in sent
    # "signed call_1" in base64, as the scripted server signs.
    assert ("sealed" if npm == RESPONSES else "c2lnbmVkIGNhbGxfMQ==") in sent


async def test_paragraphs_of_a_summary_are_one_thought() -> None:
    """OpenAI summarises in paragraphs that are sealed together, so they stay together."""
    reply = answer(Thinking.of("First.", "Second.", signature="sealed"), Text.of("Done."))
    async with scripted([reply], RESPONSES) as (_, model):
        events = await ask(model)
    assert thought_of(events) == "First.\n\nSecond."
    ended = [event for event in events if isinstance(event, ReasoningEnded)]
    assert len(ended) == 1
    assert ended[0].metadata is not None
    assert ended[0].metadata["signature"] == "sealed"


@both
async def test_reasons_to_stop(npm: str) -> None:
    """The reasons have the same words as everywhere."""
    for reason in ("stop", "length", "content-filter"):
        async with scripted([answer(Text.of("x"), finish=reason)], npm) as (_, model):
            assert finish_of(await ask(model)).reason == reason


@both
@pytest.mark.parametrize(("status", "retryable"), [(400, False), (429, True), (503, True)])
async def test_refusals(npm: str, status: int, retryable: bool) -> None:
    """Errors are told as everywhere, and nobody but kedge tries again."""
    headers = {"retry-after": "3"}
    async with scripted([Refusal(status=status, headers=headers)], npm) as (server, model):
        with pytest.raises(ModelFailure) as caught:
            await ask(model)
        assert len(server.requests) == 1
    assert caught.value.retryable is retryable
    assert caught.value.retry_after == (3.0 if retryable else None)
    assert caught.value.failure.data["message"] == "scripted failure"
    assert caught.value.failure.data["statusCode"] == status


@both
async def test_a_refused_key(npm: str) -> None:
    """A refused key is a failure of its own."""
    async with scripted([Refusal(status=401)], npm) as (_, model):
        with pytest.raises(ModelFailure) as caught:
            await ask(model)
    assert caught.value.failure.name == "ProviderAuthError"


@both
@pytest.mark.parametrize("ends", [True, False], ids=["reset", "closed"])
async def test_a_cut_stream(npm: str, ends: bool) -> None:
    """An answer that stops in the middle is not taken for a whole one."""
    items = (Text.of("Half"), Cut()) if ends else (Text.of("Half"),)
    async with scripted([answer(*items, ends=False)], npm) as (_, model):
        with pytest.raises(ModelFailure) as caught:
            await ask(model)
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("", "/v1beta"),
        ("/", "/v1beta"),
        ("/v1beta", "/v1beta"),
        ("/v1beta/", "/v1beta"),
        ("/v1", "/v1"),
        ("/v1alpha", "/v1alpha"),
        ("/proxy/google/v1beta", "/proxy/google/v1beta"),
        ("/v1/account/google-ai-studio", "/v1/account/google-ai-studio"),
    ],
)
async def test_googles_address_is_taken_as_it_is(
    given: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No version is added to one that has a path, or taken from it, whatever the environment is."""
    monkeypatch.setenv("GOOGLE_GENAI_API_VERSION", "v9")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:9/nowhere")
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    async with ModelServer([answer(Text.of("x"))]) as server:
        catalog = Catalog(config_for(f"http://127.0.0.1:{server.port}{given}", GOOGLE), {})
        await ask(catalog.open(catalog.model("fake", "fake-model")))
        await catalog.aclose()
        assert server.requests[0].path == f"{asked}/models/fake-model:streamGenerateContent"


async def test_what_openai_is_asked_for_beside_the_answer() -> None:
    """Its cache is looked for by the conversation; thoughts are summarised, and come sealed."""
    script = [answer(Text.of("x"))] * 2
    async with scripted(script, RESPONSES, reasoning=True) as (server, model):
        await ask(model, asking(conversation="ses_1"))
        await ask(model, asking(conversation="ses_1", purpose="title"))
        answered, titled = (request.body for request in server.requests)
    assert answered["prompt_cache_key"] == "ses_1"
    assert answered["reasoning"]["summary"] == "auto"
    assert answered["include"] == ["reasoning.encrypted_content"]
    assert "prompt_cache_key" not in titled
    assert "summary" not in titled.get("reasoning", {})


async def test_what_openai_is_asked_for_can_be_chosen() -> None:
    """Options win; a model that does not think has no thoughts to summarise."""
    options = {"promptCacheKey": "mine", "reasoningSummary": None}
    async with scripted([answer(Text.of("x"))], RESPONSES, reasoning=True) as (server, model):
        await ask(model, asking(conversation="ses_1", options=options))
        chosen = server.requests[0].body
    assert chosen["prompt_cache_key"] == "mine"
    assert "summary" not in chosen.get("reasoning", {})
    async with scripted([answer(Text.of("x"))], RESPONSES) as (server, model):
        await ask(model, asking())
        plain = server.requests[0].body
    assert not {"prompt_cache_key", "reasoning", "include"} & set(plain)


async def test_an_account_that_may_not_see_summaries() -> None:
    """It is asked again without them, and from then on; another refusal is told."""
    unverified = Refusal(status=400, message="must be verified to generate reasoning summaries")
    wrong = Refusal(status=400, message="wrong")
    fine = answer(Text.of("x"))
    script: list[Reply] = [wrong, unverified, fine, fine, unverified]
    async with scripted(script, RESPONSES, reasoning=True) as (server, model):
        with pytest.raises(ModelFailure, match="wrong"):
            await ask(model)
        for _ in range(2):
            assert finish_of(await ask(model)).reason == "stop"
        with pytest.raises(ModelFailure, match="verified"):
            await ask(model)
        asked = ["summary" in each.body.get("reasoning", {}) for each in server.requests]
    assert asked == [True, True, False, False, False]


async def test_nothing_is_kept_at_openai() -> None:
    """kedge has the conversation, so OpenAI is told not to store it."""
    options = {"reasoningEffort": "low"}
    async with scripted([answer(Text.of("x"))], RESPONSES, reasoning=True) as (server, model):
        await ask(model, asking(options=options))
        body = server.requests[0].body
    assert body["store"] is False
    assert server.requests[0].system == "Be brief."
