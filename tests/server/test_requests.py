"""What is said in a query and in a body, and how much of it."""

import copy
import functools
import json
import operator
import re
import string
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.domain import wire
from kedge.domain.errors import TooLarge
from kedge.domain.mismatches import path
from kedge.server import openapi, request_body
from kedge.server.errors import BadRequest
from kedge.server.request_body import MOST_VALUES, check_values
from kedge.server.requests import NoBody, body_value, parsed_query
from kedge.server.router import Route
from kedge.server.routes import ALL


def test_a_key_that_is_there_twice_is_refused() -> None:
    """It is named."""
    many = b"&".join(b"%d=" % number for number in range(90))
    assert len(parsed_query(many)) == 90
    with pytest.raises(BadRequest, match=r"^twice: expected one value; found several$"):
        parsed_query(many + b"&twice=1&twice=2")


def test_a_query_has_so_many_parameters() -> None:
    """No route knows a tenth of them."""
    assert len(parsed_query(b"&".join(b"%d=" % number for number in range(100)))) == 100
    with pytest.raises(BadRequest, match="more than 100 parameters"):
        parsed_query(b"&".join(b"%d=" % number for number in range(101)))


TEXTS = st.text(string.ascii_letters + '\\"[]{},:é\n', max_size=8)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXTS, inner, max_size=6),
    max_leaves=30,
)


def counted(value: object) -> int:
    """The commas and brackets of a value."""
    if not isinstance(value, dict | list):
        return 0
    inner = list(value.values()) if isinstance(value, dict) else value
    return max(1, len(inner)) + sum(map(counted, inner))


def depth(value: object) -> int:
    """How deep a value is nested."""
    if not isinstance(value, dict | list):
        return 0
    inner = list(value.values()) if isinstance(value, dict) else value
    return 1 + max(map(depth, inner), default=0)


@given(value=VALUES, is_ascii=st.booleans())
def test_values_are_counted_outside_of_strings(value: object, is_ascii: bool) -> None:
    """Whatever stands in texts and keys, escaped or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_body, "MOST_VALUES", 12)
        patch.setattr(wire, "MAX_DEPTH", 3)
        text = json.dumps(value, ensure_ascii=is_ascii).encode()
        if counted(value) > 12 or depth(value) > 3:
            with pytest.raises(TooLarge):
                check_values(text)
        else:
            check_values(text)


@pytest.mark.parametrize("text", [b"a,b\\n" * 100_000, b'\\"\\\\,' * 100_000, b"[" * 100_000])
def test_a_long_text_is_one_value(text: bytes) -> None:
    """A table or a program that a person sends is not counted by its commas."""
    check_values(b'{"text": "' + text + b'", "other": [1, 2]}')


@pytest.mark.parametrize(
    ("before", "each", "after"),
    [
        (b"[", b"0,", b"0]"),
        (b"[", b"[],", b"[]]"),
        (b"[", b'"",', b'""]'),
        (b"{", b'"":"",', b'"":""}'),
        (b'{"a":"', b'","a":"', b'"}'),
        (b'{"\\\\":"', b'\\"\\\\","":"', b'"}'),
        # Not JSON, but nobody decodes so much to find that out.
        (b"[", b"[", b""),
    ],
)
def test_the_most_values(before: bytes, each: bytes, after: bytes) -> None:
    """Just more is refused, in every form that they can have."""
    with pytest.raises(TooLarge, match="at most 50000 values"):
        check_values(before + each * MOST_VALUES + after)
    check_values(b"[" + b"0," * (MOST_VALUES - 1) + b"0]")


DESCRIPTION = openapi.describe(ALL, "1")
WITH_BODY = [route for route in ALL if route.body is not NoBody]
OTHERS = [None, True, 7, 1.5, "", "other", [], {}, [1], {"a": 1}]
Spot: TypeAlias = tuple[str | int, ...]


def examples(schema: dict[str, Any]) -> list[Any]:
    """Values as a schema describes them, one of each kind."""
    match schema:
        case {"$ref": str(reference)}:
            return examples(DESCRIPTION["components"]["schemas"][reference.rpartition("/")[2]])
        case {"anyOf": list(kinds)}:
            return [each for kind in kinds for each in examples(kind)]
        case {"enum": list(allowed)}:
            return allowed
        case {"properties": dict(properties)}:
            values = {key: examples(each) for key, each in properties.items()}
            most = max(map(len, values.values()))
            return [
                {key: each[at % len(each)] for key, each in values.items()} for at in range(most)
            ]
        case {"items": dict(items)}:
            return [examples(items)]
        case {"type": "object"}:
            return [{"a": each} for each in examples(schema.get("additionalProperties", {}))]
    simple = {"string": "a", "integer": 1, "number": 1.5, "boolean": True, "null": None}
    return [simple.get(schema.get("type", ""), 1)]


def spots(value: object, spot: Spot = ()) -> Iterator[Spot]:
    """The way to everything in a value, beginning with the whole."""
    yield spot
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from spots(each, (*spot, key))


def broken(body: object) -> Iterator[tuple[Spot, Any]]:
    """The body with something else, or with nothing, at each of its spots."""
    for spot in spots(body):
        for other in OTHERS:
            whole, holder, key = held(body, spot)
            holder[key] = other
            yield spot, whole[""]
        if spot:
            whole, holder, key = held(body, spot)
            del holder[key]
            yield spot, whole[""]


def held(body: object, spot: Spot) -> tuple[Any, Any, Any]:
    """A copy of the body in a holder, what holds the spot, and its key there."""
    whole: Any = {"": copy.deepcopy(body)}
    *way, key = ("", *spot)
    return whole, functools.reduce(operator.getitem, way, whole), key


def refusal(route: Route, body: object) -> str | None:
    """What is said about a body, if it is refused."""
    try:
        body_value(json.dumps(body).encode(), route.body, may_be_absent=False)
    except BadRequest as error:
        return str(error)
    return None


@pytest.mark.parametrize("route", WITH_BODY, ids=lambda route: route.operation)
def test_a_body_is_refused_in_words(route: Route) -> None:
    """Whatever is wrong with it, the message names the place as people write it, what was expected
    there and what was found."""
    described = DESCRIPTION["paths"][route.path][route.method.lower()]["requestBody"]
    refused = 0
    for body in examples(described["content"]["application/json"]["schema"]):
        assert refusal(route, body) is None
        for spot, other in broken(body):
            message = refusal(route, other)
            if message is not None:
                refused += 1
                check_words(message, spot)
    assert refused


def check_words(message: str, spot: Spot) -> None:
    """Check that a message says what was changed at a spot, in words."""
    message, _, hint = message.partition("\n")
    assert hint in ("", '  send {"parts": [{"type": "text", "text": "..."}]}')
    place, _, problem = message.rpartition(": ")
    assert re.fullmatch(r"expected (.+); found (.+)|missing; expected (.+)", problem)
    # What stands beside a tag has to be of its kind.
    assert place.startswith(path(spot[:-1]))
    assert not re.search(r"`|\$|Expected|\bgot\b|\b(str|int|float|bool)\b", message)
