"""The words of a command line, without their quotes, as far as they are known before it runs."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node

_ESCAPE = re.compile(r"\\(\n|.)", re.DOTALL)
_ESCAPE_IN_QUOTES = re.compile(r'\\([$`"\\\n])')
_PATTERN = re.compile(r"(?<!\\)[*?\[]")
_NEEDS_NO_QUOTES = re.compile(r"[\w@%+=:,./^~-]+")


_DEFAULT = re.compile(r"\$\{(\w+):?([-=+])([^$`\\]*)\}", re.DOTALL)
_CHANGED = re.compile(r"\$\{(\w+)([%#/,^][^$`]*|:\d[^$`]*)\}", re.DOTALL)
_COUNTED = re.compile(r"\$\{#\w+(?:\[[@*]\])?\}|\$[#?!$]|\$\{[#?!$]\}")
_QUOTES = str.maketrans("", "", "'\"")


class WordPiece(NamedTuple):
    """A stretch of a word."""

    text: str
    """Its text, the name of the variable, or the line whose output it is."""
    kind: Literal["text", "variable", "output", "unknown"] = "text"
    default: str | None = None
    """What replaces a variable in some cases: `${x:-this}`."""
    change: str = ""
    """The modification of the variable: `%.js` for `${x%.js}`."""


class ShellWord(NamedTuple):
    """A word of a command."""

    value: str
    """Its value; the source text where only the shell knows it."""
    source: str
    """As it is written."""
    is_fixed: bool
    """Whether it has the same value in every run."""
    is_pattern: bool = False
    """Whether the shell makes other words of it: names of files, or several."""
    is_filled: bool = False
    """Whether a program replaces it, as `find` does with `{}`."""
    pieces: tuple[WordPiece, ...] = ()
    """Its pieces, if it is not fixed."""

    @property
    def is_told(self) -> bool:
        """Whether it is exactly what the program gets."""
        return self.is_fixed and not self.is_filled

    @property
    def shown(self) -> str:
        """Its shortest written form."""
        if self.is_fixed and _NEEDS_NO_QUOTES.fullmatch(self.value):
            return self.value
        return self.source


def read_word(node: "Node") -> ShellWord:
    """The word of a node of the syntax tree."""
    source = source_of(node)
    if node.type == "raw_string":
        return ShellWord(source[1:-1], source, True)
    if node.type == "ansi_c_string" and "\\" not in source:
        return ShellWord(source[2:-1], source, True)
    if node.type == "string":
        return _quoted(node, source)
    if node.type == "concatenation":
        return _joined([read_word(each) for each in node.children], source)
    if node.type in ("word", "number", "extglob_pattern") or not node.is_named:
        value = _ESCAPE.sub(lambda match: match[1].replace("\n", ""), source)
        is_fixed = not node.named_children
        pieces = () if is_fixed else (WordPiece(source, "unknown"),)
        pattern = bool(_PATTERN.search(source))
        return ShellWord(value, source, is_fixed, pattern, pieces=pieces)
    return ShellWord(source, source, False, pieces=(_piece(node, source),))


def _joined(parts: list[ShellWord], source: str) -> ShellWord:
    fixed = all(part.is_fixed for part in parts)
    pattern = any(part.is_pattern for part in parts)
    if fixed:
        return ShellWord("".join(part.value for part in parts), source, True, pattern)
    pieces = [each for part in parts for each in part.pieces or (WordPiece(part.value),)]
    return ShellWord(source, source, False, pattern, pieces=tuple(pieces))


def _quoted(node: "Node", source: str) -> ShellWord:
    if any(each.type != "string_content" for each in node.named_children):
        return ShellWord(source, source, False, pieces=tuple(_pieces(node)))
    return ShellWord(_unescaped(source[1:-1]), source, True)


def _pieces(node: "Node") -> Iterator[WordPiece]:
    """The text between the quotes. The grammar includes blanks in what follows them."""
    for child in node.children[1:-1]:
        text = source_of(child)
        if not child.is_named or child.type == "string_content":
            yield WordPiece(_unescaped(text))
        else:
            blanks = text[: len(text) - len(text.lstrip())]
            yield WordPiece(blanks)
            yield _piece(child, text.lstrip())


def _piece(node: "Node", source: str) -> WordPiece:
    if node.type in ("simple_expansion", "expansion"):
        name = source.strip("${}")
        if name.isidentifier():
            return WordPiece(name, "variable")
        default = _DEFAULT.fullmatch(source)
        if default:
            kept = "" if default[2] == "+" else default[1]
            return WordPiece(kept, "variable", default[3].translate(_QUOTES))
        changed = _CHANGED.fullmatch(source)
        if changed:
            return WordPiece(changed[1], "variable", change=changed[2])
    if node.type == "arithmetic_expansion" or _COUNTED.fullmatch(source):
        return WordPiece("", "variable", change="#")
    if node.type == "command_substitution":
        return WordPiece(source.removeprefix("$(").removesuffix(")").strip("`"), "output")
    return WordPiece(source, "unknown")


def _unescaped(text: str) -> str:
    # A backslash that escapes nothing stays.
    return _ESCAPE_IN_QUOTES.sub(lambda match: match[1].replace("\n", ""), text)


def source_of(node: "Node") -> str:
    """A node as it is written."""
    assert node.text is not None
    return node.text.decode("utf-8", "replace")
