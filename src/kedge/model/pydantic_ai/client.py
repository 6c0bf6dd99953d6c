"""HTTP clients, one for each provider; retries are kedge's own, so that users see them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, TypeVar, cast, get_args
from urllib.parse import urlsplit

import httpx2
import msgspec
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk
from pydantic import ValidationError
from pydantic_ai.models import Model as AnyModel
from pydantic_ai.profiles import ModelProfile

from kedge.domain.providers import ModelInfo
from kedge.model.endpoint import Endpoint
from kedge.model.pydantic_ai.chat_stream import ChatReader
from kedge.model.pydantic_ai.event_stream import EventStream, Reader
from kedge.model.pydantic_ai.protocols import AnthropicReader, GoogleReader, ResponsesReader
from kedge.model.pydantic_ai.request import ConvertedConversations

# Connecting takes less, even to distant hosts.
_CONNECT = 30.0
# Servers on the user's own machine need no key, but the libraries insist on one.
_NO_KEY = "no-key"
_ANTHROPIC = "https://api.anthropic.com"
_GOOGLE = "https://generativelanguage.googleapis.com"


_begun: ContextVar[list[httpx2.Response] | None] = ContextVar("begun", default=None)


class Clients:
    """The clients of one catalog, kept until it is closed."""

    def __init__(self) -> None:
        self.conversations = ConvertedConversations()
        self._https: dict[Endpoint, httpx2.AsyncClient] = {}
        self._models: dict[tuple[Endpoint, str, bool], AnyModel[Any]] = {}
        self._making = asyncio.Lock()
        self._closed = False

    async def model(self, endpoint: Endpoint, info: ModelInfo) -> AnyModel[Any]:
        """pydantic-ai's model; the first one is made in a thread, because that is slow."""
        key = endpoint, info.api.id, info.capabilities.reasoning
        found = self._models.get(key)
        if found is not None:
            return found
        async with self._making:
            if self._closed:
                raise RuntimeError("the connections were closed")
            if key not in self._models:
                http = self._https.get(endpoint)
                # A cancelled thread leaves an object without a connection.
                made = await asyncio.to_thread(_made, endpoint, info, http)
                self._https[endpoint], self._models[key] = made
            return self._models[key]

    async def aclose(self) -> None:
        """Close all connections permanently."""
        async with self._making:
            self._closed = True
            self._models.clear()
            while self._https:
                _, http = self._https.popitem()
                await http.aclose()


def _made(
    endpoint: Endpoint, info: ModelInfo, http: httpx2.AsyncClient | None
) -> tuple[httpx2.AsyncClient, AnyModel[Any]]:
    http = http or _http_client(endpoint)
    return http, _make(endpoint, info, http)


def _http_client(endpoint: Endpoint) -> httpx2.AsyncClient:
    connect = _CONNECT if endpoint.silence is None else min(_CONNECT, endpoint.silence)
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(endpoint.silence, connect=connect, pool=None),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
        follow_redirects=False,
        event_hooks={"response": [partial(_take_over, endpoint)]},
    )


@contextmanager
def responses_begun() -> Iterator[list[httpx2.Response]]:
    """Collect the responses that begin in this block.

    Some libraries leave closing to the garbage collector; a provider would keep generating until
    then.
    """
    begun: list[httpx2.Response] = []
    token = _begun.set(begun)
    try:
        yield begun
    finally:
        _begun.reset(token)


async def _take_over(endpoint: Endpoint, response: httpx2.Response) -> None:
    begun = _begun.get()
    if begun is not None:
        begun.append(response)
    if response.is_success:
        response.stream = EventStream(response, _reader(endpoint, response.request), endpoint)


def _reader(endpoint: Endpoint, request: httpx2.Request) -> Reader:
    if endpoint.protocol == "anthropic":
        return AnthropicReader()
    if endpoint.protocol == "google":
        return GoogleReader()
    if endpoint.protocol == "responses":
        return ResponsesReader()
    return ChatReader(cache(partial(_tools_of, request)))


def _tools_of(request: httpx2.Request) -> frozenset[str]:
    """The names of the tools that a chat request offers."""
    body = msgspec.json.decode(request.content, type=_Offer)
    return frozenset(tool.function.name for tool in body.tools)


class _Function(msgspec.Struct):
    name: str


class _Tool(msgspec.Struct):
    function: _Function


class _Offer(msgspec.Struct):
    tools: list[_Tool] = []


def _make(endpoint: Endpoint, info: ModelInfo, http: httpx2.AsyncClient) -> AnyModel[Any]:
    if endpoint.protocol == "anthropic":
        return _anthropic(endpoint, info.api.id, http)
    if endpoint.protocol == "google":
        return _google(endpoint, info.api.id, http)
    if endpoint.protocol == "responses":
        return _responses(endpoint, info, http)
    return _chat(endpoint, info.api.id, http)


