"""What a provider or the network answered instead, as failures that people can act on."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import httpx2
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelServerError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
    UserError,
)

from kedge.domain import failures
from kedge.domain.errors import MESSAGE_LIMIT
from kedge.domain.text import mend_text
from kedge.model.endpoint import Endpoint
from kedge.model.port import ModelFailure

BODY_LIMIT = 16_384

_UNREACHED = (httpx2.ConnectError, httpx2.ConnectTimeout)
_MOST_NOTICES = 3
_LOST = (httpx2.TransportError, httpx2.StreamError)
# What the libraries raise over a request that they cannot put into the provider's form.
_UNSENT = (UserError, NotImplementedError, RuntimeError, ValueError, TypeError)
_PASSING = (
    ModelRateLimitError,
    ModelOverloadedError,
    ModelUnavailableError,
    ModelServerError,
    ModelConnectionError,
    ModelRequestTimeout,
)
_PASSING_STATUS = {408, 409, 429}
_OVERFLOW = re.compile(
    r"context.{0,20}(length|window|limit)|prompt is too long|input is too long"
    r"|too many (input )?tokens|maximum.{0,20}tokens|exceeds the (maximum|limit).{0,30}token",
    re.IGNORECASE,
)
_HIDDEN_HEADERS = {"set-cookie", "authorization", "x-api-key"}


@contextmanager
def translated(endpoint: Endpoint, begun: Sequence[httpx2.Response] = ()) -> Iterator[None]:
    """Raise `ModelFailure` for whatever goes wrong inside; `begun` are the responses so far."""
    try:
        yield
    except ModelFailure:
        raise
    except ModelAPIError as error:
        if not isinstance(error, ModelHTTPError) and begun and not _is_stream(begun[-1]):
            raise ended(endpoint, begun, error.message) from error
        raise _api_failure(error, endpoint) from error
    except UnexpectedModelBehavior as error:
        raise ended(endpoint, begun, str(error)) from error
    except _LOST as error:
        raise _disconnected(endpoint, error, str(error) or type(error).__name__) from error
    except _UNSENT as error:
        text = _safe(f"The request could not be sent to {endpoint.provider_id}: {error}", endpoint)
        raise ModelFailure(failures.unknown(text)) from error


def lost(endpoint: Endpoint, why: str) -> ModelFailure:
    """The connection ended before the answer did."""
    message = _safe(f"The connection to {endpoint.provider_id} was lost: {why}", endpoint)
    return ModelFailure(failures.api(message, isRetryable=True), retryable=True)


def ended(endpoint: Endpoint, begun: Sequence[httpx2.Response], why: str) -> ModelFailure:
    """The answer ended before its last words, or was none at all."""
    if not begun or _is_stream(begun[-1]):
        return lost(endpoint, why)
    response, where = begun[-1], f"provider.{endpoint.provider_id}.options.baseURL"
    kind = response.headers["content-type"].partition(";")[0]
    message = (
        f"{endpoint.provider_id} answered at {_address(response.url)} with {kind}, which is no"
        f" stream of events. Check {where}: the address may be of something else, or lack its"
        f" last part (often /v1).{_untrusted(endpoint)}"
    )
    return ModelFailure(failures.api(_safe(message, endpoint), isRetryable=False))


def _is_stream(response: httpx2.Response) -> bool:
    kind: str = response.headers.get("content-type", "")
    return not kind or "event-stream" in kind.lower()


def _disconnected(endpoint: Endpoint, error: BaseException, why: str) -> ModelFailure:
    reached: BaseException | None = error
    while reached is not None and not isinstance(reached, _UNREACHED):
        reached = reached.__cause__
    return lost(endpoint, why) if reached is None else _unreached(endpoint, reached)


def _unreached(endpoint: Endpoint, error: BaseException) -> ModelFailure:
    at = ""
    if endpoint.url is not None:
        # Who cannot be reached does not depend on the path, which may hold a secret.
        at = f" at {_address(httpx2.URL(endpoint.url).copy_with(path='/'))}"
    why = str(error) or type(error).__name__
    message = (
        f"{endpoint.provider_id} could not be reached{at}: {why}. Check that it is running, the"
        f" network, and provider.{endpoint.provider_id}.options.baseURL.{_untrusted(endpoint)}"
    )
    failure = failures.api(_safe(message, endpoint), isRetryable=True)
    return ModelFailure(failure, retryable=True)


def _address(url: httpx2.URL) -> str:
    return str(url.copy_with(query=None, fragment=None, userinfo=b""))


def address_missing(endpoint: Endpoint) -> ModelFailure:
    """Nobody said where the provider is, or nobody who is trusted."""
    where = f"provider.{endpoint.provider_id}.options.baseURL"
    if endpoint.untrusted:
        text = f"There is no address of {endpoint.provider_id}.{_untrusted(endpoint)}"
    else:
        text = f"{where} is missing; say there where the provider is"
    return ModelFailure(failures.unknown(_safe(text, endpoint)))


def _untrusted(endpoint: Endpoint) -> str:
    return "".join(f" {notice}." for notice in endpoint.untrusted[:_MOST_NOTICES])


def key_missing(endpoint: Endpoint) -> ModelFailure:
    """There is no key to ask with."""
    where = "Set " + " or ".join(endpoint.key_variables) if endpoint.key_variables else "Set a key"
    message = (
        f"There is no key for {endpoint.provider_id}. {where} in the environment, or "
        f"provider.{endpoint.provider_id}.options.apiKey in the configuration."
        f"{_untrusted(endpoint)}"
    )
    return ModelFailure(failures.provider_auth(endpoint.provider_id, message[:MESSAGE_LIMIT]))


def _api_failure(error: ModelAPIError, endpoint: Endpoint) -> ModelFailure:
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    if status is None and isinstance(error, ModelConnectionError | ModelRequestTimeout):
        return _disconnected(endpoint, error, error.message)
    body = _safe(_body_text(error), endpoint, BODY_LIMIT)
    message = _safe(_message(error, status), endpoint)
    if _is_refused_key(error, status):
        return ModelFailure(
            failures.provider_auth(endpoint.provider_id, _refused(message, endpoint))
        )
    if _is_overflow(error, status, message):
        return ModelFailure(failures.context_overflow(message, body or None))
    passing = _is_passing(error, status)
    headers = error.headers if isinstance(error, ModelHTTPError) else None
    failure = failures.api(
        message,
        isRetryable=passing,
        statusCode=status,
        responseHeaders=_headers(headers, endpoint),
        responseBody=body or None,
        metadata=_metadata(error, endpoint),
    )
    return ModelFailure(
        failure, retryable=passing, retry_after=_retry_after(error, headers) if passing else None
    )


def _is_passing(error: ModelAPIError, status: int | None) -> bool:
    if isinstance(error, ModelQuotaExceededError):
        return False
    if status is None:
        return isinstance(error, _PASSING)
    return status in _PASSING_STATUS or status >= HTTPStatus.INTERNAL_SERVER_ERROR


def _is_refused_key(error: ModelAPIError, status: int | None) -> bool:
    # "Forbidden" is as often about a model, a country or a budget.
    if status == HTTPStatus.FORBIDDEN:
        return False
    return isinstance(error, ModelAuthenticationError) or status == HTTPStatus.UNAUTHORIZED


def _is_overflow(error: ModelAPIError, status: int | None, message: str) -> bool:
    if isinstance(error, ModelContextWindowExceededError):
        return True
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return True
    return status == HTTPStatus.BAD_REQUEST and _OVERFLOW.search(message) is not None


def _refused(message: str, endpoint: Endpoint) -> str:
    names = " or ".join(endpoint.key_variables)
    where = f"check {names}, or " if names else "check "
    return (
        f"{endpoint.provider_id} refused the key: {message}. To go on, {where}"
        f"provider.{endpoint.provider_id}.options.apiKey in the configuration."
        f"{_untrusted(endpoint)}"
    )


def _message(error: ModelAPIError, status: int | None) -> str:
    body: Any = error.body
    for _ in range(2):
        if isinstance(body, dict):
            if isinstance(text := body.get("message", body.get("detail")), str) and text:
                return text
            body = body.get("error")
    if isinstance(body, str) and body and not body.lstrip().startswith("<"):
        return body
    if status is None:
        return error.message
    phrase = HTTPStatus(status).phrase if status in list(HTTPStatus) else "an unknown status"
    return f"The provider answered {status} ({phrase})"


def _body_text(error: ModelAPIError) -> str:
    response = getattr(error.__cause__, "response", None)
    if isinstance(response, httpx2.Response) and response.is_closed and not error.in_stream:
        try:
            return response.text
        except httpx2.StreamError:
            return ""
    if error.body is None or isinstance(error.body, str):
        return error.body or ""
    return json.dumps(error.body, default=str)


def _metadata(error: ModelAPIError, endpoint: Endpoint) -> dict[str, str] | None:
    response = getattr(error.__cause__, "response", None)
    if not isinstance(response, httpx2.Response):
        return None
    return {"url": _safe(_address(response.url), endpoint)}


def _headers(headers: dict[str, str] | None, endpoint: Endpoint) -> dict[str, str] | None:
    if headers is None:
        return None
    return {
        name: _safe(value, endpoint)
        for name, value in headers.items()
        if name.lower() not in _HIDDEN_HEADERS
    }


def _retry_after(error: ModelAPIError, headers: dict[str, str] | None) -> float | None:
    if error.retry_after is not None:
        return error.retry_after
    try:
        seconds = float((headers or {}).get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _safe(text: str, endpoint: Endpoint, limit: int = MESSAGE_LIMIT) -> str:
    for secret in endpoint.secrets():
        text = text.replace(secret, "***")
    return mend_text(text)[:limit]
