"""Checks JSON values against JSON schemas that clients send; bounded in time, whatever the schema.

The keywords that say what a value must be are checked, those of drafts 4 to 2020-12. What only
describes it (`format`, `contentEncoding`), `unevaluated…`, references to other documents, and
regular expressions that cannot be matched in linear time are not.
"""

import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from types import NoneType
from typing import Any, TypeAlias, TypeGuard

from kedge.domain import wire
from kedge.domain.errors import InvalidInput
from kedge.domain.text import printable

MOST_BYTES = 256 * 1024
"""The size of a schema."""
MOST_STEPS = 200_000
"""How many pairs of a value and a schema one check looks at."""
_DEEPEST = 200
_LONGEST_PATTERN = 500
_LONGEST_MATCHED = 100_000
"""Longer texts are not compared with patterns."""
_MANY = re.compile(r"\{[0-9,]*[0-9]{3,}[0-9,]*\}")
"""Repetitions that make a large automaton of a short expression."""
_CHARACTERS_A_STEP = 100
_NAMES_A_STEP = 10
_LONGEST_SHOWN = 80

Json: TypeAlias = Any
_Schema: TypeAlias = Mapping[str, Any] | bool


class _Wrong(Exception):
    """The value does not fit."""


class _TooMuch(Exception):
    """The check takes too many steps."""


def check_schema(schema: Mapping[str, Any], field: str) -> None:
    """Refuse a schema that no model could be given as the arguments of a tool."""
    kind = schema.get("type", "object")
    if kind != "object":
        raise InvalidInput(
            f'{field}.type must be "object", not {_shown(kind)}: models answer with objects. Put'
            " the value in a property of one.",
            field=f"{field}.type",
        )
    if len(wire.encode(dict(schema))) > MOST_BYTES:
        raise InvalidInput(f"{field} is larger than {MOST_BYTES // 1024} KiB", field=field)


def mismatch(value: Json, schema: Mapping[str, Any]) -> str | None:
    """Where a value does not fit its schema, and what was expected; None if it fits."""
    try:
        _Check(schema).value(value, schema, "the value", 0)
    except _Wrong as wrong:
        return str(wrong)
    except _TooMuch:
        return "it cannot be checked: the schema and the value together are too complex"
    return None


