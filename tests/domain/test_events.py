"""Events: the table of types, and frames in and out."""

import json

import pytest

from kedge.domain import events
from kedge.domain.errors import InvalidInput
from kedge.domain.events import EVENTS, EventProperties, UnknownEvent, frame, read_frame
from kedge.domain.permissions import PermissionRequest
from kedge.domain.wire import encode

NOT_STORED = {
    "message.part.delta",
    "server.connected",
    "server.heartbeat",
    "server.resync",
    "server.instance.disposed",
    "global.disposed",
}


def test_every_class_is_in_the_table() -> None:
    """An event class that is not in the table could be written but never read."""
    classes = {
        each
        for each in vars(events).values()
        if isinstance(each, type) and issubclass(each, EventProperties)
    }
    assert set(EVENTS.values()) == classes - {EventProperties}
    assert all(kind.type == name for name, kind in EVENTS.items())


def test_what_is_stored() -> None:
    """Facts are stored; progress and news about the connection are not."""
    assert {name for name, kind in EVENTS.items() if not kind.stored} == NOT_STORED


def test_frame() -> None:
    """A frame has an id, a type and properties."""
    text = frame("evt_1", events.SessionIdle(sessionID="ses_1"))
    assert text == '{"id":"evt_1","type":"session.idle","properties":{"sessionID":"ses_1"}}'
    assert read_frame(text) == ("evt_1", events.SessionIdle(sessionID="ses_1"))
    assert read_frame(text.encode()) == read_frame(text)


def test_frame_of_encoded_properties() -> None:
    """A frame made from stored text is the same as one made from the value."""
    event = events.SessionIdle(sessionID="ses_1", extra={"more": '"\n'})
    assert events.frame_text("evt_1", event.type, encode(event)) == frame("evt_1", event)


def test_frame_without_properties() -> None:
    """An event that carries nothing has empty properties, not none."""
    text = frame("evt_1", events.ServerHeartbeat())
    assert text == '{"id":"evt_1","type":"server.heartbeat","properties":{}}'


def test_unknown_type_survives() -> None:
    """An event type of a newer server is kept as it is."""
    text = '{"id":"evt_1","type":"plugin.added","properties":{"id":"x","n":null}}'
    id, event = read_frame(text)
    assert event == UnknownEvent(type="plugin.added", properties={"id": "x", "n": None})
    assert json.loads(frame(id, event)) == json.loads(text)


def test_unknown_keys_of_properties_survive() -> None:
    """Keys of a newer server in a known event are kept, those beside its properties are not."""
    text = '{"id":"e","type":"session.idle","new":1,"properties":{"sessionID":"s","more":[2]}}'
    id, event = read_frame(text)
    assert json.loads(frame(id, event)) == {
        "id": "e",
        "type": "session.idle",
        "properties": {"sessionID": "s", "more": [2]},
    }


@pytest.mark.parametrize("character", ["\U0010ffff", "\ud800", "\0"])
def test_odd_characters_in_frames(character: str) -> None:
    """Frames with the oddest characters can be written and read."""
    delta = events.PartDelta(
        sessionID="s", messageID="m", partID="p", field="text", delta=character
    )
    _, event = read_frame(frame("e", delta))
    assert isinstance(event, events.PartDelta)
    assert event.delta == character.replace("\ud800", "\ufffd")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "expected an object"),
        ('{"id":"e","properties":{}}', "type: missing"),
        ('{"type":"x","properties":{}}', "id: missing"),
        ('{"id":"e","type":"session.idle"}', "properties: missing"),
        ('{"id":"e","type":"x","properties":[]}', "properties: expected an object; found an array"),
        ('{"id":"e","type":"session.idle","properties":{}}', r"^properties.sessionID: missing"),
    ],
)
def test_broken_frames_are_refused(text: str, problem: str) -> None:
    """A frame that is not one is refused with the place of the problem."""
    with pytest.raises(InvalidInput, match=problem):
        read_frame(text)


def test_asked_event_is_the_request() -> None:
    """Whoever reads that a permission was asked for has the request in hand."""
    text = (
        '{"id":"per_1","sessionID":"ses_1","permission":"bash","patterns":["ls"],'
        '"metadata":{},"always":["ls *"],"tool":{"messageID":"msg_1","callID":"c"}}'
    )
    _, event = read_frame(f'{{"id":"evt_1","type":"permission.asked","properties":{text}}}')
    assert isinstance(event, PermissionRequest)
    assert event.always == ["ls *"]
