"""Boundaries: the message or part to which a revert takes a conversation back, determined as
OpenCode does; files are not handled here."""

from collections.abc import Iterable
from dataclasses import dataclass

from kedge.store.queries.sessions import get_session, get_session_text
from kedge.store.transaction import Script, row, rows

_TALKS = ("text", "tool")
"""Types of parts without which nothing of a message is worth keeping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """The first message to remove, or the first part to remove of the last message that stays."""

    message_id: str
    part_id: str | None
    pos: int

    @property
    def first_gone(self) -> int:
        """The position of the first message that is removed as a whole."""
        return self.pos if self.part_id is None else self.pos + 1


def find_boundary(
    session_id: str, message_id: str, part_id: str | None = None
) -> Script[Boundary | None]:
    """The boundary for a message or one of its parts; None if it does not exist.

    A message stands for the turn it belongs to, so the boundary is the last prompt up to it. A part
    with nothing worth keeping before it stands for its message.
    """
    yield from get_session_text(session_id)
    target = yield from _target(session_id, message_id, part_id)
    if target is None:
        return None
    pos, id = target
    if part_id is not None and (yield from _keeps_something(session_id, pos, part_id)):
        return Boundary(message_id=id, part_id=part_id, pos=pos)
    prompt = yield from row("message_last_prompt", session_id=session_id, pos=pos)
    if prompt is not None:
        id, pos = prompt
    return Boundary(message_id=id, part_id=None, pos=pos)


_END = 2**62


def turn_before(session_id: str) -> Script[str | None]:
    """The prompt of the last turn that is not reverted, not even in part; None if there is none."""
    pos = yield from _reverted_from(session_id)
    last = _END if pos is None else pos - 1
    found = yield from row("message_last_prompt", session_id=session_id, pos=last)
    return None if found is None else str(found[0])


def turn_after(session_id: str) -> Script[str | None]:
    """The prompt of the second of the turns that a pending revert hides; None if it hides one."""
    pos = yield from _reverted_from(session_id)
    if pos is None:
        return None
    found = yield from row("message_next_prompt", session_id=session_id, pos=pos)
    return None if found is None else str(found[0])


def _reverted_from(session_id: str) -> Script[int | None]:
    """The position of the first message that a pending revert hides, or takes parts of."""
    revert = (yield from get_session(session_id)).revert
    if revert is None:
        return None
    found = yield from row("message_get", session_id=session_id, id=revert.messageID)
    return None if found is None else int(found[4])


def worth_keeping(types: Iterable[str]) -> bool:
    """Whether a message with parts of these types is worth keeping."""
    return any(type in _TALKS for type in types)


def _target(
    session_id: str, message_id: str, part_id: str | None
) -> Script[tuple[int, str] | None]:
    """Position and id of the message that is meant."""
    if part_id is None:
        found = yield from row("message_get", session_id=session_id, id=message_id)
        return None if found is None else (found[4], found[0])
    # The part decides, whatever message the caller names; two messages may have a part of this id.
    homes = yield from rows("part_homes", session_id=session_id, id=part_id)
    named = [(pos, id) for pos, id in homes if id == message_id]
    return next(iter([*named, *homes]), None)


def _keeps_something(session_id: str, pos: int, part_id: str) -> Script[bool]:
    found = yield from rows("part_range", session_id=session_id, first=pos, last=pos)
    return worth_keeping(type for _, id, type, _ in found if id < part_id)
