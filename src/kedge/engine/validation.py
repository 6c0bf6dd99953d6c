"""Validation of arguments, so that a mistake is reported before anything is stored."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, overload

import msgspec

from kedge.domain import wire
from kedge.domain.errors import InvalidInput
from kedge.domain.text import mend_text

MAX_LIMIT = 10_000
_MAX_TIME = 2**53

T = TypeVar("T")


def check_limit(limit: object, name: str = "limit") -> int:
    """A limit: a whole number that is not negative."""
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise InvalidInput(f"{name} must be a whole number", field=name)
    if not 0 <= limit <= MAX_LIMIT:
        raise InvalidInput(f"{name} must be between 0 and {MAX_LIMIT}", field=name)
    return limit


def check_offset(offset: object, name: str = "offset") -> int:
    """An offset in a text: a whole number that is not negative."""
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise InvalidInput(f"{name} must be a whole number that is not negative", field=name)
    return offset


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
    return mend_text(text)


def check_flag(flag: object, name: str) -> bool | None:
    """True, False, or None if not given."""
    if flag is not None and not isinstance(flag, bool):
        raise InvalidInput(f"{name} must be True, False or None", field=name)
    return flag


def check_path(path: object, name: str) -> Path:
    """A path as text, whether it exists or not."""
    given = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(given, str):
        raise InvalidInput(f"{name} must be a string or a path", field=name)
    if "\0" in given:
        raise InvalidInput(f"{name} cannot hold a NUL character", field=name)
    return Path(given)


@overload
def check_value(value: object, kind: type[T]) -> T: ...
@overload
def check_value(value: object, kind: UnionType) -> Any: ...  # noqa: ANN401 - a union is no type[T]
def check_value(value: object, kind: type | UnionType) -> object:
    """A value whose fields have the right types; nothing checks them when a value is made.

    A value that is stored with a wrong type cannot be read again, and its whole page with it.
    """
    if not isinstance(value, wire.Value) or not isinstance(value, kind):
        return wire.convert(value, kind)
    try:
        # Text is passed on without copying, so this is cheap for values of any size.
        msgspec.convert(msgspec.to_builtins(value, builtin_types=(bytes,)), type(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(str(error)) from error
    return value


@overload
def check_values(values: object, kind: type[T], name: str) -> list[T]: ...
@overload
def check_values(values: object, kind: UnionType, name: str) -> list[Any]: ...
def check_values(values: object, kind: Any, name: str) -> list[Any]:
    """A list of values of one kind, or of plain objects of the same shape."""
    return [check_value(each, kind) for each in check_list(values, name)]


def check_list(values: object, name: str) -> Sequence[object]:
    """A list of anything, but not a text."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InvalidInput(f"{name} must be a list", field=name)
    return values
