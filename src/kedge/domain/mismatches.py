"""Messages for JSON that does not fit a type. The decoder decides whether it fits."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import inspect

from kedge.domain.values import Json

Way: TypeAlias = tuple[str | int, ...]
"""The keys and indexes from the whole value to the place."""

_LONGEST_SHOWN = 60
_PLAIN_KEY = re.compile(rf"[A-Za-z_$][\w$-]{{,{_LONGEST_SHOWN - 1}}}", re.ASCII)
_Object: TypeAlias = inspect.StructType | inspect.DictType


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One place in the JSON, what was expected there and what was found."""

    way: Way
    expected: str
    found: str | None
    """None if nothing is there."""

    def __str__(self) -> str:
        if self.found is None:
            problem = f"missing; expected {self.expected}"
        else:
            problem = f"expected {self.expected}; found {self.found}"
        return f"{path(self.way)}: {problem}" if self.way else problem


def path(way: Way) -> str:
    """A path in the usual notation: `parts[0].text`."""
    steps = "".join(map(_step, way))
    return steps.removeprefix(".")


def _step(step: str | int) -> str:
    return (
        f".{step}" if isinstance(step, str) and _PLAIN_KEY.fullmatch(step) else f"[{shown(step)}]"
    )


def shown(obj: Json) -> str:
    """A short description of a value."""
    match obj:
        case str():
            return repr(_cut(obj))
        case dict():
            return "an object"
        case list():
            return "an array"
        case _:
            return _cut(json.dumps(obj))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def mismatch(obj: Json, shape: inspect.Type, *, strict: bool = True) -> Mismatch:
    """The first place where JSON that the decoder refused does not fit. If not `strict`, scalars
    are strings, as in a query."""
    found = next(_mismatches(obj, _choices(shape), (), strict), None)
    return found or Mismatch(way=(), expected=_words(_choices(shape)), found=shown(obj))


def _choices(shape: inspect.Type) -> list[inspect.Type]:
    """The types of values that are allowed in a place."""
    match shape:
        case inspect.Metadata(type=inner):
            return _choices(inner)
        case inspect.UnionType(types=types):
            return [each for inner in types for each in _choices(inner)]
    return [shape]


def _mismatches(
    obj: Json, choices: list[inspect.Type], way: Way, strict: bool
) -> Iterator[Mismatch]:
    objects = [each for each in choices if isinstance(each, _Object)]
    lists = [each for each in choices if isinstance(each, inspect.ListType)]
    if isinstance(obj, dict) and objects:
        yield from _in_object(obj, objects, way, strict)
    elif isinstance(obj, list) and lists:
        for at, each in enumerate(obj):
            yield from _mismatches(each, _choices(lists[0].item_type), (*way, at), strict)
    elif not any(_fits(obj, each, strict) for each in choices):
        yield Mismatch(way=way, expected=_words(choices), found=shown(obj))


def _in_object(
    obj: dict[str, Json], choices: list[_Object], way: Way, strict: bool
) -> Iterator[Mismatch]:
    first = choices[0]
    if isinstance(first, inspect.DictType):
        for key, each in obj.items():
            yield from _mismatches(each, _choices(first.value_type), (*way, key), strict)
        return
    structs = [each for each in choices if isinstance(each, inspect.StructType)]
    if first.tag_field is None or (len(structs) == 1 and first.tag_field not in obj):
        yield from _in_struct(obj, first, way, strict)
        return
    tag = obj.get(first.tag_field)
    fitting = next((each for each in structs if each.tag == tag), None)
    if fitting is not None:
        yield from _in_struct(obj, fitting, way, strict)
        return
    found = shown(tag) if first.tag_field in obj else None
    expected = _one_of(each.tag for each in structs)
    yield Mismatch(way=(*way, first.tag_field), expected=expected, found=found)


def _in_struct(
    obj: dict[str, Json], shape: inspect.StructType, way: Way, strict: bool
) -> Iterator[Mismatch]:
    for field in shape.fields:
        choices, there = _choices(field.type), (*way, field.encode_name)
        if field.encode_name in obj:
            yield from _mismatches(obj[field.encode_name], choices, there, strict)
        elif field.required:
            yield Mismatch(way=there, expected=_words(choices), found=None)


def _fits(obj: Json, shape: inspect.Type, strict: bool) -> bool:
    try:
        msgspec.convert(obj, _simple(shape), strict=strict)
    except msgspec.ValidationError:
        return False
    return True


def _simple(shape: inspect.Type) -> Any:  # noqa: ANN401 - a type with bounds is no type
    match shape:
        case inspect.LiteralType(values=values):
            return Literal[values]
        case inspect.StrType(min_length=least, max_length=most, pattern=pattern):
            return Annotated[str, msgspec.Meta(min_length=least, max_length=most, pattern=pattern)]
        case inspect.IntType(ge=least, le=most):
            return Annotated[int, msgspec.Meta(ge=least, le=most)]
        case inspect.FloatType(ge=least, le=most):
            return Annotated[float, msgspec.Meta(ge=least, le=most)]
        case inspect.BoolType():
            return bool
        case inspect.NoneType():
            return None
        case inspect.StructType() | inspect.DictType():
            return dict
        case inspect.ListType():
            return list
    return Any


def _words(choices: Iterable[inspect.Type]) -> str:
    """The expected types in words; null is not worth mentioning."""
    words = list(dict.fromkeys(map(_word, choices)))
    if "a number" in words:
        words = [each for each in words if each != "a whole number"]
    return " or ".join([each for each in words if each != "null"] or words)


def _word(shape: inspect.Type) -> str:
    match shape:
        case inspect.LiteralType(values=values):
            return _one_of(values)
        case inspect.StrType(min_length=least, max_length=most):
            return f"a string{_bounds(least, most, 'length ')}"
        case inspect.IntType(ge=least, le=most):
            return f"a whole number{_bounds(least, most)}"
        case inspect.FloatType(ge=least, le=most):
            return f"a number{_bounds(least, most)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.NoneType():
            return "null"
        case inspect.ListType():
            return "an array"
        case inspect.StructType() | inspect.DictType():
            return "an object"
    return "another value"


def _one_of(values: Iterable[Any]) -> str:
    names = [str(each) for each in values]
    return f"one of {', '.join(names)}" if len(names) > 1 else f"'{names[0]}'"


def _bounds(least: float | None, most: float | None, of: str = "") -> str:
    match least, most:
        case None, None:
            return ""
        case _, None:
            return f" ({of}at least {least})"
        case None, _:
            return f" ({of}at most {most})"
    return f" ({of}{least} to {most})"
