"""Texts made of slots between anchor lines, so that it is easy to say who changed which lines.

Every line that somebody adds is unlike any other, and says whose it is.
"""

from io import BytesIO
from itertools import count, pairwise
from typing import TypeAlias

Slots: TypeAlias = tuple[tuple[bytes, ...], ...]

SLOTS = 5
ANCHORS = [b"-- %d --\n" % number for number in range(SLOTS + 1)]


class Lines:
    """Makes lines, each unlike any other."""

    def __init__(self) -> None:
        self._numbers = count()

    def fresh(self, actor: str) -> bytes:
        """A new line of somebody's."""
        return b"%d of %s\n" % (next(self._numbers), actor.encode())


def author(line: bytes) -> str | None:
    """Who made a line; None for what was there from the beginning."""
    return line.rstrip().partition(b" of ")[2].decode() or None


def split(content: bytes) -> list[bytes]:
    """The lines of a text, with their ends."""
    return BytesIO(content).readlines()


def document(slots: Slots) -> bytes:
    """The text that has these lines in its slots."""
    pieces = [ANCHORS[0]]
    for anchor, slot in zip(ANCHORS[1:], slots, strict=True):
        pieces += [*slot, anchor]
    return b"".join(pieces)


def slots_of(content: bytes) -> Slots | None:
    """What is in the slots of a text; None if not all anchors are there, in order and once."""
    lines = split(content)
    places = [number for number, line in enumerate(lines) if line in ANCHORS]
    if [lines[place] for place in places] != ANCHORS or places[0] != 0:
        return None
    if places[-1] != len(lines) - 1:
        return None
    return tuple(tuple(lines[first + 1 : last]) for first, last in pairwise(places))
