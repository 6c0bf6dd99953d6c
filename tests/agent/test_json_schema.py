"""Values against the schemas of clients, and schemas that are made to take for ever."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.agent import json_schema
from kedge.agent.json_schema import MOST_BYTES, check_schema, mismatch
from kedge.domain.errors import InvalidInput

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0, -0.0, 2.5]),
    st.sampled_from(["", "a", "ab", "b1"]),
)
_NAMES = st.sampled_from(["a", "b", "ab"])
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)
_KINDS = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    small = st.integers(0, 3)
    keywords = {
        "type": _KINDS | st.lists(_KINDS, min_size=1, max_size=3, unique=True),
        "enum": st.lists(_VALUES, min_size=1, max_size=3),
        "const": _VALUES,
        "minimum": st.integers(-2, 2),
        "exclusiveMaximum": st.integers(-2, 2),
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "minLength": small,
        "maxLength": small,
        "pattern": st.sampled_from(["^a", "b$", "[0-9]+"]),
        "items": inner,
        "prefixItems": several,
        "minItems": small,
        "maxItems": small,
        "uniqueItems": st.booleans(),
        "contains": inner,
        "properties": st.dictionaries(_NAMES, inner, max_size=3),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=2),
        "additionalProperties": st.booleans() | inner,
        "propertyNames": st.sampled_from([{"maxLength": 1}, {"pattern": "a"}, True]),
        "required": st.lists(_NAMES, max_size=2, unique=True),
        "dependentRequired": st.dictionaries(_NAMES, st.lists(_NAMES, max_size=1), max_size=1),
        "minProperties": small,
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
    }
    one = st.sampled_from(sorted(keywords)).flatmap(
        lambda key: st.tuples(st.just(key), keywords[key])
    )
    return st.lists(one, max_size=3).map(dict)


_SCHEMAS = st.recursive(st.booleans() | _schemas(st.booleans()), _schemas, max_leaves=4)


@given(_VALUES, _schemas(_SCHEMAS))
def test_every_keyword_means_what_the_standard_says(value: object, schema: dict[str, Any]) -> None:
    """For random schemas and values the result is that of a validator that others keep."""
    judged = jsonschema_rs.Draft202012Validator(schema).is_valid(value)
    assert (mismatch(value, schema) is None) is judged


@pytest.mark.parametrize(
    ("value", "schema", "told"),
    [
        ({}, {"required": ["a"]}, "the value lacks a"),
        (
            {"a": "x"},
            {"properties": {"a": {"type": "integer"}}},
            'the value.a must be integer, not "x"',
        ),
        (
            {"a": [1, True]},
            {"properties": {"a": {"items": {"type": "number"}}}},
            "the value.a[1] must be number, not true",
        ),
        (
            {"b": 1},
            {"properties": {"a": {}}, "additionalProperties": False},
            "the value.b is not in the schema, which has: a",
        ),
        ({"a": "z"}, {"properties": {"a": {"enum": ["x", 1]}}}, 'must be one of "x", 1, not "z"'),
    ],
)
def test_the_model_is_told_where_and_what(value: object, schema: dict[str, Any], told: str) -> None:
    """The words name the place and what was expected."""
    assert told in (mismatch(value, schema) or "")


def test_references_lead_into_the_document() -> None:
    """Definitions of both names, with escaped names, and a schema that holds itself."""
    schema = {
        "$defs": {"a/b": {"type": "integer"}},
        "definitions": {"tree": {"properties": {"left": {"$ref": "#/definitions/tree"}}}},
        "properties": {"n": {"$ref": "#/$defs/a~1b"}, "tree": {"$ref": "#/definitions/tree"}},
    }
    assert mismatch({"n": 1, "tree": {"left": {"left": {}}}}, schema) is None
    assert mismatch({"n": "1"}, schema) is not None
    assert mismatch({"n": 1}, {"$ref": "https://example.com/schema"}) is None


_DEEP: dict[str, Any] = {}
for _ in range(1000):
    _DEEP = {"allOf": [_DEEP]}
_WIDE = {"anyOf": [{"$ref": "#"}] * 50, "not": {"$ref": "#"}}
_LISTED = {"allOf": [{"required": ["a"] * 1000}] * 100}
_DOUBLE = {
    "$defs": {
        **{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)},
        "d60": {},
    },
    "$ref": "#/$defs/d0",
}


@pytest.mark.parametrize(
    "schema",
    [{"$ref": "#"}, _DEEP, _WIDE, _DOUBLE, _LISTED],
    ids=["itself", "deep", "wide", "double", "listed"],
)
def test_a_hostile_schema_ends(schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemas that would take for ever, or the whole stack, are given up."""
    monkeypatch.setattr(json_schema, "MOST_STEPS", 5_000)
    assert "too complex" in (mismatch({"a": 1}, schema) or "")


@pytest.mark.parametrize(
    "pattern",
    [r"^(a+)+$", r"(x+x+)+y", r"(?=a)(?!b)a", r"(a)\1", "(", "a{5000}", "((a{99}){99}){99}"],
)
def test_a_hostile_pattern_ends(pattern: str) -> None:
    """No expression backtracks; one that would have to is not checked."""
    mismatch({"a": "a" * 50_000 + "!"}, {"properties": {"a": {"pattern": pattern}}})


def test_odd_schemas_raise_nothing() -> None:
    """A keyword with a value that it cannot have says nothing."""
    odd: list[Any] = [None, 1, "x", [], [[]], {"a": 1}, True, -1.5]
    keys = [
        *("type", "enum", "minimum", "multipleOf", "maxLength", "pattern", "items", "minItems"),
        *("prefixItems", "properties", "patternProperties", "required", "allOf", "anyOf", "not"),
        *("dependentRequired", "dependentSchemas", "contains", "minContains", "$ref", "oneOf"),
        *("propertyNames", "if", "then", "additionalProperties", "const", "uniqueItems"),
    ]  # fmt: skip
    for key in keys:
        for value in odd:
            for given_value in odd:
                mismatch({"a": given_value}, {key: value})
                mismatch({"a": given_value}, {"properties": {"a": {key: value, "contains": 1}}})


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "array"}, 'must be "object", not "array"'),
        ({"type": ["object", "null"]}, 'must be "object"'),
        ({"description": "x" * MOST_BYTES}, "larger than 256 KiB"),
    ],
)
def test_what_no_tool_can_have_is_refused(schema: dict[str, Any], told: str) -> None:
    """Models answer with objects, and a schema is sent with every request."""
    with pytest.raises(InvalidInput, match=told):
        check_schema(schema, "format.schema")
