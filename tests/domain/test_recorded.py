"""The values against what the real server sent, recorded once; random ones are in `test_values`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kedge.domain.events import EVENTS, UnknownEvent, frame, read_frame
from kedge.domain.messages import Message
from kedge.domain.parts import Part, PartBase, ToolPart
from kedge.domain.sessions import SessionInfo
from kedge.domain.values import Value
from kedge.domain.wire import decode, encode

_FOLDER = Path(__file__).parent / "recorded"


def _lines(name: str) -> list[str]:
    return (_FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()


def _recorded(name: str) -> pytest.MarkDecorator:
    lines = [pytest.param(line, id=f"{name}:{n}") for n, line in enumerate(_lines(name), start=1)]
    return pytest.mark.parametrize("line", lines)


def _values_in(value: object) -> Iterator[Value]:
    if isinstance(value, Value):
        yield value
        for name in value.__struct_fields__:
            yield from _values_in(getattr(value, name))
    elif isinstance(value, list):
        for each in value:
            yield from _values_in(each)


def _unknown_keys(value: Value) -> list[tuple[str, str]]:
    return [(type(v).__name__, key) for v in _values_in(value) for key in v.extra or {}]


@_recorded("sessions")
def test_session(line: str) -> None:
    """A recorded session is understood in full and goes out as it came."""
    session = decode(line, SessionInfo)
    assert json.loads(encode(session)) == json.loads(line)
    assert _unknown_keys(session) == []


@_recorded("listed_sessions")
def test_session_with_project(line: str) -> None:
    """The project that one route adds to its sessions is not a field of theirs, but survives."""
    session = decode(line, SessionInfo)
    assert json.loads(encode(session)) == json.loads(line)
    assert _unknown_keys(session) == [("SessionInfo", "project")]


@_recorded("messages")
def test_message(line: str) -> None:
    """A recorded message has the class of its role, is understood in full, goes out the same."""
    message: Message = decode(line, Message)
    assert message.__struct_config__.tag == json.loads(line)["role"]
    assert json.loads(encode(message)) == json.loads(line)
    assert _unknown_keys(message) == []


@_recorded("parts")
def test_part(line: str) -> None:
    """A recorded part has the class of its type, is understood in full, and goes out the same."""
    part: Part = decode(line, Part)
    recorded = json.loads(line)
    assert isinstance(part, PartBase)
    assert part.__struct_config__.tag == recorded["type"]
    if isinstance(part, ToolPart):
        assert part.state.__struct_config__.tag == recorded["state"]["status"]
    assert json.loads(encode(part)) == recorded
    assert _unknown_keys(part) == []


@_recorded("events")
def test_event(line: str) -> None:
    """A recorded event has the class of its type, is understood in full, and goes out the same."""
    id, properties = read_frame(line)
    recorded = json.loads(line)
    assert id == recorded["id"]
    assert type(properties) is EVENTS[recorded["type"]]
    assert json.loads(frame(id, properties)) == recorded
    assert _unknown_keys(properties) == []


@_recorded("sync")
def test_sync_frame(line: str) -> None:
    """A frame of an unknown type that has other keys than properties loses none of them."""
    id, properties = read_frame(line)
    assert isinstance(properties, UnknownEvent)
    recorded: dict[str, Any] = json.loads(line)
    assert json.loads(frame(id, properties)) == {**recorded, "properties": {}}


def test_recordings_cover_the_wire() -> None:
    """The recordings hold every tool state, both roles and the events that clients depend on."""
    parts = [json.loads(line) for line in _lines("parts")]
    states = {part["state"]["status"] for part in parts if part["type"] == "tool"}
    assert states == {"pending", "running", "completed", "error"}
    assert {json.loads(line)["role"] for line in _lines("messages")} == {"user", "assistant"}
    assert len({json.loads(line)["type"] for line in _lines("events")}) == 23
