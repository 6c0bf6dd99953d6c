"""Whether a line consists of plain things only: those of which it is certain what bash does.

Whatever else there is (arithmetic, `[[`, subscripts, operators in `${…}`, functions) could run text
that looks like no command at all. It is not judged here one by one; a person is asked.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
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
    """Whether a bare word is one with what stands around it, and judged with that."""
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
    """Whether no line ends inside of what must stand on one."""
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
    """Whether the variable is one that no program looks at."""
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
    # The shell divides what stands there without quotes, and may see other questions in it.
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
    # A dollar of its own belongs to what follows, which may be on the next line.
    return all(each.type != "$" for each in node.children)


def _is_joined(node: "Node", text: bytes) -> bool:
    is_whole = all(one.end_byte == other.start_byte for one, other in pairwise(node.children))
    return is_whole and _is_command(node, text) and _has_no_braces(node.children)


def _is_word(node: "Node", text: bytes) -> bool:
    return _has_no_braces([node])


def _has_no_braces(nodes: "Sequence[Node]") -> bool:
    """Whether the shell makes one word of it, and takes it for no descriptor."""
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
