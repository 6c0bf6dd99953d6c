"""What could hide a command from the grammar of bash, which sees less than bash itself."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_RUNNING = re.compile(rb"\$\(|`|[<>]\(")
_ODD_SPACE = re.compile(rb"[\r\v\f]")
_JOINED = re.compile(rb"(?<=\S)\\\r?\n(?=\S)")
_BARE_SPACE = re.compile(rb"(?<!\\)(?:\\\\)*\s")
_BETWEEN_LEAVES = re.compile(rb"(?:[ \t\n]|\\\n)*")
_BETWEEN_WORDS = re.compile(rb"(?:[ \t]|\\\n)+")
_BEFORE_REDIRECTION = re.compile(rb"(?:[ \t]|\\\n)*")
_OPEN_END = re.compile(rb"(?<!\\)(?:\\\\)*\\$")
_NAME = re.compile(rb"[A-Za-z_]\w*(?:\[\S*\])?")
_NEED_NO_SPACE = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect", "subshell"})
"""What may stand right behind a word."""
_LITERAL = frozenset({"raw_string", "ansi_c_string", "comment"})
_QUOTED = frozenset({"string", "heredoc_body"})
_TEXT = frozenset({*_LITERAL, *_QUOTED, "expansion", "regex", "heredoc_redirect"})
_SUBSTITUTIONS = frozenset({"command_substitution", "process_substitution", "arithmetic_expansion"})
_ARGUMENTS = frozenset({"word", "concatenation", "string", "raw_string", "ansi_c_string"})
_BEFORE_COMMENT = frozenset(b" \t\n;&|()")


class _Stretches:
    """Stretches of a line, to be asked which places are in one."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(ranges):
            # One that is inside of another adds nothing.
            if not self._ends or end > self._ends[-1]:
                self._starts.append(start)
                self._ends.append(end)

    def __contains__(self, at: int) -> bool:
        found = bisect_right(self._starts, at) - 1
        return found >= 0 and at < self._ends[found]


def is_hiding(source: bytes, nodes: "Sequence[Node]", parents: "Mapping[int, Node]") -> bool:
    """Whether bash could see a command in a line where the grammar saw none."""
    literal = _Stretches(each.byte_range for each in nodes if _is_literal(each, parents))
    quoted = _Stretches(each.byte_range for each in nodes if each.type in _QUOTED)
    spaces = (*_ODD_SPACE.finditer(source), *_JOINED.finditer(source))
    return (
        _hides_words(source, nodes)
        or any(match.start() not in literal and match.start() not in quoted for match in spaces)
        or _hides_substitution(source, nodes, parents, literal, quoted)
        or any(_hides_comment(source, each) for each in nodes if each.type == "comment")
        or any(_hides_heredoc(source, each) for each in nodes if each.type == "heredoc_redirect")
    )


def _is_literal(node: "Node", parents: "Mapping[int, Node]") -> bool:
    if node.type != "heredoc_body":
        return node.type in _LITERAL
    start = _heredoc_start(parents.get(node.id))
    return start is not None and _is_quoted_delimiter(start)


def _hides_words(source: bytes, nodes: "Sequence[Node]") -> bool:
    """Whether bash would divide a line into other words."""
    text = _Stretches(each.byte_range for each in nodes if each.type in _TEXT)
    end = 0
    for node in nodes:
        if not _IS_SOUND.get(node.type, _is_any)(node, source[slice(*node.byte_range)]):
            return True
        if not node.children:
            between = source[end : node.start_byte]
            if not _BETWEEN_LEAVES.fullmatch(between) and end not in text:
                return True
            end = max(end, node.end_byte)
    return False


def _is_any(node: "Node", text: bytes) -> bool:
    return True


def _is_word(node: "Node", text: bytes) -> bool:
    return not _BARE_SPACE.search(text) and not _OPEN_END.search(text)


def _is_assignment(node: "Node", text: bytes) -> bool:
    name = node.child_by_field_name("name")
    is_whole = all(one.end_byte == other.start_byte for one, other in pairwise(node.children))
    return is_whole and name is not None and bool(_NAME.fullmatch(name.text or b""))


