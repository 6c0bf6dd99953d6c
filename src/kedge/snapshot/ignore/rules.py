"""The patterns that apply in a folder, and the search for the last one that matches a name.

A folder is matched with a mark after its name, and a pattern for folders only requires that mark:
so one text expresses both. A slash cannot be the mark, because then `x/*` would match the folder x
itself.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kedge.snapshot.ignore.wildmatch import NeverMatches, literal_length, translate

FOLDER = b"\0"
"""The mark; neither a name nor a wildcard can contain this byte."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pattern:
    """A pattern from an ignore or attributes file."""

    text: bytes
    """Without `!` and without leading and trailing slashes."""
    negated: bool
    folders_only: bool
    anchored: bool
    """Whether it is matched with the whole path below its file's folder, not just the last name."""
    fold: bool
    """Whether case is ignored; texts to match are then given in lower case."""

    @classmethod
    def parse(cls, line: bytes, *, fold: bool) -> "Pattern":
        text = line.partition(b"\0")[0]  # To git a line is a C string.
        negated = text.startswith(b"!")
        text = text[negated:]
        folders_only = text.endswith(b"/")
        text = text[: len(text) - folders_only]
        return cls(
            text=text.removeprefix(b"/"),
            negated=negated,
            folders_only=folders_only,
            anchored=b"/" in text,
            fold=fold,
        )

    @property
    def plain(self) -> bytes | None:
        """The only text that a pattern without wildcards matches."""
        if literal_length(self.text) < len(self.text):
            return None
        return self.text.lower() if self.fold else self.text

    @property
    def extension(self) -> bytes | None:
        """`.x` if the pattern is `*.x`: it matches names that have this from their last dot on."""
        rest = self.text[1:]
        if self.anchored or not self.text.startswith(b"*.") or b"." in rest[1:]:
            return None
        if literal_length(rest) < len(rest):
            return None
        return rest.lower() if self.fold else rest

    @property
    def depth(self) -> float:
        """The depth of the paths that an anchored pattern can match."""
        return math.inf if b"**" in self.text else self.text.count(b"/")

    def expression(self) -> bytes:
        return translate(self.text, fold=self.fold) + (rb"\0" if self.folders_only else rb"\0?")


UNMATCHED = -1
_ALTERNATIVES = 100
"""The most wildcard patterns that share one regular expression."""


class PatternIndex:
    """Numbered patterns; finds the highest number among those that match a text."""

    __slots__ = ("_extensions", "_plain", "_wild")

    def __init__(self, numbered: Iterable[tuple[int, Pattern]]) -> None:
        """Take patterns in rising order of their numbers."""
        self._plain: dict[bytes, int] = {}
        self._extensions: dict[bytes, int] = {}
        wild: list[tuple[int, bytes]] = []
        for number, pattern in numbered:
            if (plain := pattern.plain) is not None:
                _note(self._plain, plain, pattern, number)
            elif (extension := pattern.extension) is not None:
                _note(self._extensions, extension, pattern, number)
            else:
                try:
                    wild.append((number, pattern.expression()))
                except NeverMatches:
                    continue
        wild.reverse()
        self._wild = [
            _Alternatives(wild[at : at + _ALTERNATIVES])
            for at in range(0, len(wild), _ALTERNATIVES)
        ]

    def __bool__(self) -> bool:
        return bool(self._plain or self._extensions or self._wild)

    def candidates(self, texts: Iterable[bytes]) -> list[bytes]:
        """The texts that some pattern matches, computed for many texts at once."""
        plain, extensions = self._plain, self._extensions
        wild = [alternatives.match for alternatives in self._wild]
        return [
            text
            for text in texts
            if text in plain
            or text[text.rfind(b".") :] in extensions
            or (wild and any(match(text) for match in wild))
        ]

    def last(self, text: bytes) -> int:
        """The number of the last pattern that matches, or UNMATCHED."""
        found = self._plain.get(text, UNMATCHED)
        if self._extensions:
            other = self._extensions.get(text[text.rfind(b".") :], UNMATCHED)
            if other > found:  # As `max` would have it, at a third of the time.
                found = other
        for alternatives in self._wild:
            match = alternatives.match(text)
            if match is not None:
                return max(found, alternatives.numbers[match.lastindex or 0])
        return found


class _Alternatives:
    """One regular expression for several patterns, which also shows the first that matched."""

    __slots__ = ("match", "numbers")

    def __init__(self, wild: list[tuple[int, bytes]]) -> None:
        # The empty group comes last, so that the first byte of each alternative is seen at once.
        expression = b"|".join(expression + b"()" for _, expression in wild)
        self.match: Callable[[bytes], re.Match[bytes] | None] = re.compile(expression).fullmatch
        self.numbers = (UNMATCHED, *(number for number, _ in wild))


def _note(where: dict[bytes, int], key: bytes, pattern: Pattern, number: int) -> None:
    where[key + FOLDER] = number
    if not pattern.folders_only:
        where[key] = number


class Rules:
    """Patterns that are relative to the same folder; later ones override earlier ones."""

    __slots__ = ("_names", "_paths", "_patterns", "depth")

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = patterns
        self._names = PatternIndex(pair for pair in enumerate(patterns) if not pair[1].anchored)
        self._paths = PatternIndex(pair for pair in enumerate(patterns) if pair[1].anchored)
        self.depth = max((each.depth for each in patterns if each.anchored), default=-math.inf)
        """How many folders down a result may still depend on the path."""

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def names_matched(self, names: Iterable[bytes]) -> list[bytes]:
        """The names that are matched by a pattern that applies at any depth."""
        return self._names.candidates(names)

    def match_name(self, name: bytes) -> Pattern | None:
        """The last pattern that matches a name, among those that apply at any depth."""
        last = self._names.last(name)
        return None if last == UNMATCHED else self._patterns[last]

    def match_path(self, folder: bytes, name: bytes) -> Pattern | None:
        """The last pattern that matches a name in a folder (`a/b/`, relative to the rules' own)."""
        last = self._names.last(name)
        other = self._paths.last(folder + name)
        if other > last:
            last = other
        return None if last == UNMATCHED else self._patterns[last]


@dataclass(frozen=True, slots=True)
class Level:
    """Rules as seen from a folder at or below their own."""

    rules: Rules
    path: bytes | None
    """The path from the rules' folder (`a/b/`), as long as a result can depend on it."""

    @classmethod
    def own(cls, rules: Rules) -> "Level":
        return cls(rules, b"" if rules.depth >= 0 else None)

    def below(self, name: bytes) -> "Level":
        if self.path is None:
            return self
        path = self.path + name + b"/"
        return Level(self.rules, path if path.count(b"/") <= self.rules.depth else None)

    def may_match(self, names: Iterable[bytes]) -> list[bytes]:
        """The entries of this folder that a pattern may match; usually few."""
        return self.rules.names_matched(names) if self.path is None else list(names)

    def match(self, name: bytes) -> Pattern | None:
        """The last pattern that matches an entry of this folder."""
        if self.path is None:
            return self.rules.match_name(name)
        return self.rules.match_path(self.path, name)
