"""What is said in a query and in a body, and how much of it."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.domain import wire
from kedge.domain.errors import TooLarge
from kedge.server import bodies
from kedge.server.bodies import MOST_VALUES, check_values
from kedge.server.errors import BadRequest
from kedge.server.requests import parsed_query


def test_a_key_that_is_there_twice_is_refused() -> None:
    """It is named."""
    many = b"&".join(b"%d=" % number for number in range(90))
    assert len(parsed_query(many)) == 90
    with pytest.raises(BadRequest, match=r'got several\n  at \["twice"\]'):
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
        patch.setattr(bodies, "MOST_VALUES", 12)
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
