"""What all values have in common."""

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.domain import events, messages, parts, sessions
from kedge.domain import sessions as status
from kedge.domain import sessions as todos
from kedge.domain.errors import InvalidInput
from kedge.domain.projects import Project
from kedge.domain.values import EXTRA_KEY, Value
from kedge.domain.wire import convert, decode, encode
from tests.domain.strategies import Json, json_of

ROOTS: list[object] = [
    sessions.SessionInfo,
    Project,
    messages.Message,
    messages.MessageWithParts,
    messages.Answer,
    parts.Part,
    status.SessionStatus,
    dict[str, status.SessionStatus],
    todos.Todo,
    *events.EVENTS.values(),
]


def _subclasses(kind: type[Value]) -> Iterator[type[Value]]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


VALUES = sorted(set(_subclasses(Value)), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", VALUES)
def test_frozen_and_keyword_only(kind: type[Value]) -> None:
    """Every value is frozen, keyword-only and keeps unknown keys."""
    config = kind.__struct_config__
    assert config.frozen
    assert config.forbid_unknown_fields
    assert config.omit_defaults
    with pytest.raises(TypeError, match="positional"):
        kind("x")  # type: ignore[arg-type, call-arg]  # the error is the point


@pytest.mark.parametrize("kind", VALUES)
def test_optional_fields_are_none(kind: type[Value]) -> None:
    """What is absent is None and never null on the wire; only lists and objects may be empty."""
    optional = [f for f in msgspec.structs.fields(kind) if not f.required]
    assert all(f.default is None or f.default_factory is dict for f in optional)


@pytest.mark.parametrize("type_", ROOTS)
@given(st.data())
def test_round_trip(type_: object, data: st.DataObject) -> None:
    """JSON of any value goes out as it came in."""
    obj = data.draw(json_of(type_, unknown=False))
    value = decode(encode(obj), type_)
    assert decode(encode(value), dict) == obj
    assert convert(obj, type_) == value


@pytest.mark.parametrize("type_", ROOTS)
@given(st.data())
def test_unknown_keys_survive(type_: object, data: st.DataObject) -> None:
    """Unknown keys at any level of any value survive, however the JSON text escapes them."""
    obj = data.draw(json_of(type_, unknown=True))
    text = data.draw(st.sampled_from([encode, _ascii]))(obj)
    value = decode(text, type_)
    assert decode(encode(value), dict) == obj
    assert decode(encode(value), type_) == value


def _ascii(obj: Json) -> str:
    # All that is not ASCII is escaped, the key of `extra` too.
    return "".join(
        c if c.isascii() else "".join(f"\\u{unit:04X}" for unit in _utf16(c)) for c in encode(obj)
    )


def _utf16(character: str) -> list[int]:
    raw = character.encode("utf-16-be")
    return [int.from_bytes(raw[i : i + 2]) for i in range(0, len(raw), 2)]


def test_unknown_keys_in_a_mapping_of_values() -> None:
    """Values that are the members of a plain object keep their unknown keys too."""
    sent = {"ses_1": {"type": "busy", "since": 1}, "ses_2": {"type": "idle"}}
    statuses: dict[str, status.SessionStatus] = convert(sent, dict[str, status.SessionStatus])
    assert statuses == {"ses_1": status.Busy(extra={"since": 1}), "ses_2": status.Idle()}
    assert decode(encode(statuses), dict) == sent


def test_unknown_key_is_in_extra() -> None:
    """An unknown key can be read from `extra`, and a value without any has none."""
    raw = '{"content": "a", "status": "b", "priority": "c", "id": "1"}'
    assert decode(raw, todos.Todo).extra == {"id": "1"}
    assert decode(raw.replace(', "id": "1"', ""), todos.Todo).extra is None


def test_extra_key_from_outside_is_unknown() -> None:
    """A client cannot reach `extra`, and through it the fields, by sending its key."""
    sent = {"content": "a", "status": "b", "priority": "c", EXTRA_KEY: {"content": "z"}}
    todo = convert(sent, todos.Todo)
    assert todo.extra == {EXTRA_KEY: {"content": "z"}}
    assert todo.content == "a"
    assert decode(encode(todo), dict) == sent


def test_extra_key_from_outside_inside_free_data() -> None:
    """The key of `extra` is an ordinary key in metadata and other free data."""
    sent = {"name": "X", "data": {EXTRA_KEY: {"message": "z"}, "message": "a"}}
    event = convert({"error": sent}, events.SessionErrored)
    assert event.error is not None
    assert event.error.data == sent["data"]
    assert decode(encode(event), dict) == {"error": sent}


def test_field_wins_over_extra() -> None:
    """A key in `extra` that is a field of the value does not replace the field."""
    todo = todos.Todo(content="a", status="b", priority="c", extra={"content": "z", "more": 1})
    assert decode(encode(todo), dict)["content"] == "a"
    assert decode(encode(todo), dict)["more"] == 1


def test_wrong_type_beside_unknown_keys() -> None:
    """A wrong type is reported as such also where unknown keys come first."""
    with pytest.raises(InvalidInput, match=r"^status: expected a string; found 2$"):
        decode('{"zzz": 1, "content": "a", "status": 2, "priority": "c"}', todos.Todo)


def test_explicit_null_is_absent() -> None:
    """A client's null for an optional field means absent."""
    event = decode('{"branch": null}', events.VcsBranchUpdated)
    assert encode(event) == "{}"
