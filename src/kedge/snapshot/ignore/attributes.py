"""Decides, by git attributes, which files git may convert on their way into its objects.

It errs on one side only: a line that turns a conversion on counts even if a stronger one turns it
off again. `False` means that no attribute makes git's bytes differ from those on disk while both
have the same length.

Line ends (`text`, `crlf`, `eol`, and the settings `core.autocrlf` and `core.eol`) do not matter.
An index entry that has the stat data of a file was made in one of two ways: git cleaned the file
into the blob (`add`, and `status` when it refreshes an entry), which for line ends only removes
carriage returns; or it smudged the blob into the file (`checkout`), which only adds some. It never
did both. So if a blob is as long as its file, nothing was removed or added, whatever the
configuration was then or is now. `core.safecrlf` refuses or warns, but changes no byte.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kedge.snapshot.ignore.rules import Level, Pattern, Rules

_ESCAPED = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b"\\": b"\\",
    b'"': b'"',
}
_QUOTED = re.compile(rb'"((?:[^"\\]|\\(?:[abfnrtv\\"]|[0-3][0-7]{2}))*+)"')
_ESCAPE = re.compile(rb'\\([abfnrtv\\"]|[0-3][0-7]{2})')


def unquoted(text: bytes) -> tuple[bytes, bytes] | None:
    """The name in the quoted start of a text, and the rest; None if the text is not valid."""
    match = _QUOTED.match(text)
    if match is None:
        return None
    return _ESCAPE.sub(_meant, match[1]), text[match.end() :]


def _meant(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    return _ESCAPED[code] if code in _ESCAPED else bytes((int(code, 8),))


CONVERTING = frozenset({b"filter", b"ident", b"working-tree-encoding"})
_BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n"
_MACRO = b"[attr]"


class Attributes:
    """The attributes of the files in one folder."""

    __slots__ = ("_converting", "_fold", "_levels", "_same_below")

    def __init__(
        self, levels: tuple[Level, ...], *, converting: frozenset[bytes], fold: bool
    ) -> None:
        """Take the converting lines of this folder and its parents, and all converting names."""
        self._levels = levels
        self._converting = converting
        self._fold = fold
        self._same_below = all(level.path is None for level in levels)

    @classmethod
    def at_root(
        cls, *, files: Sequence[bytes] = (), own: bytes = b"", ignore_case: bool = False
    ) -> "Attributes":
        """Take the contents of the system's, the user's and info/attributes, in any order, and of
        the root's .gitattributes."""
        contents = (*files, own)
        converting = _with_macros(line for content in contents for line in _lines(content))
        rules = _rules_of(*contents, converting=converting, fold=ignore_case)
        levels = (Level.own(rules),) if rules else ()
        return cls(levels, converting=converting, fold=ignore_case)

    def below(self, name: bytes, own: bytes = b"") -> "Attributes":
        """The attributes inside the sub-folder `name` whose .gitattributes holds `own`."""
        if self._same_below and not own:
            return self
        if self._fold:
            name = name.lower()
        levels = tuple([level.below(name) for level in self._levels])
        if own:
            rules = _rules_of(own, converting=self._converting, fold=self._fold)
            levels = (Level.own(rules), *levels) if rules else levels
        return Attributes(levels, converting=self._converting, fold=self._fold)

    def __bool__(self) -> bool:
        """Whether any line can have an effect."""
        return bool(self._levels)

    def may_convert(self, name: bytes) -> bool:
        """Whether git's object for a file of this folder may have other bytes of the same
        length."""
        if self._fold:
            name = name.lower()
        return any(level.match(name) is not None for level in self._levels)


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of an attributes file."""

    pattern: bytes
    turned_on: frozenset[bytes]
    """The attributes that it sets or gives a value, not those it unsets."""

    @property
    def macro(self) -> bytes | None:
        """The macro that the line defines, if it is not about files."""
        return self.pattern.removeprefix(_MACRO) if self.pattern.startswith(_MACRO) else None


@lru_cache(maxsize=1024)
def _rules_of(*files: bytes, converting: frozenset[bytes], fold: bool) -> Rules:
    """The patterns of the lines that turn one of these attributes on."""
    patterns = [
        Pattern.parse(line.pattern, fold=fold)
        for content in files
        for line in _lines(content)
        if not line.macro and not line.turned_on.isdisjoint(converting)
    ]
    return Rules([pattern for pattern in patterns if not pattern.negated])  # As git does.


def _with_macros(lines: Iterable[_Line]) -> frozenset[bytes]:
    """The attributes that convert, and the macros that directly or indirectly turn one on."""
    turned_on_by: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for line in lines:
        if line.macro:
            for attribute in line.turned_on:
                turned_on_by[attribute].add(line.macro)
    found = set(CONVERTING)
    waiting = list(found)
    while waiting:
        new = turned_on_by[waiting.pop()] - found
        found |= new
        waiting += new
    return frozenset(found)


def _lines(content: bytes) -> Iterator[_Line]:
    for raw in content.removeprefix(_BOM).split(b"\n"):
        line = raw.partition(b"\0")[0].strip(_BLANKS)
        if line and not line.startswith(b"#"):
            pattern, words = _parted(line)
            yield _Line(pattern, frozenset(map(_name, filter(_turns_on, words))))


def _parted(line: bytes) -> tuple[bytes, list[bytes]]:
    """A line's pattern and the words after it."""
    quoted = unquoted(line) if line.startswith(b'"') else None
    if quoted is not None:
        pattern, rest = quoted
        return pattern, re.split(rb"[ \t\r\n]+", rest)
    pattern, *words = re.split(rb"[ \t\r\n]+", line)
    return pattern, words


def _turns_on(word: bytes) -> bool:
    return word != b"" and not word.startswith((b"-", b"!"))


def _name(word: bytes) -> bytes:
    return word.partition(b"=")[0]
