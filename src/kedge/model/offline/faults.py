"""The ways in which the offline model can be told to fail."""

from kedge.domain import failures
from kedge.model.offline.info import PROVIDER
from kedge.model.port import ModelFailure

_PASSING = {
    "overloaded": (529, "The offline model plays an overloaded provider"),
    "rate-limit": (429, "The offline model plays a provider whose rate limit is reached"),
    "server": (500, "The offline model plays a provider with an internal error"),
    "connection": (None, "The offline model plays a connection that could not be made"),
    "cut": (None, "The offline model plays a connection that was lost in the middle"),
}
_LASTING = {
    "request": failures.api(
        "The offline model plays a provider that refuses the request (fail request).",
        statusCode=400,
        isRetryable=False,
    ),
    "auth": failures.provider_auth(
        PROVIDER, "The offline model plays a provider that refuses the key (fail auth)."
    ),
    "context": failures.context_overflow(
        "The offline model plays a conversation that is too long for it (fail context)."
    ),
    "filter": failures.content_filter(
        "The offline model plays a provider whose filter stopped the answer (fail filter)."
    ),
    "length": failures.output_length(),
    "unknown": failures.unknown("The offline model plays an error without a name (fail unknown)."),
}
FAULTS = (*_PASSING, *_LASTING)


def fault(kind: str, after: int | None) -> ModelFailure:
    """The failure that a kind names; `after` is what the provider would ask to wait, in ms."""
    if kind in _LASTING:
        return ModelFailure(_LASTING[kind])
    status, message = _PASSING[kind]
    failure = failures.api(
        f"{message} (fail {kind}).",
        statusCode=status,
        isRetryable=True,
        responseHeaders=None if after is None else {"retry-after-ms": str(after)},
    )
    return ModelFailure(
        failure, retryable=True, retry_after=None if after is None else after / 1000
    )
