"""Errors of providers and the network, translated into errors that a user can act on."""

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
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
    UserError,
)

from kedge.domain import wire_errors
from kedge.domain.errors import MESSAGE_LIMIT
from kedge.domain.text import mend_text
from kedge.model.endpoint import Endpoint
from kedge.model.port import ModelFailure, Setback

_log = logging.getLogger(__name__)

BODY_LIMIT = 16_384
# Enough to recognize it.
_EXCERPT = 200

_UNREACHED = (httpx2.ConnectError, httpx2.ConnectTimeout)
_LOST = (httpx2.TransportError, httpx2.StreamError)
# Raised by the libraries for a request that they cannot convert to the provider's form.
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
# These are sent before anything is charged.
_UNPAID_STATUS = {429, 503, 529}
_QUOTA = {"insufficient_quota", "billing_hard_limit_reached", "billing_error"}
_STATUS = re.compile(r"[45][0-9]{2}")
_STATUS_OF_KIND = {
    "invalid_request_error": 400,
    "invalid_argument": 400,
    "failed_precondition": 400,
    "badrequesterror": 400,
    "validation": 422,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "unauthenticated": 401,
    "insufficient_quota": 429,
    "permission_error": 403,
    "permission_denied": 403,
    "not_found_error": 404,
    "not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "resource_exhausted": 429,
    "overloaded": 529,
    "overloaded_error": 529,
    "server_is_overloaded": 503,
    "unavailable": 503,
    "service_unavailable": 503,
    "api_error": 500,
    "server_error": 500,
    "internal": 500,
    "internal_server_error": 500,
    "generation": 500,
    "timeout_error": 504,
    "deadline_exceeded": 504,
}
"""The status that an error has outside of a stream, by its name inside of one."""
_OVERFLOW_STATUS = {None, 400, 413, 422, 500}
_OVERFLOW_WORDS = {
    "context_length_exceeded",
    "exceed_context_size_error",
    "model_max_prompt_tokens_exceeded",
}
_OVERFLOW = re.compile(
    r"context.{0,20}(length|window|limit|overflow)|(prompt|input) is too long"
    r"|exceeds? the (available )?context|exceeded model token limit|exceeds? max(imum)? length"
    r"|maximum (prompt|model|sequence) length|maximum number of tokens"
    r"|too many (input )?tokens|token count.{0,20} exceeds|tokens in request more than"
    r"|reduce the length of the (messages|prompt)|inputs`? (tokens \+|must have less than)",
    re.IGNORECASE,
)
_HIDDEN_HEADERS = {"set-cookie", "authorization", "x-api-key"}


class UnreadableAnswer(ModelFailure):
    """The response does not follow the protocol."""


@contextmanager
def translated(endpoint: Endpoint, latest: Callable[[], str | None]) -> Iterator[None]:
    """Raise `ModelFailure` for any error in the block.

    `latest` is the last part of an answer that arrived; None if none has begun.
    """
    try:
        yield
    except ModelFailure:
        raise
    except ModelAPIError as error:
        raise _api_failure(error, endpoint) from error
    except _LOST as error:
        raise _disconnected(endpoint, error, str(error) or type(error).__name__) from error
    except Exception as error:
        if (shown := latest()) is not None:
            # The libraries fail in arbitrary ways on frames that lack expected fields.
            _log.warning("an answer of %s cannot be read", endpoint.provider_id, exc_info=error)
            raise nonsense(endpoint, shown) from error
        if not isinstance(error, _UNSENT):
            raise
        text = _safe(f"The request could not be sent to {endpoint.provider_id}: {error}", endpoint)
        raise ModelFailure(wire_errors.unknown(text)) from error


def lost(endpoint: Endpoint, why: str) -> ModelFailure:
    """The connection ended before the answer did."""
    return _broken(endpoint, f"The connection to {endpoint.provider_id} was lost: {why}")


def stalled(endpoint: Endpoint) -> ModelFailure:
    """Nothing arrived for so long that the connection counts as dead."""
    message = f"{endpoint.provider_id} fell silent"
    if endpoint.silence is not None:
        where = f"provider.{endpoint.provider_id}.options.timeout"
        message += f": nothing came for {endpoint.silence:g} seconds, which is what {where} allows"
    failure = wire_errors.api(_safe(message, endpoint), isRetryable=True)
    return ModelFailure(failure, retryable=True, setback="silent")