def _send_as_it_is(resource: Any, field: str) -> None:  # noqa: ANN401 - of which library knows
    """Stop a client from processing the conversation before it sends it.

    It checks every value against its type, to rename keys that pydantic-ai has already named
    correctly: that takes most of a millisecond per message, on the event loop.
    """
    create = resource.create

    async def created(**given: Any) -> Any:  # noqa: ANN401 - as the original
        conversation = given[field]
        body = {**(given.get("extra_body") or {}), field: conversation}
        return await create(**{**given, field: [], "extra_body": body})

    resource.create = created


def _chat(endpoint: Endpoint, model_id: str, http: httpx2.AsyncClient) -> AnyModel[Any]:
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    from kedge.model.pydantic_ai.openai_models import ChatModel

    client = _openai_client(endpoint, http)
    # An OpenAI account from the environment must not be sent to other providers.
    client.organization = client.project = None
    _send_as_it_is(client.chat.completions, "messages")
    provider = OpenAICompatibleProvider(endpoint.provider_id, openai_client=client)
    return ChatModel(model_id, provider=provider, profile=_SHOWS_WHITESPACE)


def _responses(endpoint: Endpoint, info: ModelInfo, http: httpx2.AsyncClient) -> AnyModel[Any]:
    from openai.types.responses import ResponseStreamEvent
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    from kedge.model.pydantic_ai.openai_models import ResponsesModel

    # Otherwise the first answer does this, and blocks everything else.
    for event in get_args(get_args(ResponseStreamEvent)[0]):
        event.model_rebuild()
    # The libraries decide by the model's name, which a deployment need not have.
    thinks = OpenAIModelProfile(
        supports_thinking=True,
        openai_supports_reasoning=True,
        openai_supports_encrypted_reasoning_content=True,
    )
    client = _openai_client(endpoint, http)
    _send_as_it_is(client.responses, "input")
    provider = OpenAIProvider(openai_client=client)
    profile = thinks if info.capabilities.reasoning else None
    return ResponsesModel(info.api.id, provider=provider, profile=profile)


def _anthropic(endpoint: Endpoint, model_id: str, http: httpx2.AsyncClient) -> AnyModel[Any]:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    key, url = endpoint.key or _NO_KEY, _without_version(endpoint.url or _ANTHROPIC)
    client = AsyncAnthropic(
        api_key=key,
        base_url=url,
        http_client=http,
        max_retries=0,
        timeout=http.timeout,
        # Other servers with this protocol expect the key in its old header.
        default_headers={
            **({} if url == _ANTHROPIC else {"x-api-key": key}),
            **dict(endpoint.headers),
        },
    )
    return AnthropicModel(model_id, provider=AnthropicProvider(anthropic_client=client))


def _google(endpoint: Endpoint, model_id: str, http: httpx2.AsyncClient) -> AnyModel[Any]:
    from google.genai import Client
    from google.genai.types import HttpOptions, ResourceScope
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    options = HttpOptions(
        base_url=_with_version(endpoint.url or _GOOGLE),
        # Otherwise it would add a version of its own choice.
        base_url_resource_scope=ResourceScope.COLLECTION,
        headers=dict(endpoint.headers),
        httpx_async_client=http,
        timeout=None if endpoint.silence is None else int(endpoint.silence * 1000),
    )
    client = Client(vertexai=False, api_key=endpoint.key or _NO_KEY, http_options=options)
    return GoogleModel(model_id, provider=GoogleProvider(client=client))


def _openai_client(endpoint: Endpoint, http: httpx2.AsyncClient) -> "AsyncOpenAI":
    from kedge.model.pydantic_ai.client import ChatClient

    return ChatClient(
        api_key=endpoint.key or _NO_KEY,
        base_url=endpoint.url or "https://api.openai.com/v1",
        http_client=http,
        max_retries=0,
        timeout=http.timeout,
        default_headers=dict(endpoint.headers),
    )


def _with_version(url: str) -> str:
    # As configured; the usual version is added only to a URL without a path.
    return url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/v1beta"


def _without_version(url: str) -> str:
    # OpenCode's configurations end in /v1, which Anthropic's client adds by itself.
    return url.removesuffix("/").removesuffix("/v1")


# Whitespace is text, and `thought_tags` finds tags even if they are split between pieces.
_SHOWS_WHITESPACE = ModelProfile(ignore_streamed_leading_whitespace=False, thinking_tags=("", ""))


T = TypeVar("T")


class ChatClient(AsyncOpenAI):
    """Parses the frames of a chat with pydantic, which takes a tenth of the client's own time."""

    def _process_response_data(
        self, *, data: object, cast_to: type[T], response: httpx2.Response
    ) -> T:
        if cast_to is ChatCompletionChunk:
            # Other servers also send frames that do not validate; the client parses those.
            with suppress(ValidationError):
                return cast(T, ChatCompletionChunk.model_validate(data))
        return super()._process_response_data(data=data, cast_to=cast_to, response=response)