class _Check:
    """One check of a value."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._steps = 0

    def value(self, value: Json, schema: Json, at: str, depth: int) -> None:
        """Raise if a value does not fit a schema."""
        self._count(1)
        if depth > _DEEPEST:
            raise _TooMuch
        if schema is False:
            raise _Wrong(f"{at} must not be there")
        if not isinstance(schema, Mapping):
            return
        self._plain(value, schema, at)
        self._combined(value, schema, at, depth + 1)
        if isinstance(value, dict):
            self._object(value, schema, at, depth + 1)
        elif isinstance(value, list):
            self._array(value, schema, at, depth + 1)

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MOST_STEPS:
            raise _TooMuch

    def _fits(self, value: Json, schema: Json, depth: int) -> bool:
        try:
            self.value(value, schema, "", depth)
        except _Wrong:
            return False
        return True

    def _plain(self, value: Json, schema: Mapping[str, Any], at: str) -> None:
        """What is said about the value itself."""
        kinds = schema.get("type")
        if kinds is not None:
            wanted = [each for each in _listed(kinds) if isinstance(each, str)]
            # A type that there is not is a matter between client and model.
            if all(each in _KINDS and not _KINDS[each](value) for each in wanted):
                raise _Wrong(f"{at} must be {' or '.join(wanted)}, not {_shown(value)}")
        if "const" in schema and not _same(value, schema["const"]):
            raise _Wrong(f"{at} must be {_shown(schema['const'])}, not {_shown(value)}")
        choices = schema.get("enum")
        if isinstance(choices, list):
            self._count(len(choices))
            if not any(_same(value, each) for each in choices):
                some = ", ".join(_shown(each) for each in choices[:20])
                raise _Wrong(f"{at} must be one of {some}, not {_shown(value)}")
        if _is_number(value):
            _check_number(value, schema, at)
        elif isinstance(value, str):
            self._count(len(value) // _CHARACTERS_A_STEP)
            _check_text(value, schema, at)

    def _combined(self, value: Json, schema: Mapping[str, Any], at: str, depth: int) -> None:
        """What other schemas say about it."""
        for key in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(name := schema.get(key), str):
                self.value(value, self._named(name), at, depth)
        for each in _schemas(schema, "allOf"):
            self.value(value, each, at, depth)
        if (some := _schemas(schema, "anyOf")) and not any(
            self._fits(value, each, depth) for each in some
        ):
            raise _Wrong(f"{at} fits none of the schemas in anyOf")
        if one := _schemas(schema, "oneOf"):
            count = sum(self._fits(value, each, depth) for each in one)
            if count != 1:
                raise _Wrong(f"{at} must fit exactly one of the schemas in oneOf, and fits {count}")
        if "not" in schema and self._fits(value, schema["not"], depth):
            raise _Wrong(f"{at} fits the schema that it must not fit")
        if "if" in schema:
            branch = "then" if self._fits(value, schema["if"], depth) else "else"
            self.value(value, schema.get(branch, True), at, depth)

    def _named(self, name: str) -> Json:
        """The schema that a reference inside of the document means; True for any other."""
        if not name.startswith("#"):
            return True
        found: Json = self._root
        for step in filter(None, name[1:].split("/")):
            self._count(1)
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdecimal() and int(key[:9]) < len(found):
                found = found[int(key[:9])]
            else:
                return True
        return found

    def _object(
        self, value: dict[str, Any], schema: Mapping[str, Any], at: str, depth: int
    ) -> None:
        required = _listed(schema.get("required", []))
        self._count(len(required) // _NAMES_A_STEP)
        missing = [each for each in required if isinstance(each, str) and each not in value]
        if missing:
            raise _Wrong(f"{at} lacks {', '.join(missing[:20])}")
        _check_size(len(value), schema, "Properties", at, "properties")
        properties = _mapping(schema, "properties")
        patterns = _mapping(schema, "patternProperties")
        names = schema.get("propertyNames", True)
        others = schema.get("additionalProperties", True)
        for key, each in value.items():
            where = f"{at}.{_name(key)}"
            if names is not True:
                self.value(key, names, f"the name of {where}", depth)
            about = [properties[key]] if key in properties else []
            self._count(len(patterns))
            about += [found for pattern, found in patterns.items() if _matches(pattern, key)]
            if not about and others is False:
                known = ", ".join(_name(name) for name in list(properties)[:20]) or "none"
                raise _Wrong(f"{where} is not in the schema, which has: {known}")
            for found in about or [others]:
                self.value(each, found, where, depth)
        for key, needed in _mapping(schema, "dependentRequired").items():
            if key in value:
                self.value(value, {"required": needed}, at, depth)
        for key, found in _mapping(schema, "dependentSchemas").items():
            if key in value:
                self.value(value, found, at, depth)

    def _array(self, value: list[Any], schema: Mapping[str, Any], at: str, depth: int) -> None:
        _check_size(len(value), schema, "Items", at, "items")
        rows, rest = schema.get("prefixItems"), schema.get("items", True)
        if not isinstance(rows, list) and isinstance(rest, list):
            # Older drafts have both in `items`.
            rows, rest = rest, schema.get("additionalItems", True)
        first = rows if isinstance(rows, list) else []
        for index, each in enumerate(value):
            found = first[index] if index < len(first) else rest
            self.value(each, found, f"{at}[{index}]", depth)
        if schema.get("uniqueItems") is True:
            self._count(len(value))
            if len({_canonical(each) for each in value}) < len(value):
                raise _Wrong(f"{at} has the same item twice")
        if "contains" in schema:
            count = sum(self._fits(each, schema["contains"], depth) for each in value)
            least, most = schema.get("minContains", 1), schema.get("maxContains")
            if (_is_number(least) and count < least) or (_is_number(most) and count > most):
                raise _Wrong(f"{at} has {count} items as `contains` wants them")


def _check_number(value: float, schema: Mapping[str, Any], at: str) -> None:
    limits: tuple[tuple[str, str, Callable[[float, float], bool]], ...] = (
        ("minimum", "at least", lambda given, limit: given >= limit),
        ("maximum", "at most", lambda given, limit: given <= limit),
        ("exclusiveMinimum", "more than", lambda given, limit: given > limit),
        ("exclusiveMaximum", "less than", lambda given, limit: given < limit),
    )
    for key, words, is_kept in limits:
        limit = schema.get(key)
        if _is_number(limit) and not is_kept(value, limit):
            raise _Wrong(f"{at} must be {words} {limit}, not {_shown(value)}")
    factor = schema.get("multipleOf")
    if _is_number(factor) and factor > 0 and not _is_multiple(value, factor):
        raise _Wrong(f"{at} must be a multiple of {factor}, not {_shown(value)}")


def _is_multiple(value: float, factor: float) -> bool:
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    try:
        quotient = value / factor
        # 0.3 is a multiple of 0.1, whatever binary fractions say.
        return abs(quotient - round(quotient)) < 1e-9 * max(1.0, abs(quotient))
    except OverflowError:
        return True


def _check_text(value: str, schema: Mapping[str, Any], at: str) -> None:
    _check_size(len(value), schema, "Length", at, "characters")
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _matches(pattern, value):
        raise _Wrong(f"{at} must match {_shown(pattern)}, not {_shown(value)}")


def _check_size(size: int, schema: Mapping[str, Any], kind: str, at: str, what: str) -> None:
    least, most = schema.get(f"min{kind}"), schema.get(f"max{kind}")
    if _is_number(least) and size < least:
        raise _Wrong(f"{at} must have at least {least} {what}, not {size}")
    if _is_number(most) and size > most:
        raise _Wrong(f"{at} must have at most {most} {what}, not {size}")


def _matches(pattern: str, text: str) -> bool:
    """Whether a text contains a match; also true where that cannot be found out in linear time."""
    if len(text) > _LONGEST_MATCHED:
        return True
    matcher = _matcher(pattern)
    return matcher is None or matcher(text)


@lru_cache(maxsize=256)
def _matcher(pattern: str) -> Callable[[str], bool] | None:
    """A matcher for an expression, if it can be one without backtracking."""
    if len(pattern) > _LONGEST_PATTERN or _MANY.search(pattern) or pattern.count("{") > 20:
        return None
    # Imported late: only prompts with a schema need it.
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        found = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        # It looks around or back, or it is none.
        return None
    return found.isinstance_python


def _is_number(value: Json) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Json) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


def _is_of(*kinds: type) -> Callable[[Json], bool]:
    return lambda value: isinstance(value, kinds)


_KINDS: Mapping[str, Callable[[Json], bool]] = {
    "null": _is_of(NoneType),
    "boolean": _is_of(bool),
    "integer": _is_whole,
    "number": _is_number,
    "string": _is_of(str),
    "array": _is_of(list),
    "object": _is_of(dict),
}


def _listed(value: Json) -> Collection[Json]:
    return value if isinstance(value, list) else [value]


def _schemas(schema: Mapping[str, Any], key: str) -> list[Json]:
    found = schema.get(key)
    return found if isinstance(found, list) else []


def _mapping(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = schema.get(key)
    return found if isinstance(found, Mapping) else {}


def _same(one: Json, other: Json) -> bool:
    """Equality of JSON: 1 is 1.0, but not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)


def _canonical(value: Json) -> str:
    """A text that is the same for equal values."""
    return wire.encode(_ordered(value))


def _ordered(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_ordered(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _name(key: str) -> str:
    return printable(key[:_LONGEST_SHOWN])


def _shown(value: Json) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = wire.encode(value[:_LONGEST_SHOWN] if isinstance(value, str) else value)
    return printable(text[:_LONGEST_SHOWN])