def empty(endpoint: Endpoint) -> ModelFailure:
    """The answer has neither text nor calls."""
    return _broken(endpoint, f"{endpoint.provider_id} gave an empty answer: no text, no tool call")


def gave_up(endpoint: Endpoint, reason: str, comment: str) -> ModelFailure:
    """The server itself reports the answer as failed."""
    more = f": {comment}" if comment else ""
    return _broken(endpoint, f"{endpoint.provider_id} ended its answer with {reason}{more}")


def filtered(endpoint: Endpoint, reason: str, comment: str) -> ModelFailure:
    """The provider's filter removed the whole answer."""
    more = f": {comment}" if comment else ""
    message = f"{endpoint.provider_id} withheld the answer ({reason}){more}"
    return ModelFailure(wire_errors.content_filter(_safe(message, endpoint)))


def nonsense(endpoint: Endpoint, what: str) -> UnreadableAnswer:
    """The response does not follow the protocol; `what` is an excerpt."""
    message = f"{endpoint.provider_id} sent what cannot be read: {_excerpt(what)}"
    failure = wire_errors.api(_safe(message, endpoint), isRetryable=True)
    return UnreadableAnswer(failure, retryable=True, setback="broken")


def no_stream(endpoint: Endpoint, url: httpx2.URL, kind: str, what: str) -> ModelFailure:
    """The response is not a stream of events; another attempt would get the same."""
    where = f"provider.{endpoint.provider_id}.options.baseURL"
    message = (
        f"{endpoint.provider_id} answered at {_address(url)} with {kind or 'something'}, which is"
        f" no stream of events. Check {where}: the address may be of something else, or lack its"
        f" last part (often /v1).{endpoint.untrusted_notices()} It began with: {_excerpt(what)}"
    )
    return ModelFailure(
        wire_errors.api(
            _safe(message, endpoint),
            isRetryable=False,
            responseBody=_safe(what, endpoint, BODY_LIMIT),
        )
    )


def reported(endpoint: Endpoint, error: object) -> ModelFailure:
    """An error that was sent inside of a stream, after a success status."""
    told: dict[str, Any] = error if isinstance(error, dict) else {"message": error}
    inner = told.get("error")
    if isinstance(inner, dict):
        told = inner
    names = [told.get(name) for name in ("type", "code", "status")]
    words = [name for name in names if isinstance(name, str)]
    text = told.get("message") or told.get("detail") or json.dumps(error, default=str)
    return _failure(
        endpoint,
        message=_safe(text if isinstance(text, str) else json.dumps(text), endpoint),
        body=_safe(json.dumps(error, default=str), endpoint, BODY_LIMIT),
        status=_status_of(names),
        words=words,
        setback="broken",
    )


def _status_of(names: Sequence[object]) -> int | None:
    for name in names:
        number = int(name) if isinstance(name, str) and _STATUS.fullmatch(name) else name
        if type(number) is int and number in range(400, 600):
            return number
    known = (_STATUS_OF_KIND.get(name.lower()) for name in names if isinstance(name, str))
    return next((status for status in known if status is not None), None)


def _broken(endpoint: Endpoint, message: str) -> ModelFailure:
    failure = wire_errors.api(_safe(message, endpoint), isRetryable=True)
    return ModelFailure(failure, retryable=True, setback="broken")


def _excerpt(text: str) -> str:
    line = " ".join(text[: 2 * _EXCERPT].split())
    return f"{line[:_EXCERPT]} ..." if len(line) > _EXCERPT else line or "nothing"


def _disconnected(endpoint: Endpoint, error: BaseException, why: str) -> ModelFailure:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _UNREACHED):
            return _unreached(endpoint, cause)
        if isinstance(cause, httpx2.ReadTimeout):
            return stalled(endpoint)
        cause = cause.__cause__
    # Before the first byte of a response; later errors are handled by the stream.
    message = f"The connection to {endpoint.provider_id} was lost: {why}"
    return ModelFailure(
        wire_errors.api(_safe(message, endpoint), isRetryable=True), retryable=True, setback="busy"
    )


