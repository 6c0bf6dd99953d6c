"""Requests made from the server's own description, right and wrong ones: no answer is an error of
the server, and every answer is as described."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.errors import InvalidSchema
from schemathesis.schemas import APIOperation

from tests.server.process import served_apart
from tests.support.timeouts import PATIENCE

Operation: TypeAlias = APIOperation[Any, Any, Any, Any]
_ENDLESS = {"event.subscribe", "global.event"}
_NOT_BUILT = 501
_CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A server in a process of its own, on a folder with a file."""
    with served_apart(tmp_path) as process:
        yield process.url


def test_a_few_requests_of_each_kind(url: str) -> None:
    """A few requests to every route, the same ones each time."""
    _try_all(url, examples=2)


@pytest.mark.torture
def test_many_requests_of_each_kind(url: str) -> None:
    """Many requests to every route."""
    print(f"{_try_all(url, examples=60)} requests, no server error")  # noqa: T201 - a figure


def _try_all(url: str, examples: int) -> int:
    """Try every route; gives the number of requests."""
    description = requests.get(f"{url}/doc", timeout=PATIENCE).json()
    schema = schemathesis.openapi.from_dict(description)
    count = 0
    with requests.Session() as client:
        for result in schema.get_all_operations():
            operation: Operation = result.ok()  # type: ignore[union-attr]  # all are valid
            if operation.definition.raw["operationId"] not in _ENDLESS:
                count += _try(url, client, operation, examples)
    return count


def _try(url: str, client: requests.Session, operation: Operation, examples: int) -> int:
    known = _known(url, client)
    if operation.definition.raw["operationId"] == "session.shell":
        # Nobody knows what a made-up command does: it only goes to sessions that do not exist.
        known = {}
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    count = 0

    @seed(1)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.one_of(*_strategies(operation, modes)), is_known=st.booleans())
    def send(case: Case[Any], is_known: bool) -> None:
        nonlocal count
        count += 1
        if is_known:
            case.path_parameters |= {
                name: known[name] for name in case.path_parameters if name in known
            }
        response = case.call(base_url=url, session=client, timeout=PATIENCE)
        if response.status_code != _NOT_BUILT:
            case.validate_response(response, checks=_CHECKS)

    send()
    return count


def _strategies(
    operation: Operation, modes: tuple[GenerationMode, ...]
) -> Iterator[st.SearchStrategy[Case[Any]]]:
    for mode in modes:
        try:
            yield operation.as_strategy(generation_mode=mode)
        except InvalidSchema:
            continue


def _known(url: str, client: requests.Session) -> dict[str, str]:
    """The ids of a session with a message in it."""
    session = client.post(f"{url}/session", json={}, timeout=PATIENCE).json()
    prompt: Any = {"noReply": True, "parts": [{"type": "text", "text": "hello"}]}
    said = client.post(f"{url}/session/{session['id']}/message", json=prompt, timeout=PATIENCE)
    message = said.json()
    return {
        "sessionID": session["id"],
        "messageID": message["info"]["id"],
        "partID": message["parts"][0]["id"],
    }
