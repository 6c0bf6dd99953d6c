"""Where JSON does not fit a type is said in words that people use."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from kedge.domain.mismatches import mismatch, path
from kedge.domain.values import shape_of


class Cat(msgspec.Struct, tag_field="kind", tag="cat"):
    lives: Annotated[int, Meta(ge=0, le=9)]


class Dog(msgspec.Struct, tag_field="kind", tag="dog"):
    name: Annotated[str, Meta(min_length=1)]


class Home(msgspec.Struct, kw_only=True):
    pets: list[Cat | Dog]
    state: Literal["open", "shut"] | None = None
    only: Literal["this"] | None = None
    height: float | int | None = None
    rooms: dict[str, bool] | None = None
    rest: dict[str, Any] | None = None
    address: str | dict[str, str] | None = None
    level: Annotated[int, Meta(le=3)] = 0


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        ([], "expected an object; found an array"),
        ({}, "pets: missing; expected an array"),
        ({"pets": None}, "pets: expected an array; found null"),
        ({"pets": [{}]}, "pets[0].kind: missing; expected one of cat, dog"),
        ({"pets": [{"kind": []}]}, "pets[0].kind: expected one of cat, dog; found an array"),
        ({"pets": [{"kind": "cat"}]}, "pets[0].lives: missing; expected a whole number (0 to 9)"),
        (
            {"pets": [{"kind": "cat", "lives": 9}, {"kind": "dog", "name": ""}]},
            "pets[1].name: expected a string (length at least 1); found ''",
        ),
        ({"pets": [], "state": "ajar"}, "state: expected one of open, shut; found 'ajar'"),
        ({"pets": [], "only": 1.5}, "only: expected 'this'; found 1.5"),
        ({"pets": [], "height": "x"}, "height: expected a number; found 'x'"),
        (
            {"pets": [], "rooms": {"the hall": 1}},
            "rooms['the hall']: expected true or false; found 1",
        ),
        ({"pets": [], "rest": [{}]}, "rest: expected an object; found an array"),
        ({"pets": [], "address": 1}, "address: expected a string or an object; found 1"),
        ({"pets": [], "address": {"a": True}}, "address.a: expected a string; found true"),
        ({"pets": [], "level": 4}, "level: expected a whole number (at most 3); found 4"),
    ],
)
def test_the_first_place_that_does_not_fit(obj: object, words: str) -> None:
    """It is named with what was expected and what was found, once the decoder has refused."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(obj, Home)
    assert str(mismatch(obj, shape_of(Home))) == words


def test_what_is_said_in_a_query_is_text() -> None:
    """A number in digits fits; a word does not."""
    query = {"lives": "9"}
    assert msgspec.convert(query, Cat, strict=False) == Cat(lives=9)
    found = mismatch({"lives": "ten"}, shape_of(Cat), strict=False)
    assert str(found) == "lives: expected a whole number (0 to 9); found 'ten'"


def test_a_kind_that_stands_alone_needs_no_tag() -> None:
    """As the decoder has it."""
    assert msgspec.convert({"name": "Rex"}, Dog) == Dog(name="Rex")
    assert str(mismatch({}, shape_of(Dog))).startswith("name: missing")
    assert str(mismatch({"kind": "cat"}, shape_of(Dog))) == "kind: expected 'dog'; found 'cat'"


def test_values_are_shown_short() -> None:
    """A message does not repeat megabytes, nor characters that nobody sees."""
    shape = shape_of(Home)
    words = str(mismatch({"pets": "x" * 1_000_000}, shape))
    assert words == f"pets: expected an array; found '{'x' * 60}…'"
    assert str(mismatch({"pets": "\x1b[31m"}, shape)).endswith(r"found '\x1b[31m'")
    assert len(str(mismatch({"pets": [], "rooms": {"k" * 9999: 1}}, shape))) < 150


def test_a_path_reads_as_people_write_it() -> None:
    """Keys that are no names stand in quotes."""
    assert path(("parts", 0, "text")) == "parts[0].text"
    assert path((0, "a b", "", "x-y", "é")) == "[0]['a b'][''].x-y['é']"
