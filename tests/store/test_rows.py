"""Values become columns and columns become the same JSON again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.domain import wire
from kedge.domain.errors import TooLarge
from kedge.domain.messages import Message
from kedge.domain.parts import Part
from kedge.store.rows import (
    check_size,
    join_message,
    join_part,
    part_type,
    split_message,
    split_part,
)
from kedge.testing.store.parts import KINDS

IDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)
UNKNOWN = st.dictionaries(
    st.sampled_from(["new", "parentID", "é", 'quo"te', "text2"]),
    st.none() | st.integers(-9, 9) | st.text(max_size=5) | st.lists(st.booleans(), max_size=2),
    max_size=3,
)
USER = {
    "role": "user",
    "time": {"created": 1},
    "agent": "build",
    "model": {"providerID": "p", "modelID": "m"},
}
ASSISTANT = {
    "role": "assistant",
    "time": {"created": 1},
    "parentID": 'msg_"\\',
    "modelID": "m",
    "providerID": "p",
    "mode": "build",
    "agent": "build",
    "path": {"cwd": "/", "root": "/"},
    "cost": 0,
    "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
}


@given(kind=st.sampled_from(KINDS), unknown=UNKNOWN, id=IDS, session=IDS, message=IDS)
def test_a_part_is_joined_from_its_columns(
    kind: dict[str, Any], unknown: dict[str, Any], id: str, session: str, message: str
) -> None:
    """Every kind, any id and unknown keys give the same part, with nothing of the ids in `data`."""
    home = {"id": id, "sessionID": session, "messageID": message}
    part: Part = wire.convert({**unknown, **kind, **home}, Part)
    data = split_part(part)
    assert not wire.decode(data, dict[str, Any]).keys() & {"type", *home}
    joined = join_part(session, message, id, part_type(part), data)
    assert wire.decode(joined, Part) == part
    assert wire.decode(joined, dict[str, Any]) == wire.decode(wire.encode(part), dict[str, Any])


@given(body=st.sampled_from([USER, ASSISTANT]), unknown=UNKNOWN, id=IDS, session=IDS)
def test_a_message_is_joined_from_its_columns(
    body: dict[str, Any], unknown: dict[str, Any], id: str, session: str
) -> None:
    """Both roles, any id and unknown keys, even one that is called like the other role's."""
    message: Message = wire.convert({**unknown, **body, "id": id, "sessionID": session}, Message)
    role, parent, data = split_message(message)
    assert not wire.decode(data, dict[str, Any]).keys() & {"role", "id", "sessionID"}
    assert (role, parent) == (body["role"], body.get("parentID"))
    assert wire.decode(join_message(session, (id, role, parent, data)), Message) == message


def test_an_empty_rest_is_joined() -> None:
    """A part that is nothing but its ids needs no comma."""
    part: Part = wire.convert(
        {"type": "step-start", "id": "p", "sessionID": "s", "messageID": "m"}, Part
    )
    assert split_part(part) == "{}"
    assert join_part("s", "m", "p", "step-start", "{}") == wire.encode(part)


@pytest.mark.parametrize(
    ("text", "limit", "fits"),
    [
        ("a" * 8, 8, True),
        ("a" * 9, 8, False),
        ("é" * 4, 8, True),
        ("é" * 5, 8, False),
        ("😀" * 2, 8, True),
        ("😀" * 3, 8, False),
    ],
)
def test_sizes_are_bytes(text: str, limit: int, fits: bool) -> None:
    """What counts are the bytes of the text in UTF-8, not its characters."""
    if fits:
        assert check_size(text, "it", limit) is text
    else:
        with pytest.raises(TooLarge, match="it is larger than"):
            check_size(text, "it", limit)
