"""A pattern as ignore and attribute files write it: what it is compared with and how.

A folder is compared with a mark after its name, and a pattern for folders only wants that mark: so
one text says both. No slash will do for it, because then `x/*` would match the folder x itself.
"""

import math
from dataclasses import dataclass

from kedge.snapshot.ignore.wildmatch import literal_length, translate

FOLDER = b"\0"
"""The mark; neither a name nor what a wildcard matches can hold this byte."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pattern:
    """A pattern as ignore and attribute files write it."""

    text: bytes
    """Without `!` and without the slashes at its start and end."""
    negated: bool
    folders_only: bool
    anchored: bool
    """Compared with the whole path below its file's folder, else with the last name only."""
    fold: bool
    """Upper and lower case are the same; texts to compare are then given in lower case."""

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
        """The one text that a pattern without wildcards matches."""
        if literal_length(self.text) < len(self.text):
            return None
        return self.text.lower() if self.fold else self.text

    @property
    def extension(self) -> bytes | None:
        """`.x` if the pattern is `*.x`: it then matches what has that from its last dot on."""
        rest = self.text[1:]
        if self.anchored or not self.text.startswith(b"*.") or b"." in rest[1:]:
            return None
        if literal_length(rest) < len(rest):
            return None
        return rest.lower() if self.fold else rest

    @property
    def depth(self) -> float:
        """How many folders deep the paths that an anchored pattern matches can be."""
        return math.inf if b"**" in self.text else self.text.count(b"/")

    def expression(self) -> bytes:
        return translate(self.text, fold=self.fold) + (rb"\0" if self.folders_only else rb"\0?")
