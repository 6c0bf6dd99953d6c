"""Failures of messages and sessions, as on the wire; kedge's exceptions are in `errors`."""

from typing import Any

from kedge.domain.values import Value

_ABORTED = "MessageAbortedError"
_OVERFLOW = "ContextOverflowError"
_NOT_RUN = "Not run: "


class Failure(Value, frozen=True, kw_only=True):
    """A named failure; one class for all of them, so that names that kedge does not know
    survive."""

    name: str
    data: dict[str, Any]


def aborted(message: str) -> Failure:
    """The turn was aborted."""
    return Failure(name=_ABORTED, data={"message": message})


def is_aborted(failure: Failure) -> bool:
    """Whether a failure says that the turn was aborted."""
    return failure.name == _ABORTED


def unknown(message: str, ref: str | None = None) -> Failure:
    """Any failure without a name of its own; `ref` finds it in the log."""
    return _failure("UnknownError", message=message, ref=ref)


def not_run(reason: str) -> Failure:
    """A prompt was never run, and never will be."""
    return unknown(f"{_NOT_RUN}{reason}. Send it again if it is still wanted.")


def is_not_run(failure: Failure) -> bool:
    """Whether a failure says that a prompt was not run."""
    return str(failure.data.get("message", "")).startswith(_NOT_RUN)


def provider_auth(providerID: str, message: str) -> Failure:
    """The provider refused the key."""
    return Failure(name="ProviderAuthError", data={"providerID": providerID, "message": message})


def output_length() -> Failure:
    """The model reached its output limit."""
    return Failure(name="MessageOutputLengthError", data={})


def structured_output(message: str, retries: int) -> Failure:
    """The model did not answer in the requested format."""
    return Failure(name="StructuredOutputError", data={"message": message, "retries": retries})


def context_overflow(message: str, responseBody: str | None = None) -> Failure:
    """The conversation no longer fits into the model's context."""
    return _failure(_OVERFLOW, message=message, responseBody=responseBody)


def is_overflow(failure: Failure) -> bool:
    """Whether a failure says that the conversation does not fit."""
    return failure.name == _OVERFLOW


def content_filter(message: str) -> Failure:
    """The provider's filter stopped the answer."""
    return Failure(name="ContentFilterError", data={"message": message})


def api(
    message: str,
    *,
    isRetryable: bool,
    statusCode: int | None = None,
    responseHeaders: dict[str, str] | None = None,
    responseBody: str | None = None,
    metadata: dict[str, str] | None = None,
) -> Failure:
    """The provider answered with an error."""
    return _failure(
        "APIError",
        message=message,
        statusCode=statusCode,
        isRetryable=isRetryable,
        responseHeaders=responseHeaders,
        responseBody=responseBody,
        metadata=metadata,
    )


def _failure(name: str, **data: object) -> Failure:
    return Failure(name=name, data={key: value for key, value in data.items() if value is not None})
