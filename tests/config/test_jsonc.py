"""JSON with comments: what is read, where it stands, and what is refused."""

import json
import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kedge.config.jsonc import MAX_DEPTH, SyntaxProblem, line_of, parse

NUMBERS = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab/*\"'\\,"), inner),
    max_leaves=12,
)
NOISE = ["", " ", "\n", "\t\r\n", '// x " { [ , ]\n', '/* " */', "/* // \n * ** */", "/**/"]


def noisy(value: Any, chance: random.Random) -> str:  # noqa: ANN401 - any JSON
    """The value as JSON, with comments and trailing commas wherever they may be."""

    def gap() -> str:
        return "".join(chance.choices(NOISE, k=2))

    if isinstance(value, dict):
        items = [
            f"{gap()}{json.dumps(key)}{gap()}:{noisy(item, chance)}" for key, item in value.items()
        ]
    elif isinstance(value, list):
        items = [noisy(item, chance) for item in value]
    else:
        return f"{gap()}{json.dumps(value, ensure_ascii=chance.random() < 0.5)}{gap()}"
    tail = "," if items and chance.random() < 0.5 else ""
    marks = "{}" if isinstance(value, dict) else "[]"
    return f"{gap()}{marks[0]}{gap()}{','.join(items)}{tail}{gap()}{marks[1]}{gap()}"


@given(VALUES, st.randoms(use_true_random=False))
def test_comments_and_trailing_commas_change_nothing(value: object, chance: random.Random) -> None:
    """A text full of them says what it says without them."""
    assert parse(noisy(value, chance)) == value


@given(VALUES)
def test_plain_json_is_read_as_json_is(value: object) -> None:
    """Whatever the standard library writes is read as it reads it."""
    text = json.dumps(value, indent=1)
    assert parse(text) == json.loads(text)


@given(st.text('{}[]",:/*\\ \n10.e-truefalsn\ufeff', max_size=40))
@example("[1,,]")
@example('{"a":1 "b":2}')
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text does anything else, and what is JSON by itself is never refused."""
    try:
        plain, is_json = json.loads(text), True
    except json.JSONDecodeError:
        plain, is_json = None, False
    try:
        read = parse(text)
    except SyntaxProblem as problem:
        found = problem
    else:
        # What this reads beyond JSON is comments, trailing commas, and nothing at all.
        assert (read == plain) if is_json else read is None or set("/,\ufeff") & set(text)
        return
    assert 1 <= found.line <= text.count("\n") + 1
    assert not is_json or "number" in found.why


@pytest.mark.parametrize("text", ["", " \n", "// only a remark", "/* a */ \ufeff"[:7], "\ufeff"])
def test_nothing_is_none(text: str) -> None:
    """A file with nothing but blanks and comments says nothing."""
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ('{\n"a": 1\n"b": 2}', 3, 'expected "," or "}"'),
        ('{\n\n"a" 1}', 3, 'expected ":"'),
        ("{'a': 1}", 1, "expected a key in double quotes"),
        ("{a: 1}", 1, "expected a key in double quotes"),
        ('{"a": }', 1, "expected a value"),
        ('{"a": [1,\n2', 2, "the file ends too early"),
        ('{"a": "x\ny"}', 1, "a string is not closed"),
        ('{"a": "x', 1, "a string is not closed"),
        ('\n{"a": "\\q"}', 2, "holds what it may not"),
        ("{} {}", 1, "something after the end"),
        ("{}\n/* x", 2, "a comment has no end"),
        ("[01]", 1, 'expected "," or "]"'),
        ("[NaN]", 1, "expected a value"),
        ("[1e999]", 1, "the number is too large"),
        ("[" + "1" * 5000 + "]", 1, "the number is too long"),
        ("[" * 100_000, 1, f"nested more than {MAX_DEPTH}"),
        ('{"a":' * 100_000, 1, f"nested more than {MAX_DEPTH}"),
    ],
)
def test_mistakes_are_named(text: str, line: int, why: str) -> None:
    """A mistake is told with its line and in words, and never with what else is in the file."""
    with pytest.raises(SyntaxProblem) as caught:
        parse(text)
    assert caught.value.line == line
    assert why in caught.value.why


def test_lines_of_keys() -> None:
    """A key is found, also in a list; what is not there is where it would be."""
    text = '{\n // x\n"a": {"b":\n [1,\n 2]},\n"c": 3}'
    assert line_of(text, ("a",)) == 3
    assert line_of(text, ("a", "b", 0)) == 4
    assert line_of(text, ("a", "b", 1)) == 5
    assert line_of(text, ("a", "none", "x")) == 3
    assert line_of(text, ("c",)) == 6
    assert line_of(text, ()) == 1


def test_a_key_given_twice_counts_once() -> None:
    """The last value of a key counts."""
    assert parse('{"a": 1, "b": 2, "a": 3}') == {"a": 3, "b": 2}


def test_lone_surrogates_become_marks() -> None:
    """What no text can hold does not get in."""
    assert parse('"\\ud800x"') == "\ufffdx"


def test_numbers_keep_their_kind() -> None:
    """A whole number is one however it is written."""
    assert [type(each) for each in parse("[1, 1e3, 200000.0, 0.5]")] == [int, int, int, float]
