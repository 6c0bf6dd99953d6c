"""Translates git's wildcard patterns into regular expressions without unbounded backtracking.

It handles only the text of a pattern; `rules` decides which folder it is relative to and what a
match means. With `fold` (core.ignorecase) the expression is for texts in lower case.

Every element of a pattern except a star matches exactly one byte, and only a literal slash matches
a slash. So inside a path component the leftmost match of the text between two stars is as good as
any later one, and the same holds for the components between two `**`: both become atomic groups,
which are matched once and not retried.
"""

import re

SLASH = ord("/")
IN_COMPONENT = rb"[^/\0]"
IN_PATH = rb"[^\0]"
_LONGEST = 4096
"""No path on Linux is longer (PATH_MAX), so a pattern that needs more bytes matches nothing."""


class NeverMatches(Exception):
    """Git accepts this pattern and finds nothing with it (an open bracket, a lone backslash)."""


class Expression:
    """A regular expression under construction."""

    def __init__(self) -> None:
        self._stretches: list[bytes] = []
        """Finished stretches; each but the first begins with an element that crosses folders."""
        self._pieces: list[bytes] = []
        """The current stretch up to the last star of the current component."""
        self._segment: list[bytes] = []
        """The elements since then."""
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
        """Add an expression that matches across folders, at the start of a component."""
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


_WILD = b"*?[\\"


def literal_length(pattern: bytes) -> int:
    """How many bytes precede the first special one in a pattern."""
    return next((at for at, byte in enumerate(pattern) if byte in _WILD), len(pattern))


def translate(pattern: bytes, *, fold: bool) -> bytes:
    """The regular expression of a pattern, for a full match."""
    # Git compares the literal beginning by itself and passes only the rest to its wildcard matcher.
    # So in `a**/b` the stars count as the start of a component, and `ab` matches.
    plain = literal_length(pattern)
    expression = Expression()
    for byte in pattern[:plain].lower() if fold else pattern[:plain]:
        expression.add_byte(byte)
    _Reader(pattern[plain:], fold, expression).read()
    return expression.finish()


class _Reader:
    """Reads a pattern from left to right and builds its expression."""

    def __init__(self, pattern: bytes, fold: bool, expression: Expression) -> None:
        self._pattern = pattern
        self._fold = fold
        self._expression = expression
        self._at = 0
        self._next_close = -1

    def read(self) -> None:
        while self._at < len(self._pattern):
            byte = self._pattern[self._at]
            self._at += 1
            if byte == ord("*"):
                self._stars()
            elif byte == ord("?"):
                self._expression.add_one(IN_COMPONENT)
            elif byte == ord("["):
                self._expression.add_one(_one_of(self._bracket()))
            elif byte == ord("\\"):
                self._expression.add_byte(self._escaped())
            else:
                self._expression.add_byte(_lower(byte) if self._fold else byte)

    def _escaped(self) -> int:
        byte = self._take()
        if self._fold and byte != _lower(byte):
            # Git lowers the text but not an escaped letter, so `\A` matches neither case.
            raise NeverMatches
        return byte

    def _take(self) -> int:
        if self._at == len(self._pattern):
            raise NeverMatches
        self._at += 1
        return self._pattern[self._at - 1]

    def _stars(self) -> None:
        first = self._at - 1
        while self._pattern.startswith(b"*", self._at):
            self._at += 1
        starts_component = first == 0 or self._pattern[first - 1] == SLASH
        if self._at - first == 1 or not starts_component:
            self._expression.add_star()
        elif self._pattern.startswith(b"/", self._at):
            self._at += 1
            self._expression.cross(b"(?:" + IN_PATH + b"*?/)??")
        elif self._at == len(self._pattern) or self._pattern.startswith(b"\\/", self._at):
            self._expression.cross(IN_PATH + b"*?")
        else:
            self._expression.add_star()

    def _bracket(self) -> set[int]:
        """The bytes that match the bracket whose `[` was just read."""
        negated = self._pattern[self._at : self._at + 1] in (b"!", b"^")
        self._at += negated
        members: set[int] = set()
        before = 0  # What a range would begin with; 0 where none can.
        byte = self._take()
        while True:
            before = self._member(byte, before, members)
            byte = self._take()
            if byte == ord("]"):
                break
        return (set(range(1, 256)) - members if negated else members) - {SLASH}

    def _member(self, byte: int, before: int, members: set[int]) -> int:
        """Add the member that begins with `byte`; returns the first byte of a range that may
        follow."""
        if byte == ord("\\"):
            byte = self._take()
        elif byte == ord("-") and before and self._range_goes_on():
            self._add_range(before, members)
            return 0
        elif byte == ord("[") and self._pattern.startswith(b":", self._at):
            name = self._class_name()
            if name is not None:
                members |= self._class_members(name)
                return 0
        members.add(byte)
        return byte

    def _range_goes_on(self) -> bool:
        return self._at < len(self._pattern) and self._pattern[self._at] != ord("]")

    def _add_range(self, first: int, members: set[int]) -> None:
        last = self._take()
        if last == ord("\\"):
            last = self._take()
        span = range(first, last + 1)
        members.update(span)
        if self._fold:
            members.update(map(_lower, span))

    def _class_name(self) -> bytes | None:
        """The name in `[:name:]`, or None if the `[` just read does not begin a class."""
        start = self._at + 1
        if self._next_close < start:
            self._next_close = self._pattern.find(b"]", start)
        if self._next_close < 0:
            raise NeverMatches
        end = self._next_close - 1
        if end < start or self._pattern[end] != ord(":"):
            return None
        self._at = self._next_close + 1
        return self._pattern[start:end]

    def _class_members(self, name: bytes) -> frozenset[int]:
        if self._fold and name == b"upper":
            return _CLASSES[b"alpha"]
        try:
            return _CLASSES[name]
        except KeyError:
            raise NeverMatches from None


def _lower(byte: int) -> int:
    return byte + 32 if ord("A") <= byte <= ord("Z") else byte


def _one_of(members: set[int]) -> bytes:
    if not members:
        raise NeverMatches
    spans: list[tuple[int, int]] = []
    for byte in sorted(members):
        if spans and spans[-1][1] == byte - 1:
            spans[-1] = (spans[-1][0], byte)
        else:
            spans.append((byte, byte))
    return b"[" + b"".join(b"\\x%02x-\\x%02x" % span for span in spans) + b"]"


def _bytes_of(*spans: str) -> frozenset[int]:
    return frozenset(byte for span in spans for byte in range(ord(span[0]), ord(span[-1]) + 1))


_UPPER = _bytes_of("A-Z")
_LOWER = _bytes_of("a-z")
_DIGIT = _bytes_of("0-9")
_GRAPH = _bytes_of("!-~")

# Git's own, the same in every locale: no byte above 127 is in any, and only four are `space`.
_CLASSES = {
    b"alnum": _UPPER | _LOWER | _DIGIT,
    b"alpha": _UPPER | _LOWER,
    b"blank": frozenset(b" \t"),
    b"cntrl": _bytes_of("\x00-\x1f", "\x7f"),
    b"digit": _DIGIT,
    b"graph": _GRAPH,
    b"lower": _LOWER,
    b"print": _GRAPH | {ord(" ")},
    b"punct": _GRAPH - _UPPER - _LOWER - _DIGIT,
    b"space": frozenset(b" \t\n\r"),
    b"upper": _UPPER,
    b"xdigit": _DIGIT | _bytes_of("a-f", "A-F"),
}
