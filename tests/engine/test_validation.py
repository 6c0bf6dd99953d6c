"""Checks on what callers hand in."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.domain.errors import InvalidInput
from kedge.domain.sessions import Todo
from kedge.engine.validation import MAX_LIMIT, check_limit, check_text, check_time, check_values


@pytest.mark.parametrize("limit", [0, 1, MAX_LIMIT])
def test_limits_that_are_fine(limit: int) -> None:
    """A limit in range is given back."""
    assert check_limit(limit) == limit


@pytest.mark.parametrize("limit", [-1, MAX_LIMIT + 1, 1.0, "1", None, True, 2**70])
def test_limits_that_are_not(limit: Any) -> None:  # noqa: ANN401 - wrong on purpose
    """A limit that is negative, huge or no whole number is refused by name."""
    with pytest.raises(InvalidInput, match="many"):
        check_limit(limit, "many")


@pytest.mark.parametrize("time", [0, -5, 1.5, 2**53])
def test_times_that_are_fine(time: float) -> None:
    """Any finite number of milliseconds is a time."""
    assert check_time(time, "t") == time


@pytest.mark.parametrize("time", [math.nan, math.inf, -math.inf, 2**60, "5", None, False])
def test_times_that_are_not(time: Any) -> None:  # noqa: ANN401 - wrong on purpose
    """What is not finite, or no number, is refused."""
    with pytest.raises(InvalidInput):
        check_time(time, "t")


@given(st.text(st.characters()))
def test_any_text_becomes_one_that_can_be_sent(text: str) -> None:
    """Lone surrogates are replaced, pairs joined, and everything else stays as it is."""
    safe = check_text(text, "t")
    assert safe.encode().decode() == safe
    if not any("\ud800" <= each <= "\udfff" for each in text):
        assert safe == text


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("\ud83d\ude00", "\U0001f600"),
        ("a\ud800b", "a\ufffdb"),
        ("\udc00", "\ufffd"),
        ("\ufeffa", "\ufeffa"),
    ],
)
def test_surrogates(text: str, safe: str) -> None:
    """A pair is one character, a lone half is U+FFFD, and a byte order mark is kept."""
    assert check_text(text, "t") == safe


@pytest.mark.parametrize("values", ["x", b"x", {"a": 1}, None, 5, [5], [{"content": "x"}]])
def test_lists_that_are_not(values: Any) -> None:  # noqa: ANN401 - wrong on purpose
    """What is no list of the wanted kind is refused."""
    with pytest.raises(InvalidInput):
        check_values(values, Todo, "todos")


def test_plain_objects_become_values() -> None:
    """A caller may hand in values or objects of the same shape."""
    todo = Todo(content="a", status="b", priority="c")
    plain = {"content": "a", "status": "b", "priority": "c"}
    assert check_values((todo, plain), Todo, "todos") == [todo, todo]
