"""JSON encoding and decoding of all of kedge's values.

`decode` reads everything that `encode` accepts. Keys that a value does not know survive in its
`extra`.
"""

import functools
import json
import math
import re
from typing import Any, NoReturn, TypeVar, overload

import msgspec

from kedge.domain.errors import InvalidInput
from kedge.domain.mismatches import Mismatch, Way, mismatch, path
from kedge.domain.text import mend_escapes, nested_deeper_than, utf8
from kedge.domain.values import EXTRA_KEY, Json, Value, gather, plain, shape_of

__all__ = ["MAX_DEPTH", "Value", "convert", "decode", "encode"]

T = TypeVar("T")

MAX_DEPTH = 128
"""How deep arrays and objects may be nested."""

_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1
_EXTRA = EXTRA_KEY.encode()
_EXTRA_ESCAPED = b"\\udbff\\udfff"
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD]")
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * len(str(_MAX_INT))

_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
_NOT_UTF8 = "malformed JSON: it is not UTF-8"
_PROBLEMS = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
_encoder = msgspec.json.Encoder()


def encode(value: object) -> str:
    """The JSON text of a value; lone surrogates become U+FFFD."""
    try:
        text = _encode(value)
        _check_depth(text)
        # The encoder writes NaN and infinities as null.
        if b"null" in text or _has_long_number(text):
            _check_numbers(plain(value))
    except (TypeError, *_PROBLEMS) as error:
        _refuse(error)
    return text.decode()


def _encode(value: object) -> bytes:
    try:
        text = _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(plain(value))
    # The key is not ASCII, and checking a text for ASCII is far faster than searching it.
    if not text.isascii() and _EXTRA in text:
        return _encoder.encode(plain(value))
    return text


@overload
def decode(raw: str | bytes, type: type[T]) -> T: ...
@overload
def decode(raw: str | bytes, type: object) -> Any: ...  # noqa: ANN401 - a union is no type[T]
def decode(raw: str | bytes, type: object) -> object:
    """The value in a JSON text; escaped lone surrogates become U+FFFD."""
    text = utf8(raw) if isinstance(raw, str) else raw
    may_spell_extra = _EXTRA in text
    if _SURROGATE_ESCAPE.search(text):
        text = mend_escapes(text)
        may_spell_extra = may_spell_extra or _EXTRA_ESCAPED in text.lower()
    try:
        value = _decode_gathered(text, type) if may_spell_extra else _decode(text, type)
        _check_depth(text)
        if _has_long_number(text):
            _check_numbers(msgspec.json.decode(text))
    except msgspec.DecodeError as error:
        raise _why(text, type) from error
    except _PROBLEMS as error:
        _refuse(error)
    return value


def _decode(text: bytes, type: object) -> object:
    try:
        return _decoder(type).decode(text)
    except msgspec.ValidationError:
        return _decode_gathered(text, type)


def _decode_gathered(text: bytes, type: object) -> object:
    gathered = gather(msgspec.json.decode(text), shape_of(type))
    return msgspec.convert(gathered, type)


@functools.cache
def _decoder(type: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 - a union is no type[T]
    return msgspec.json.Decoder(type)


@overload
def convert(obj: object, type: type[T]) -> T: ...
@overload
def convert(obj: object, type: object) -> Any: ...  # noqa: ANN401 - a union is no type[T]
def convert(obj: object, type: object) -> object:
    """The value from an object of JSON's own types, by the same rules as `decode`."""
    return decode(encode(obj), type)


def _check_depth(text: bytes) -> None:
    if nested_deeper_than(MAX_DEPTH, text):
        raise InvalidInput(_TOO_DEEP)


def _has_long_number(text: bytes) -> bool:
    return _LONG_NUMBER in text.translate(_DIGITS_TO_ZERO)


def _check_numbers(obj: Json) -> None:
    pending = [obj]
    while pending:
        match pending.pop():
            case dict() as members:
                pending.extend(members.values())
            case list() as items:
                pending.extend(items)
            case float() as number if not math.isfinite(number):
                found, expected = str(number), "a finite number"
                raise _misfit(Mismatch(way=_way_to(number, obj), expected=expected, found=found))
            case int() as number if not _MIN_INT <= number <= _MAX_INT:
                found, expected = "a larger one", "a whole number of at most 64 bits"
                raise _misfit(Mismatch(way=_way_to(number, obj), expected=expected, found=found))


def _way_to(wanted: float, obj: Json) -> Way:
    """The path to an object; separate from the check for it, which runs for every large value."""
    # Not built on the way down: it would be copied for every value below.
    pending: list[tuple[Any, Json]] = [(None, obj)]
    while pending:
        last, each = pending.pop()
        match each:
            case dict() as members:
                pending.extend(((last, key), value) for key, value in members.items())
            case list() as items:
                pending.extend(((last, at), item) for at, item in enumerate(items))
            case _ if each is wanted:
                break
    way: list[str | int] = []
    while last is not None:
        last, step = last
        way.append(step)
    return tuple(reversed(way))


def _why(text: bytes, type: object) -> InvalidInput:
    """The error, in words, for a text that the decoder refused."""
    try:
        obj = json.loads(text.decode(), parse_int=_short_int)
        _check_numbers(obj)
    except InvalidInput as error:
        return error
    except json.JSONDecodeError as error:
        return InvalidInput(f"malformed JSON{_place(error)}")
    except UnicodeError:
        return InvalidInput(_NOT_UTF8)
    except RecursionError:
        return InvalidInput(_TOO_DEEP)
    shape = shape_of(type)
    return _misfit(mismatch(gather(obj, shape), shape))


def _short_int(digits: str) -> int:
    # More digits would only make a large number larger, and Python reads no more than 4300.
    return int(digits[:30])


def _place(error: json.JSONDecodeError) -> str:
    if error.pos >= len(error.doc.rstrip()):
        return ": it ends too early"
    return f" in line {error.lineno}, column {error.colno}"


def _misfit(found: Mismatch) -> InvalidInput:
    return InvalidInput(str(found), field=path(found.way) or None)


def _refuse(error: Exception) -> NoReturn:
    match error:
        case RecursionError():
            raise InvalidInput(_TOO_DEEP) from error
        case UnicodeError():
            raise InvalidInput(_NOT_UTF8) from error
    raise InvalidInput(str(error)) from error
