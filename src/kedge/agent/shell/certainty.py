"""Decides whether it is certain what bash does with a command line, or something could hide a
command from the parser.

Other constructs (arithmetic, `[[`, subscripts, operators in `${…}`, functions) could run text that
does not look like a command. They are not analysed; the user is asked.
"""

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_KINDS = frozenset(
    {
        *("program", "list", "pipeline", "negated_command", "subshell", "compound_statement"),
        *("command", "command_name", "redirected_statement", "file_redirect", "file_descriptor"),
        *("herestring_redirect", "heredoc_redirect", "heredoc_start", "heredoc_body"),
        *("heredoc_content", "heredoc_end", "command_substitution", "process_substitution"),
        *("word", "number", "concatenation", "string", "string_content", "raw_string"),
        *("ansi_c_string", "simple_expansion", "expansion", "variable_name", "comment"),
        *("special_variable_name", "variable_assignment", "variable_assignments"),
        *("declaration_command", "unset_command", "test_command", "unary_expression"),
        *("binary_expression", "test_operator", "if_statement", "elif_clause", "else_clause"),
        *("while_statement", "for_statement", "do_group", "case_statement", "case_item"),
        "extglob_pattern",
    }
)
_EXPANSION = re.compile(rb"\$(?:\w+|[?#@*!$-]|\{(?:\w+|[?#@*!$-])\})")
_ANSI = re.compile(rb"\$'[^'\\]*'")
_RAW = re.compile(rb"'[^']*'")
_STRING = re.compile(rb'"(?:[^\\]|\\.)*"', re.DOTALL)
_VARIABLE = re.compile(rb"[a-z_][a-z0-9_]*")
_DECLARING_OPTION = re.compile(rb"-[xrgp]+")
_OPERATOR = re.compile(rb"-(?:[a-uw-zGLNOS]|[a-z]{2})")
_COMPARING = frozenset({b"=", b"==", b"!=", b"!", b"[", b"]"})
_ONE_LINE = frozenset(
    {
        *("command", "file_redirect", "herestring_redirect", "declaration_command"),
        *("unset_command", "test_command", "unary_expression", "binary_expression"),
        *("variable_assignment", "variable_assignments", "simple_expansion", "expansion"),
    }
)
_GAP = re.compile(rb"(?:[ \t]|\\\n)*")
_TEXT = frozenset({"raw_string", "ansi_c_string", "word"})
_BESIDE_HEREDOC = frozenset(
    {
        *("<<", "<<-", "|", "|&", "&&", "||", "heredoc_start", "heredoc_body", "heredoc_end"),
        *("file_redirect", "pipeline", "command", "list", "redirected_statement"),
    }
)
_LITERAL_BRACES = re.compile(r"\{\}|(?<=@)\{\w+\}|\\.")
_BRACE = re.compile(r"[{}]")


def is_plain(nodes: "Sequence[Node]", parents: "Mapping[int, Node]") -> bool:
    """Whether every node of a line is of a kind that hides nothing."""
    return all(not each.is_named or _is_part(each, parents) or _is_plain(each) for each in nodes)


def _is_part(node: "Node", parents: "Mapping[int, Node]") -> bool:
    """Whether a bare word belongs to what stands around it, and is judged with that."""
    parent = parents.get(node.id)
    return node.type == "word" and parent is not None and parent.type == "concatenation"


def _is_plain(node: "Node") -> bool:
    text = node.text or b""
    if node.type not in _KINDS or (node.type in _ONE_LINE and not _is_one_line(node, text)):
        return False
    return _CHECKS.get(node.type, _is_any)(node, text)


def _is_any(node: "Node", text: bytes) -> bool:
    return True


def _is_one_line(node: "Node", text: bytes) -> bool:
    """Whether nothing that must stand on one line contains a line end."""
    start = node.start_byte
    return all(
        _GAP.fullmatch(text, one.end_byte - start, other.start_byte - start)
        for one, other in pairwise(node.children)
    ) and not any(
        not each.children and each.type not in _TEXT and b"\n" in (each.text or b"")
        for each in node.children
    )


def _is_braced(node: "Node", text: bytes) -> bool:
    return text.startswith(b"{")


def _is_for(node: "Node", text: bytes) -> bool:
    """Whether the variable affects no program."""
    name = node.child_by_field_name("variable")
    return text.startswith(b"for") and name is not None and _is_own(name.text or b"")


def _is_own(name: bytes) -> bool:
    return bool(_VARIABLE.fullmatch(name)) and os.fsdecode(name) not in os.environ


