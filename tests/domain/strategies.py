"""Random JSON for any value of the domain, made from its type; what must hold is in the tests."""

from typing import Any, TypeAlias

from hypothesis import strategies as st
from msgspec import inspect

from kedge.domain.values import EXTRA_KEY

Json: TypeAlias = Any

# Text as the wire has it: any character, NUL too, but no surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)

json_values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | integers | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
unknown_keys = st.dictionaries(texts | st.just(EXTRA_KEY), json_values, max_size=2)


def json_of(type: object, *, unknown: bool) -> st.SearchStrategy[Json]:
    """JSON that decodes to the type; with unknown keys in every object that has known ones."""
    return _of(inspect.type_info(type), unknown)


def _of(shape: inspect.Type, unknown: bool) -> st.SearchStrategy[Json]:
    match shape:
        case inspect.StructType():
            return _struct(shape, unknown)
        case inspect.UnionType(types=types):
            present = [each for each in types if not isinstance(each, inspect.NoneType)]
            return st.one_of([_of(each, unknown) for each in present])
        case inspect.ListType(item_type=item):
            return st.lists(_of(item, unknown), max_size=2)
        case inspect.DictType(value_type=item):
            return st.dictionaries(texts, _of(item, unknown), max_size=2)
        case inspect.LiteralType(values=values):
            return st.sampled_from(list(values))
        case inspect.AnyType():
            return json_values.filter(lambda each: each is not None)
        case _:
            return _SCALARS[type(shape)]


_SCALARS: dict[type[inspect.Type], st.SearchStrategy[Json]] = {
    inspect.StrType: texts,
    inspect.IntType: integers,
    inspect.FloatType: floats,
    inspect.BoolType: st.booleans(),
}


def _struct(shape: inspect.StructType, unknown: bool) -> st.SearchStrategy[Json]:
    fields = {f.encode_name: f for f in shape.fields if f.encode_name != EXTRA_KEY}
    known = st.fixed_dictionaries(
        {name: _of(f.type, unknown) for name, f in fields.items() if f.required},
        optional={name: _of(f.type, unknown) for name, f in fields.items() if not f.required},
    )
    tag = {} if shape.tag_field is None else {shape.tag_field: shape.tag}
    names = {*fields, *tag}
    others = unknown_keys.map(lambda keys: {k: v for k, v in keys.items() if k not in names})
    return st.tuples(known, others if unknown else st.just({})).map(
        lambda both: {**both[1], **tag, **both[0]}
    )
