"""The named failures as clients know them."""

import json

import pytest

from kedge.domain import failures
from kedge.domain.failures import Failure
from kedge.domain.wire import decode, encode


@pytest.mark.parametrize(
    ("failure", "name", "data"),
    [
        (failures.aborted("Aborted"), "MessageAbortedError", {"message": "Aborted"}),
        (failures.unknown("m"), "UnknownError", {"message": "m"}),
        (failures.unknown("m", "err_1"), "UnknownError", {"message": "m", "ref": "err_1"}),
        (
            failures.provider_auth("stub", "m"),
            "ProviderAuthError",
            {"providerID": "stub", "message": "m"},
        ),
        (failures.output_length(), "MessageOutputLengthError", {}),
        (
            failures.structured_output("m", 0),
            "StructuredOutputError",
            {"message": "m", "retries": 0},
        ),
        (failures.context_overflow("m"), "ContextOverflowError", {"message": "m"}),
        (failures.content_filter("m"), "ContentFilterError", {"message": "m"}),
        (
            failures.api("m", isRetryable=False, statusCode=503, responseBody=""),
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
