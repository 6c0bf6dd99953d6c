"""Cursors: positions in a list or stream. Opaque to callers, validated when they come back."""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any

from kedge.domain import wire
from kedge.domain.errors import InvalidCursor, InvalidInput

_MAX_INT = 2**63 - 1
_EVENT = re.compile(r"([0-9a-f]{16})-(0|[1-9][0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class EventCursor:
    """A position in the event log of one database."""

    epoch: str
    seq: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.seq}"

    @classmethod
    def parse(cls, text: object) -> "EventCursor":
        """Parse a cursor that a caller passed back."""
        match = _EVENT.fullmatch(text) if isinstance(text, str) else None
        if match is None or int(match[2]) > _MAX_INT:
            raise InvalidCursor(f"not an event cursor: {_shown(text)}")
        return cls(match[1], int(match[2]))


@dataclass(frozen=True, slots=True)
class PageCursor:
    """A position in an ordered list: a number to compare by and an id to break ties."""

    at: int
    id: str

    def text(self, list: str) -> str:
        """The cursor as callers get it; valid for this list only."""
        raw = wire.encode({"id": self.id, "at": self.at, "of": list}).encode()
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    @classmethod
    def parse(cls, text: object, list: str) -> "PageCursor":
        """Parse a cursor of a list that a caller passed back."""
        if not isinstance(text, str) or len(text) > 512 or not text.isascii():
            raise InvalidCursor(f"not a page cursor: {_shown(text)}")
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            found: dict[str, Any] = wire.decode(raw, dict[str, Any])
        except (binascii.Error, InvalidInput):
            raise InvalidCursor(f"not a page cursor: {_shown(text)}") from None
        at, id = found.get("at"), found.get("id")
        if type(at) is not int or abs(at) > _MAX_INT or not isinstance(id, str) or "\0" in id:
            raise InvalidCursor(f"not a page cursor: {_shown(text)}")
        if found.get("of") != list:
            raise InvalidCursor(f"a cursor of another list: {_shown(text)}")
        return cls(at, id)


def _shown(value: object) -> str:
    return repr(value) if len(repr(value)) <= 80 else repr(value)[:80] + "…"
