"""The patterns that hold in a folder because of one folder's rule files, its own or one above."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kedge.snapshot.ignore.index import UNMATCHED, Index
from kedge.snapshot.ignore.patterns import Pattern


class Rules:
    """Patterns that all count from the same folder; a later one overrules those before it."""

    __slots__ = ("_names", "_paths", "_patterns", "depth")

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = patterns
        self._names = Index(pair for pair in enumerate(patterns) if not pair[1].anchored)
        self._paths = Index(pair for pair in enumerate(patterns) if pair[1].anchored)
        self.depth = max((each.depth for each in patterns if each.anchored), default=-math.inf)
        """How many folders down an answer may still depend on the path."""

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def names_matched(self, names: Iterable[bytes]) -> list[bytes]:
        """Those names that a pattern matches which holds at any depth."""
        return self._names.candidates(names)

    def match_name(self, name: bytes) -> Pattern | None:
        """The last pattern that matches a name, of those that hold at any depth."""
        last = self._names.last(name)
        return None if last == UNMATCHED else self._patterns[last]

    def match_path(self, folder: bytes, name: bytes) -> Pattern | None:
        """The last pattern that matches a name in a folder (`a/b/`, seen from the rules' own)."""
        last = self._names.last(name)
        other = self._paths.last(folder + name)
        if other > last:
            last = other
        return None if last == UNMATCHED else self._patterns[last]


@dataclass(frozen=True, slots=True)
class Level:
    """Rules as they are seen from a folder at or below their own."""

    rules: Rules
    path: bytes | None
    """The way from the rules' folder (`a/b/`), for as long as an answer can depend on it."""

    @classmethod
    def own(cls, rules: Rules) -> "Level":
        return cls(rules, b"" if rules.depth >= 0 else None)

    def below(self, name: bytes) -> "Level":
        if self.path is None:
            return self
        path = self.path + name + b"/"
        return Level(self.rules, path if path.count(b"/") <= self.rules.depth else None)

    def may_match(self, names: Iterable[bytes]) -> list[bytes]:
        """Those entries of this folder that a pattern may match; few, most of the time."""
        return self.rules.names_matched(names) if self.path is None else list(names)

    def match(self, name: bytes) -> Pattern | None:
        """The last pattern that matches an entry of this folder."""
        if self.path is None:
            return self.rules.match_name(name)
        return self.rules.match_path(self.path, name)