def _is_declaration(node: "Node", text: bytes) -> bool:
    return all(
        each.type in ("variable_assignment", "variable_name")
        or (each.type == "word" and _DECLARING_OPTION.fullmatch(each.text or b""))
        for each in node.named_children
    )


def _is_unset(node: "Node", text: bytes) -> bool:
    return all(each.type == "variable_name" for each in node.named_children)


def _is_test(node: "Node", text: bytes) -> bool:
    # The shell splits unquoted text there, and may see other tests in it.
    return (
        not text.startswith(b"[[")
        and all(each.is_named or (each.text in _COMPARING) for each in node.children)
        and not any(
            (each.type in ("simple_expansion", "expansion") and _names_variable(each))
            or each.text in (b"-v", b"-R")
            for each in node.named_children
        )
    )


def _names_variable(node: "Node") -> bool:
    return any(each.type == "variable_name" for each in node.named_children)


def _is_heredoc(node: "Node", text: bytes) -> bool:
    return all(each.type in _BESIDE_HEREDOC for each in node.children)


def _is_command(node: "Node", text: bytes) -> bool:
    # A lone dollar belongs to what follows, which may be on the next line.
    return all(each.type != "$" for each in node.children)


def _is_joined(node: "Node", text: bytes) -> bool:
    is_whole = all(one.end_byte == other.start_byte for one, other in pairwise(node.children))
    return is_whole and _is_command(node, text) and _has_no_braces(node.children)


def _is_word(node: "Node", text: bytes) -> bool:
    return _has_no_braces([node])


def _has_no_braces(nodes: "Sequence[Node]") -> bool:
    """Whether the shell makes one word of it, and does not take it for a descriptor."""
    bare = "".join(
        (each.text or b"").decode("utf-8", "replace") if each.type in ("word", "number") else "_"
        for each in nodes
    )
    return not _BRACE.search(_LITERAL_BRACES.sub("", bare))


def _matches(pattern: re.Pattern[bytes]) -> "Callable[[Node, bytes], bool]":
    return lambda node, text: bool(pattern.fullmatch(text))


_CHECKS: "Mapping[str, Callable[[Node, bytes], bool]]" = {
    "ansi_c_string": _matches(_ANSI),
    "binary_expression": _is_test,
    "command": _is_command,
    "compound_statement": _is_braced,
    "concatenation": _is_joined,
    "declaration_command": _is_declaration,
    "expansion": _matches(_EXPANSION),
    "file_redirect": _is_command,
    "for_statement": _is_for,
    "heredoc_redirect": _is_heredoc,
    "herestring_redirect": _is_command,
    "raw_string": _matches(_RAW),
    "simple_expansion": _matches(_EXPANSION),
    "string": _matches(_STRING),
    "test_command": _is_test,
    "test_operator": _matches(_OPERATOR),
    "unary_expression": _is_test,
    "unset_command": _is_unset,
    "word": _is_word,
}


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
"""Nodes that may stand directly after a word."""
_LITERAL = frozenset({"raw_string", "ansi_c_string", "comment"})
_QUOTED = frozenset({"string", "heredoc_body"})
_TEXTUAL = frozenset({*_LITERAL, *_QUOTED, "expansion", "regex", "heredoc_redirect"})
_SUBSTITUTIONS = frozenset({"command_substitution", "process_substitution", "arithmetic_expansion"})
_ARGUMENTS = frozenset({"word", "concatenation", "string", "raw_string", "ansi_c_string"})
_BEFORE_COMMENT = frozenset(b" \t\n;&|()")


class _Stretches:
    """Stretches of a line, for looking up which positions are in one."""

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
    """Whether bash would split a line into other words."""
    text = _Stretches(each.byte_range for each in nodes if each.type in _TEXTUAL)
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


def _is_plain_word(node: "Node", text: bytes) -> bool:
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
    "word": _is_plain_word,
}


def _hides_substitution(
    source: bytes,
    nodes: "Sequence[Node]",
    parents: "Mapping[int, Node]",
    literal: _Stretches,
    quoted: _Stretches,
) -> bool:
    """Whether something runs inside a word that the grammar takes for text, or could run because
    the text is not an argument of a program but is read by the shell itself."""
    starts = {each.start_byte for each in nodes if each.type in _SUBSTITUTIONS}
    ticks = [
        each
        for each in nodes
        if each.type == "command_substitution"
        and source[each.start_byte : each.start_byte + 1] == b"`"
    ]
    ends = {each.end_byte - 1 for each in ticks}
    # Escapes inside backticks are removed before the text is read.
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
    """Whether only a program reads a text, or nothing does."""
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
    """Whether bash would see another end of the here-document."""
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
