"""One request to a real provider, from question to last word."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

from httpx2 import Response
from pydantic_ai.direct import model_request_stream
from pydantic_ai.models import StreamedResponse

from kedge.domain import failures
from kedge.domain.providers import ModelInfo
from kedge.model.adapter.asking import messages, parameters
from kedge.model.adapter.clients import Clients, responses_begun
from kedge.model.adapter.counting import cost_of, tokens_of
from kedge.model.adapter.failing import address_missing, ended, key_missing, translated
from kedge.model.adapter.hearing import Listener
from kedge.model.adapter.settings import settings_of
from kedge.model.endpoint import Endpoint, Protocol
from kedge.model.port import Finished, ModelEvent, ModelFailure, ModelRequest

_REASONS = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content-filter",
    "tool_call": "tool-calls",
}


@asynccontextmanager
async def answer(
    request: ModelRequest,
    info: ModelInfo,
    endpoint: Endpoint,
    clients: Clients,
    listed: tuple[str, str] | None,
) -> AsyncIterator[AsyncIterator[ModelEvent]]:
    """The events of the answer; leaving the block early ends the request."""
    protocol = _checked(endpoint)
    async with AsyncExitStack() as stack:
        with responses_begun() as begun, translated(endpoint, begun):
            _ = stack.push_async_callback(_close, begun)
            model = await clients.model(endpoint, info)
            opening = model_request_stream(
                model,
                messages(request, info, protocol),
                model_settings=settings_of(request, info, protocol, model.profile),
                model_request_parameters=parameters(request),
                instrument=False,
            )
            response = await stack.enter_async_context(opening)
        events = _events(response, info, endpoint, listed, begun)
        async with aclosing(events):
            yield events


async def _close(begun: list[Response]) -> None:
    for response in begun:
        await response.aclose()


def _checked(endpoint: Endpoint) -> Protocol:
    where = f"provider.{endpoint.provider_id}"
    if endpoint.protocol is None:
        text = (
            f"kedge does not speak {endpoint.npm}, which {where}.npm asks for; see docs/models.md"
        )
        raise ModelFailure(failures.unknown(text))
    if endpoint.needs_key and not endpoint.key:
        raise key_missing(endpoint)
    # Without one, the libraries would take the key to OpenAI.
    if endpoint.url is None and endpoint.protocol == "chat":
        raise address_missing(endpoint)
    if endpoint.url is not None and not endpoint.url.startswith(("http://", "https://")):
        text = f"{where}.options.baseURL must begin with http:// or https://"
        raise ModelFailure(failures.unknown(text))
    return endpoint.protocol


async def _events(
    response: StreamedResponse,
    info: ModelInfo,
    endpoint: Endpoint,
    listed: tuple[str, str] | None,
    begun: list[Response],
) -> AsyncGenerator[ModelEvent, None]:
    listener = Listener()
    heard = aiter(response)
    while True:
        # Only around what they do: what the caller raises between two events is the caller's.
        with translated(endpoint, begun):
            try:
                event = await anext(heard)
            except StopAsyncIteration:
                break
        for said in listener.hear(event):
            yield said
    if _is_cut(response):
        raise ended(endpoint, begun, "the answer ended before its end")
    for said in listener.end():
        yield said
    usage = response.usage
    reason = _REASONS.get(response.finish_reason or "", "other")
    yield Finished(
        # Some servers call tools and say that they are done.
        reason="tool-calls" if listener.called and reason in ("stop", "other") else reason,
        tokens=tokens_of(usage),
        cost=cost_of(usage, info.cost, listed),
    )


def _is_cut(response: StreamedResponse) -> bool:
    if response.finish_reason is None:
        return True
    # pydantic-ai makes up a reason where there was none; usage, if any, comes after the last word.
    told = (response.provider_details or {}).get("finish_reason")
    return told is None and bool(response.usage.unmeasured_requests)
