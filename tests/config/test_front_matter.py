"""Settings at the beginning of Markdown files: what is read of YAML, and what is refused."""

import importlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.config.front_matter import FrontMatterError, parts

yaml: Any = importlib.import_module("yaml")


def settings(text: str) -> dict[str, Any]:
    """The settings in a text."""
    return parts(f"---\n{text}\n---\nbody")[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no settings\n", ({}, "no settings")),
        ("", ({}, "")),
        ("---\n---\n\n x \n", ({}, "x")),
        ("\ufeff---\r\na: 1\r\n---\r\nb\r\n\r\nc\r\n", ({"a": 1}, "b\n\nc")),
        ("---\na: b\n---", ({"a": "b"}, "")),
        ("----\na: b\n", ({}, "----\na: b")),
        ("x\n---\na: b\n---\n", ({}, "x\n---\na: b\n---")),
    ],
)
def test_settings_and_text(text: str, expected: tuple[dict[str, Any], str]) -> None:
    """The settings stand between fences at the very beginning, and need not be there."""
    assert parts(text) == expected


SAME = [
    "a: b",
    "a: 1\nb: 1.5\nc: true\nd: null\ne: ~\nf:\ng: -3",
    "description: Reviews code  # not that\nmode: subagent",
    "a: 'it''s'\nb: \"x\\ny\"\n'c d': e\n\"git *\": allow",
    'permission:\n  edit: deny\n  bash:\n    "*": ask\n    git status*: allow\n',
    "tools:\n  write: false\n  edit: false\nmodel: a/b",
    "a:\n  - x\n  - y: 1\n    z: 2\n  - - p\n    - q\nb: c",
    "a:\n- x\n- y\nb: c",
    "a: [x, 'y, z', 3, [true]]\nb: {c: d, \"e\": [f]}\nd: []\ne: {}",
    "a: |\n  one\n\n    two\n  three\nb: c",
    "a: |-\n  one\n  two\n\n\nb: |+\n  x\n\nc: y",
    "a: >\n  one\n  two\n\n  three\n\n\n  four\n    five\n    six\n  seven\nb: >-\n  x\n  y",
    "a: one\n  two\n\n  three\nb: c",
    "a: \"one\n  two\"\nb: 'three\n\n  four'",
    "# first\na: b\n\n  # between\nc: d # last",
    "a: http://x/y#z\nb: 10:30",
    "a: |2\n    x\n   y",
    "a:\n\n  b: c\n# x\nd: e",
]


@pytest.mark.parametrize("text", SAME)
def test_the_same_as_yaml(text: str) -> None:
    """As a full reader understands it."""
    expected = yaml.safe_load(f"{text}\n")
    if "10:30" in text:
        expected["b"] = "10:30"  # a number to base 60, in an older version of YAML
    assert settings(text) == expected


def test_a_colon_in_a_plain_text_is_text() -> None:
    """YAML refuses it, and people write it all the time."""
    assert settings("description: Use when: it fails\nb: c") == {
        "description": "Use when: it fails",
        "b": "c",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &x b", "line 2: anchors"),
        ("a: b\nc: *x", "line 3: aliases"),
        ("a: !!python/object:os.system x", "line 2: tags"),
        ("*: deny", "quotes"),
        ("a: b\na: c", "line 3: the key 'a' is there twice"),
        ("just text", "line 2: expected `key: value`"),
        ("- a\n- b", "`key: value`"),
        ("a: b\n  c: d\n e: f\nx", "line 5: expected"),
        ("a: b\n\tc: d", "tabs"),
        ("a: [x, y", "bracket"),
        ("a: [x y: z", "bracket"),
        ("a: {x}", "key: value"),
        ("a: [x] y", "behind"),
        ("a: 'x", "line 2: the quotation mark"),
        ("a: 'x' y", "behind"),
        ('a: "\\q"', "escape"),
        ("a:\n    b: c\n  d: e", "line 4"),
        ("a: " + "[" * 50, "nested"),
        ("a:\n" + "".join(" " * n + "- \n" for n in range(1, 60)), "nested"),
        ("  a: b\nc: d", "line 3"),
        ("a: 'x" + "\n b" * 200, "line 2: the quotation mark"),
        ("#\n" * 3000, "more than 2000 lines"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    """With the line and what to do about it."""
    with pytest.raises(FrontMatterError) as caught:
        settings(text)
    assert why in str(caught.value)


def test_settings_that_do_not_end() -> None:
    """A text may begin with a line, but not with a fence that is never closed."""
    with pytest.raises(FrontMatterError, match="a line with --- is missing"):
        parts("---\na: b\n")


NAMES = (
    st.text(alphabet="abc _-", min_size=1, max_size=6)
    .map(str.strip)
    .filter(lambda name: name[:1].isalpha())
)
TEXTS = st.text(max_size=20)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | TEXTS, inner, max_size=3),
    max_leaves=8,
)


def written(value: object, indent: int) -> str:
    """A value as YAML by indentation."""
    pad = " " * indent
    if isinstance(value, dict) and value:
        lines = (f"\n{pad}{json.dumps(k)}:{written(v, indent + 2)}" for k, v in value.items())
        return "".join(lines)
    if isinstance(value, list) and value:
        return "".join(f"\n{pad}-{written(each, indent + 2)}" for each in value)
    return f" {json.dumps(value)}"


@given(st.dictionaries(NAMES | TEXTS, VALUES, min_size=1, max_size=4))
def test_what_is_written_is_read(value: dict[str, Any]) -> None:
    """By indentation, and in brackets."""
    assert settings(written(value, 0)) == value
    assert settings(f"a: {json.dumps(value)}") == {"a": value}


LINES = st.lists(
    st.text(alphabet="ab:-#'\" |>[]{},*&!\t0", max_size=12).map(str.rstrip), max_size=6
).map("\n".join)


@given(LINES)
def test_anything_is_read_or_refused(text: str) -> None:
    """Never another error; and what both readers accept means the same, except for colons."""
    try:
        found = settings(text)
    except FrontMatterError:
        return
    try:
        expected = yaml.safe_load(f"{text}\n")
    except yaml.YAMLError:
        return
    if isinstance(expected, dict) and has_texts_as_keys(expected):
        assert found == expected


def has_texts_as_keys(value: object) -> bool:
    """Whether all keys are texts for YAML too."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and has_texts_as_keys(value[key]) for key in value)
    return not isinstance(value, list) or all(map(has_texts_as_keys, value))
