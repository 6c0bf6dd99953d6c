"""Checks on what callers hand in, so that a mistake is named before anything is stored."""

import math
from collections.abc import Sequence
from typing import TypeVar

from kedge.domain import wire
from kedge.domain.errors import InvalidInput

MAX_LIMIT = 10_000
_MAX_TIME = 2**53

T = TypeVar("T")


def check_limit(limit: object, name: str = "limit") -> int:
    """How many to return: a whole number that is not negative."""
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise InvalidInput(f"{name} must be a whole number", field=name)
    if not 0 <= limit <= MAX_LIMIT:
        raise InvalidInput(f"{name} must be between 0 and {MAX_LIMIT}", field=name)
    return limit


def check_time(time: object, name: str) -> int | float:
    """Milliseconds since 1970: a finite number."""
    if isinstance(time, bool) or not isinstance(time, int | float):
        raise InvalidInput(f"{name} must be a number of milliseconds", field=name)
    if not math.isfinite(time) or abs(time) > _MAX_TIME:
        raise InvalidInput(f"{name} must be a finite number of milliseconds", field=name)
    return time


def check_text(text: object, name: str) -> str:
    """A string that can be stored; lone surrogates become U+FFFD."""
    if not isinstance(text, str):
        raise InvalidInput(f"{name} must be a string", field=name)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def check_values(values: object, kind: type[T], name: str) -> list[T]:
    """A list of values of one kind, or of plain objects that have its shape."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InvalidInput(f"{name} must be a list", field=name)
    return wire.convert(list(values), list[kind])  # type: ignore[valid-type]  # built at run time
