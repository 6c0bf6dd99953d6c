"""Builds a regular expression for a wildcard pattern that cannot backtrack without bound.

Every element of a pattern but a star matches exactly one byte, and only a literal slash matches a
slash. So inside a path component the leftmost place for what stands between two stars is as good
as any later one, and the same holds for the components between two `**`: both become atomic groups,
which are placed once and not tried again.
"""

import re

SLASH = ord("/")
IN_COMPONENT = rb"[^/\0]"
IN_PATH = rb"[^\0]"
_LONGEST = 4096
"""No path on Linux has more bytes (PATH_MAX), so a pattern that needs more matches nothing."""


class NeverMatches(Exception):
    """Git accepts this pattern and finds nothing with it (an open bracket, a lone backslash)."""


class Expression:
    """A regular expression under construction."""

    def __init__(self) -> None:
        self._stretches: list[bytes] = []
        """What is finished; each but the first begins with something that crosses folders."""
        self._pieces: list[bytes] = []
        """The stretch at hand up to the last star of the component at hand."""
        self._segment: list[bytes] = []
        """What came since."""
        self._after_star = False
        self._bytes = 0

    def add_byte(self, byte: int) -> None:
        if byte == SLASH:
            self._end_component()
            self._pieces.append(b"/")
            self._count()
        else:
            self.add_one(re.escape(bytes((byte,))))

    def add_one(self, expression: bytes) -> None:
        """Add an expression that matches exactly one byte, never a slash."""
        self._segment.append(expression)
        self._count()

    def add_star(self) -> None:
        segment = b"".join(self._segment)
        self._pieces.append(
            b"(?>" + IN_COMPONENT + b"*?" + segment + b")" if self._after_star else segment
        )
        self._segment = []
        self._after_star = True

    def cross(self, expression: bytes) -> None:
        """Add an expression that matches across folders; it stands at a component's start."""
        self._end_component()
        if self._pieces == [expression]:
            return  # Two in a row match what one does.
        self._stretches.append(b"".join(self._pieces))
        self._pieces = [expression]

    def finish(self) -> bytes:
        self._end_component()
        *inner, last = [*self._stretches, b"".join(self._pieces)]
        if not inner:
            return last
        return inner[0] + b"".join(b"(?>" + stretch + b")" for stretch in inner[1:]) + last

    def _end_component(self) -> None:
        if self._after_star:
            self._pieces.append(IN_COMPONENT + b"*")
            self._after_star = False
        self._pieces += self._segment
        self._segment = []

    def _count(self) -> None:
        self._bytes += 1
        if self._bytes > _LONGEST:
            raise NeverMatches
