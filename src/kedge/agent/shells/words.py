"""The words of a command line, with their quotes taken off as far as that can be known before it
runs."""

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node

_ESCAPE = re.compile(r"\\(\n|.)", re.DOTALL)
_ESCAPE_IN_QUOTES = re.compile(r'\\([$`"\\\n])')
_PATTERN = re.compile(r"(?<!\\)[*?\[]")
_NEEDS_NO_QUOTES = re.compile(r"[\w@%+=:,./^~-]+")


class Word(NamedTuple):
    """A word of a command."""

    value: str
    """What it says; as it is written where only the shell can tell."""
    source: str
    """As it is written."""
    is_fixed: bool
    """Whether it says the same whenever it is run."""
    is_pattern: bool = False
    """Whether the shell makes other words of it: names of files, or several."""

    @property
    def shown(self) -> str:
        """As short as it can be written."""
        if self.is_fixed and _NEEDS_NO_QUOTES.fullmatch(self.value):
            return self.value
        return self.source


def read_word(node: "Node") -> Word:
    """The word that a node of the syntax tree is."""
    source = source_of(node)
    if node.type == "raw_string":
        return Word(source[1:-1], source, True)
    if node.type == "ansi_c_string" and "\\" not in source:
        return Word(source[2:-1], source, True)
    if node.type == "string":
        return _quoted(node, source)
    if node.type == "concatenation":
        parts = [read_word(each) for each in node.children]
        fixed = all(part.is_fixed for part in parts)
        value = "".join(part.value for part in parts) if fixed else source
        pattern = any(part.is_pattern for part in parts)
        return Word(value, source, fixed, pattern)
    if node.type in ("word", "number", "extglob_pattern") or not node.is_named:
        value = _ESCAPE.sub(lambda match: match[1].replace("\n", ""), source)
        return Word(value, source, not node.named_children, bool(_PATTERN.search(source)))
    return Word(source, source, False)


def _quoted(node: "Node", source: str) -> Word:
    if any(each.type != "string_content" for each in node.named_children):
        return Word(source, source, False)
    inside = source[1:-1]
    # A backslash that escapes nothing stays.
    value = _ESCAPE_IN_QUOTES.sub(lambda match: match[1].replace("\n", ""), inside)
    return Word(value, source, True)


def source_of(node: "Node") -> str:
    """A node as it is written."""
    assert node.text is not None
    return node.text.decode("utf-8", "replace")