def _unreached(endpoint: Endpoint, error: BaseException) -> ModelFailure:
    at = ""
    if endpoint.url is not None:
        # Reachability does not depend on the path, which may contain a secret.
        at = f" at {_address(httpx2.URL(endpoint.url).copy_with(path='/'))}"
    why = str(error) or type(error).__name__
    message = (
        f"{endpoint.provider_id} could not be reached{at}: {why}. Check that it is running, the"
        f" network, and provider.{endpoint.provider_id}.options.baseURL."
        f"{endpoint.untrusted_notices()}"
    )
    failure = wire_errors.api(_safe(message, endpoint), isRetryable=True)
    return ModelFailure(failure, retryable=True)


def _address(url: httpx2.URL) -> str:
    return str(url.copy_with(query=None, fragment=None, userinfo=b""))


def incomplete(endpoint: Endpoint, problem: str) -> ModelFailure:
    """The endpoint lacks something that every request needs."""
    text = _safe(problem, endpoint)
    if endpoint.lacks_key and endpoint.protocol is not None:
        return ModelFailure(wire_errors.provider_auth(endpoint.provider_id, text))
    return ModelFailure(wire_errors.unknown(text))


def _api_failure(error: ModelAPIError, endpoint: Endpoint) -> ModelFailure:
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    if status is None and isinstance(error, ModelConnectionError | ModelRequestTimeout):
        return _disconnected(endpoint, error, error.message)
    headers = error.headers if isinstance(error, ModelHTTPError) else None
    return _failure(
        endpoint,
        message=_safe(_message(error, status), endpoint),
        body=_safe(_body_text(error), endpoint, BODY_LIMIT),
        status=status,
        words=_words(error.body),
        error=error,
        headers=headers,
        setback="broken" if error.in_stream else "busy",
    )


def _failure(
    endpoint: Endpoint,
    *,
    message: str,
    body: str,
    status: int | None,
    words: Sequence[str],
    error: ModelAPIError | None = None,
    headers: dict[str, str] | None = None,
    setback: Setback,
) -> ModelFailure:
    if _is_refused_key(error, status):
        return ModelFailure(
            wire_errors.provider_auth(endpoint.provider_id, _refused(message, endpoint))
        )
    if _is_overflow(error, status, message, words):
        return ModelFailure(wire_errors.context_overflow(message, body or None))
    passing = _is_passing(error, status, words)
    failure = wire_errors.api(
        message,
        isRetryable=passing,
        statusCode=status,
        responseHeaders=_headers(headers, endpoint),
        responseBody=body or None,
        metadata=_metadata(error, endpoint) if error else None,
    )
    after = _retry_after(error, headers) if passing and error else None
    unpaid = status in _UNPAID_STATUS
    return ModelFailure(
        failure, retryable=passing, retry_after=after, setback="busy" if unpaid else setback
    )


def _words(body: object) -> list[str]:
    """The names that an error gives itself."""
    found: list[str] = []
    for _ in range(2):
        if isinstance(body, dict):
            told = (body.get(name) for name in ("type", "code", "status"))
            found += [name for name in told if isinstance(name, str)]
            body = body.get("error")
    return found


def _is_passing(error: ModelAPIError | None, status: int | None, words: Sequence[str]) -> bool:
    if isinstance(error, ModelQuotaExceededError) or not _QUOTA.isdisjoint(words):
        return False
    if status is None:
        return isinstance(error, _PASSING)
    return status in _PASSING_STATUS or status >= HTTPStatus.INTERNAL_SERVER_ERROR


def _is_refused_key(error: ModelAPIError | None, status: int | None) -> bool:
    # "Forbidden" is just as often about a model, a country or a budget.
    if status == HTTPStatus.FORBIDDEN:
        return False
    return isinstance(error, ModelAuthenticationError) or status == HTTPStatus.UNAUTHORIZED


def _is_overflow(
    error: ModelAPIError | None, status: int | None, message: str, words: Sequence[str]
) -> bool:
    if isinstance(error, ModelContextWindowExceededError):
        return True
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or not _OVERFLOW_WORDS.isdisjoint(words):
        return True
    return status in _OVERFLOW_STATUS and _OVERFLOW.search(message) is not None


def _refused(message: str, endpoint: Endpoint) -> str:
    names = " or ".join(endpoint.key_variables)
    where = f"check {names}, or " if names else "check "
    return (
        f"{endpoint.provider_id} refused the key: {message}. To go on, {where}"
        f"provider.{endpoint.provider_id}.options.apiKey in the configuration."
        f"{endpoint.untrusted_notices()}"
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
