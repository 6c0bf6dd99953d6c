"""Conversion between values and rows: the ids of an entity are in columns, the rest in a JSON text.

Reading a row joins strings instead of decoding and encoding, and a fork copies rows without reading
them.
"""

from json.encoder import encode_basestring
from typing import Any

from kedge.domain import wire
from kedge.domain.errors import TooLarge
from kedge.domain.messages import AssistantMessage, Message
from kedge.domain.parts import Part
from kedge.store.transaction import Row

MAX_VALUE_BYTES = 32 * 1024 * 1024
"""The largest accepted message or part, as JSON."""

MAX_SESSION_BYTES = 1024 * 1024
"""The largest session object: it is repeated in every event about the session."""


def quoted(text: str) -> str:
    """A string as JSON text; clients make ids of any printable characters, including quotes."""
    return encode_basestring(text)


def part_type(part: Part) -> str:
    """The part's tag on the wire."""
    return str(part.__struct_config__.tag)


def split_part(part: Part) -> str:
    """The part's `data` column: its JSON without type and ids."""
    return strip_part(part, wire.encode(part))


def strip_part(part: Part, text: str) -> str:
    """The `data` column of a part whose JSON text is known already."""
    head = _part_head(part_type(part), part.id, part.sessionID, part.messageID)
    return _without(head, text, ("type", "id", "sessionID", "messageID"))


def join_part(session_id: str, message_id: str, id: str, type: str, data: str) -> str:
    """The JSON text of a part, from its columns."""
    return part_text(part_home(session_id, message_id), id, type, data)


def part_home(session_id: str, message_id: str) -> str:
    """The common beginning of the JSON of all parts of a message."""
    return f',"sessionID":{quoted(session_id)},"messageID":{quoted(message_id)}'


def part_text(home: str, id: str, type: str, data: str) -> str:
    """The JSON text of a part; `home` is what it shares with the others of its message."""
    rest = "}" if data == "{}" else f",{data[1:]}"
    return f'{{"type":"{type}","id":{quoted(id)}{home}{rest}'


def split_message(message: Message) -> tuple[str, str | None, str]:
    """The message's `role`, `parent_id` and `data` columns."""
    role = str(message.__struct_config__.tag)
    parent = message.parentID if isinstance(message, AssistantMessage) else None
    head = _message_head(role, message.id, message.sessionID, parent)
    data = _without(head, wire.encode(message), ("role", "id", "sessionID", "parentID"))
    return role, parent, data


def join_message(session_id: str, row: Row) -> str:
    """The JSON text of a message, from a row that starts with id, role, parent_id, data."""
    id, role, parent, data = row[:4]
    return _with(_message_head(role, id, session_id, parent), data)


def check_size(text: str, what: str, limit: int) -> str:
    """The text itself, unless it is too large for the store."""
    # Characters first: counting bytes copies the text.
    if len(text) > limit or (len(text) * 4 > limit and len(text.encode()) > limit):
        raise TooLarge(f"{what} is larger than {limit // (1024 * 1024)} MiB as JSON")
    return text


def _part_head(type: str, id: str, session_id: str, message_id: str) -> str:
    return f'{{"type":"{type}","id":{quoted(id)}{part_home(session_id, message_id)}'


def _message_head(role: str, id: str, session_id: str, parent: str | None) -> str:
    head = f'{{"role":"{role}","id":{quoted(id)},"sessionID":{quoted(session_id)}'
    return head if parent is None else f'{head},"parentID":{quoted(parent)}'


def _with(head: str, data: str) -> str:
    return f"{head}}}" if data == "{}" else f"{head},{data[1:]}"


def _without(head: str, text: str, keys: tuple[str, ...]) -> str:
    if text.startswith(head):
        rest = text[len(head) :]
        return "{" + rest.removeprefix(",")
    # Values with extra keys are encoded in another order.
    body: dict[str, Any] = wire.decode(text, dict[str, Any])
    return wire.encode({key: value for key, value in body.items() if key not in keys})
