"""The base class of every value on the wire, and the handling of keys that a value does not know.

Both directions are walks in Python, which run only for the rare values with such keys.
"""

import functools
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

from kedge.domain.text import mend_text

# The highest code point, a noncharacter: no program uses it as a key. `wire` makes sure that text
# from outside that does use it is never mistaken for it.
EXTRA_KEY = "\U0010ffff"


class Value(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    forbid_unknown_fields=True,
):
    """A frozen value that keeps the keys it does not know; optional fields are absent when None."""

    extra: dict[str, Any] | None = msgspec.field(default=None, name=EXTRA_KEY)
    """Keys from the wire that kedge does not know; they are sent again beside the known ones."""


Json: TypeAlias = Any
"""What JSON text decodes to: dict, list, str, int, float, bool or None."""


@functools.cache
def shape_of(type: object) -> inspect.Type:
    """A description of a type, as `gather` needs it."""
    return inspect.type_info(type)


def gather(obj: Json, shape: inspect.Type) -> Json:
    """The decoded JSON with the unknown keys of every value in it moved to its `extra`."""
    match shape:
        case inspect.UnionType(types=types):
            chosen = next((each for each in types if _fits(obj, each)), None)
            return obj if chosen is None else gather(obj, chosen)
        case inspect.StructType() if isinstance(obj, dict):
            return _gather_struct(obj, shape)
        case inspect.DictType(value_type=item) if isinstance(obj, dict):
            return {key: gather(each, item) for key, each in obj.items()}
        case inspect.ListType(item_type=item) if isinstance(obj, list):
            return [gather(each, item) for each in obj]
        case _:
            return obj


def _fits(obj: Json, shape: inspect.Type) -> bool:
    match shape:
        case inspect.StructType(tag_field=None) | inspect.DictType():
            return isinstance(obj, dict)
        case inspect.StructType(tag_field=field, tag=tag):
            return isinstance(obj, dict) and obj.get(field) == tag
        case inspect.ListType():
            return isinstance(obj, list)
        case _:
            return False


def _gather_struct(obj: dict[str, Json], shape: inspect.StructType) -> dict[str, Json]:
    fields = {field.encode_name: field.type for field in shape.fields}
    if EXTRA_KEY not in fields:
        return {k: gather(v, fields[k]) if k in fields else v for k, v in obj.items()}
    # A client that uses the key of `extra` itself has sent one more unknown key.
    del fields[EXTRA_KEY]
    known = {key: gather(obj[key], field) for key, field in fields.items() if key in obj}
    if shape.tag_field is not None and shape.tag_field in obj:
        known[shape.tag_field] = obj[shape.tag_field]
    unknown = {key: each for key, each in obj.items() if key not in known}
    return known | {EXTRA_KEY: unknown} if unknown else known


def plain(value: object) -> Json:
    """The value as JSON's own types, its text mended and every `extra` flattened."""
    match value:
        case str():
            return mend_text(value)
        case msgspec.Struct():
            return _plain_struct(value)
        case dict():
            return {plain(key): plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case _:
            return value


@functools.cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    # Uncached, each call evaluates all annotations again, which takes 0.1 ms for a part.
    return msgspec.structs.fields(kind)


def _plain_struct(value: msgspec.Struct) -> dict[str, Json]:
    config = value.__struct_config__
    members: dict[str, Json] = {}
    if config.tag_field is not None:
        members[config.tag_field] = config.tag
    for field in _fields_of(type(value)):
        member = getattr(value, field.name)
        omitted = config.omit_defaults and member == field.default
        if field.encode_name != EXTRA_KEY and not omitted:
            members[field.encode_name] = plain(member)
    extra = value.extra or {} if isinstance(value, Value) else {}
    # A key that has become a field belongs to the field: `extra` cannot override it.
    return members | {plain(key): plain(extra[key]) for key in extra if key not in members}
