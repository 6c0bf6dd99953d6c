"""The named failures as clients know them."""

import json

import pytest

from kedge.domain import wire_errors
from kedge.domain.wire import decode, encode
from kedge.domain.wire_errors import Failure


@pytest.mark.parametrize(
    ("failure", "name", "data"),
    [
        (wire_errors.aborted("Aborted"), "MessageAbortedError", {"message": "Aborted"}),
        (wire_errors.unknown("m"), "UnknownError", {"message": "m"}),
        (wire_errors.unknown("m", "err_1"), "UnknownError", {"message": "m", "ref": "err_1"}),
        (
            wire_errors.provider_auth("stub", "m"),
            "ProviderAuthError",
            {"providerID": "stub", "message": "m"},
        ),
        (wire_errors.output_length(), "MessageOutputLengthError", {}),
        (
            wire_errors.structured_output("m", 0),
            "StructuredOutputError",
            {"message": "m", "retries": 0},
        ),
        (wire_errors.context_overflow("m"), "ContextOverflowError", {"message": "m"}),
        (wire_errors.content_filter("m"), "ContentFilterError", {"message": "m"}),
        (
            wire_errors.api("m", isRetryable=False, statusCode=503, responseBody=""),
            "APIError",
            {"message": "m", "statusCode": 503, "isRetryable": False, "responseBody": ""},
        ),
    ],
)
def test_known_failures(failure: Failure, name: str, data: dict[str, object]) -> None:
    """Each known failure has its name and only the data that is there."""
    assert json.loads(encode(failure)) == {"name": name, "data": data}


def test_unknown_failures_survive() -> None:
    """A failure that kedge has no name for is kept as it is."""
    raw = '{"name":"NewError","data":{"why":[1,null]}}'
    assert encode(decode(raw, Failure)) == raw