def _has_words_apart(node: "Node", text: bytes) -> bool:
    """Whether bash would see the same words, and all of them in one command."""
    start = node.start_byte
    for one, other in pairwise(node.children):
        needed = _BEFORE_REDIRECTION if other.type in _NEED_NO_SPACE else _BETWEEN_WORDS
        if not needed.fullmatch(text, one.end_byte - start, other.start_byte - start):
            return False
    return True


def _has_files_apart(node: "Node", text: bytes) -> bool:
    start = node.start_byte
    for one, other in pairwise(node.children):
        needed = _BETWEEN_WORDS if one.is_named and other.is_named else _BEFORE_REDIRECTION
        if not needed.fullmatch(text, one.end_byte - start, other.start_byte - start):
            return False
    return True


def _is_group(node: "Node", text: bytes) -> bool:
    return text.startswith(b"((") or text[1:2].isspace()


_IS_SOUND: "Mapping[str, Callable[[Node, bytes], bool]]" = {
    "command": _has_words_apart,
    "compound_statement": _is_group,
    "file_redirect": _has_files_apart,
    "redirected_statement": _has_words_apart,
    "variable_assignment": _is_assignment,
    "word": _is_word,
}


def _hides_substitution(
    source: bytes,
    nodes: "Sequence[Node]",
    parents: "Mapping[int, Node]",
    literal: _Stretches,
    quoted: _Stretches,
) -> bool:
    """Whether something is run inside of a word that the grammar takes for text, or could be run
    because that is no argument of a program, but something that the shell itself looks at."""
    starts = {each.start_byte for each in nodes if each.type in _SUBSTITUTIONS}
    ticks = [
        each
        for each in nodes
        if each.type == "command_substitution"
        and source[each.start_byte : each.start_byte + 1] == b"`"
    ]
    ends = {each.end_byte - 1 for each in ticks}
    # What is escaped inside of backticks is unescaped before it is read.
    if any(b"\\" in source[each.start_byte : each.end_byte] for each in ticks):
        return True
    harmless = _Stretches(each.byte_range for each in nodes if _is_given_away(each, parents))
    for match in _RUNNING.finditer(source):
        at = match.start()
        known = at in starts or (match[0] == b"`" and at in ends)
        is_text = match[0][:1] in b"<>" and at in quoted
        if not known and not is_text and not _is_escaped(source, at) and at not in literal:
            return True
        if not known and not is_text and at not in harmless:
            return True
    return False


def _is_given_away(node: "Node", parents: "Mapping[int, Node]") -> bool:
    """Whether a text is for a program to look at, or for nobody."""
    if node.type in _ARGUMENTS:
        parent = parents.get(node.id)
        return parent is not None and parent.type == "command"
    return node.type in ("comment", "heredoc_body")


def _is_escaped(source: bytes, at: int) -> bool:
    start = at
    while start and source[start - 1] == ord("\\"):
        start -= 1
    return (at - start) % 2 == 1


def _hides_comment(source: bytes, node: "Node") -> bool:
    """Whether bash would see no comment there."""
    at = node.start_byte
    return at > 0 and (source[at - 1] not in _BEFORE_COMMENT or _is_escaped(source, at - 1))


def _hides_heredoc(source: bytes, node: "Node") -> bool:
    """Whether bash would see another end of the text."""
    start = _heredoc_start(node)
    body = next((each for each in node.children if each.type == "heredoc_body"), None)
    end = next((each for each in node.children if each.type == "heredoc_end"), None)
    if start is None or body is None or end is None:
        return True
    delimiter = re.sub(rb"[\\'\"]", b"", start)
    if not re.fullmatch(rb"\w+", delimiter):
        return True
    is_indented = any(each.type == "<<-" for each in node.children)
    # From the line after the one that names the delimiter, to the delimiter.
    lines = source[source.index(b"\n", node.start_byte) + 1 : end.end_byte].split(b"\n")
    bare = [line.lstrip(b"\t") if is_indented else line for line in lines]
    is_last = delimiter in bare and bare.index(delimiter) == len(bare) - 1
    return not is_last or source[end.end_byte : end.end_byte + 1] not in (b"", b"\n")


def _heredoc_start(node: "Node | None") -> bytes | None:
    if node is None:
        return None
    found = next((each for each in node.children if each.type == "heredoc_start"), None)
    return None if found is None else found.text


def _is_quoted_delimiter(start: bytes) -> bool:
    return any(each in start for each in (b"'", b'"', b"\\"))
