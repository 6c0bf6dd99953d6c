"""Pages of messages that were read lately, kept as they went to a client until their session
changes.

Whether it has changed is asked of the event log each time: nothing of a session changes without an
event of that session, whichever process changes it.
"""

from dataclasses import dataclass
from typing import NamedTuple

_ROOM = 4 * 1024 * 1024
"""Bytes of all pages that are kept."""
_LARGEST = 1024 * 1024
"""Bytes of a page that is kept: a few large ones would leave no room for others."""


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
    """Hand it back to get those before; None at the beginning."""


class Pages:
    """The pages of one process that were asked for last."""

    def __init__(self) -> None:
        self._kept: dict[PageKey, tuple[int, MessageTexts]] = {}
        """With the newest event of its session, in the order in which they were asked for."""
        self._size = 0

    def find(self, key: PageKey, head: int) -> MessageTexts | None:
        """A page, if the newest event of its session is still the one that it was read with. A
        reader's thread may ask."""
        found = self._kept.get(key)
        return found[1] if found is not None and found[0] == head else None

    def keep(self, key: PageKey, head: int, page: MessageTexts) -> None:
        """Keep a page that was read after `head`, the newest event of its session, was; those that
        were not asked for for longest go."""
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
