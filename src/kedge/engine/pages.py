"""A cache of message pages as they were sent to clients, valid until their session changes.

The event log says whether it has changed: every change of a session, by any process, has an event
of that session.
"""

from dataclasses import dataclass
from typing import NamedTuple

_ROOM = 4 * 1024 * 1024
"""Bytes of all cached pages."""
_LARGEST = 1024 * 1024
"""Bytes of one cached page: a few large ones would leave no room for others."""


class PageKey(NamedTuple):
    """What was asked for."""

    session_id: str
    before: str | None
    limit: int


@dataclass(frozen=True, slots=True)
class MessageTexts:
    """Neighbouring messages as one JSON list."""

    body: bytes
    older: str | None
    """Pass it back to get those before; None at the beginning."""


class Pages:
    """The most recently requested pages of one process."""

    def __init__(self) -> None:
        self._kept: dict[PageKey, tuple[int, MessageTexts]] = {}
        """With the newest event of its session, the least recently requested first."""
        self._size = 0

    def find(self, key: PageKey, head: int) -> MessageTexts | None:
        """A page, if the newest event of its session is still the one it was read with. May be
        called from a reader's thread."""
        found = self._kept.get(key)
        return found[1] if found is not None and found[0] == head else None

    def keep(self, key: PageKey, head: int, page: MessageTexts) -> None:
        """Cache a page that was read after `head`, the newest event of its session; drop the least
        recently requested ones."""
        self._drop(key)
        if len(page.body) > _LARGEST:
            return
        self._kept[key] = head, page
        self._size += len(page.body)
        while self._size > _ROOM:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: PageKey) -> None:
        if (gone := self._kept.pop(key, None)) is not None:
            self._size -= len(gone[1].body)
