"""Every simple command of a command line, wherever in it it hides, without running any of it.

The grammar does not see everything that bash does. Whatever could hide a command from it makes a
line uncertain: better to ask a person once too often.
"""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from kedge.agent.shells.hiding import is_hiding
from kedge.agent.shells.paths import MOVING, TOUCHING, named
from kedge.agent.shells.plainness import is_plain
from kedge.agent.shells.words import Word, read_word, source_of
from kedge.agent.shells.wrapping import inside

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

    Parents: TypeAlias = dict[int, Node]
    """What each node is part of, by the node's id. Looking it up in the tree is slow."""

_LONGEST = 16 * 1024
_MOST_PIPES = 1000
"""Over more than this, in a line with an error, the parser takes minutes, or all memory."""
_DEEPEST = 8
_RESERVED = frozenset(
    [
        "case",
        "coproc",
        "do",
        "done",
        "elif",
        "else",
        "esac",
        "fi",
        "for",
        "function",
        "if",
        "in",
        "select",
        "then",
        "until",
        "while",
        "{",
        "}",
        "[[",
        "]]",
    ]
)
_CHAINS = ("list", "pipeline", "negated_command")
_REDIRECTS = ("file_redirect", "herestring_redirect", "heredoc_redirect")
_DECLARING = ("declaration_command", "unset_command", "variable_assignment", "variable_assignments")
_SPACES = re.compile(r"\s+")
_LEADS_AWAY = re.compile(r"^[/~-]|(?:^|/)\.\.|(?:^|/)\.+[*?\[]")
_ODD_HOME = re.compile(r"~[-+\d]")
_FEEDING = ("heredoc_redirect", "herestring_redirect")


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command, or an assignment that stands alone."""

    text: str
    """As it is written, with its redirections; empty for a redirection of several commands."""
    words: tuple[Word, ...]
    files: tuple[Word, ...] = ()
    """The files that its output goes to or that its input comes from."""
    assigned: str = ""
    """The assignments before it."""
    is_fed: bool = False
    """Whether the line itself has the text that it reads,"""
    is_piped: bool = False
    """or it reads what another command writes."""

    @property
    def name(self) -> str:
        """The program, without its folder."""
        return os.path.basename(self.words[0].value) if self.words else ""

    @property
    def values(self) -> tuple[str, ...]:
        """What its words say."""
        return tuple(word.value for word in self.words)


@dataclass(frozen=True, slots=True)
class Line:
    """A command line."""

    commands: tuple[Command, ...]
    """In the order in which they stand; those that a command runs come after it."""
    is_certain: bool
    """Whether these are all, and it is known which programs they are."""
    tame: frozenset[str] = frozenset()
    """Variables that hold nothing but the shell's own folders or names of files below them."""


def commands(line: str) -> list[Command] | None:
    """Every simple command of a line; None if it cannot be told for certain."""
    found = parse(line)
    return list(found.commands) if found.is_certain else None


def parse(line: str) -> Line:
    """What can be told of a line."""
    return _parse(line, 0)


@cache
def _parser() -> "Parser":
    # Only programs that run commands wait for what it imports.
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def _parse(line: str, depth: int) -> Line:
    source = line.encode("utf-8", "replace")
    if len(source) > _LONGEST or source.count(b"|") > _MOST_PIPES or depth > _DEEPEST:
        return Line((), False)
    root = _parser().parse(source).root_node
    nodes, parents = _nodes(root)
    certain = not root.has_error and not is_hiding(source, nodes) and is_plain(nodes)
    found: list[Command] = []
    for node in nodes:
        command = _command(node, parents)
        if command is not None:
            found.append(command)
            certain &= _follow(command.words, found, depth)
    tame = _tame(nodes, found)
    certain = certain and all(_is_placed(command, tame) for command in found)
    return Line(tuple(found), certain, tame)


def _tame(nodes: "list[Node]", found: list[Command]) -> frozenset[str]:
    """The variables of which it is known where they lead."""
    tame = {"HOME", "PWD"}
    # Assignments are commands here, and those such as `read` take names as words.
    wild = {word.value for command in found for word in command.words}
    wild |= {each for command in found for each in command.assigned.split()}
    wild = {each.partition("=")[0].rstrip("+") for each in wild}
    for node in nodes:
        name = node.child_by_field_name("variable") if node.type == "for_statement" else None
        if name is not None:
            values = [read_word(each) for each in node.children_by_field_name("value")]
            is_below = values and not any(map(_leads_away, values))
            (tame if is_below else wild).add(source_of(name))
    return frozenset(tame - wild)


def _leads_away(word: Word) -> bool:
    return not word.is_fixed or bool(_LEADS_AWAY.search(word.value))


def _is_placed(command: Command, tame: Collection[str]) -> bool:
    """Whether it is known where the files are that a command surely touches."""
    is_moving = command.name in MOVING
    if is_moving and any(word.value == "-" for word in command.words[1:]):
        return False
    touched = command.words[1:] if is_moving or command.name in TOUCHING else ()
    return all(named(word, tame).is_known for word in (*command.files, *touched)) and not any(
        _ODD_HOME.match(word.source) for word in command.words
    )


def _follow(words: tuple[Word, ...], found: list[Command], depth: int) -> bool:
    """Add what a command runs in turn; tells whether that is certain."""
    if not words:
        return True
    name = words[0]
    certain = name.is_fixed and not name.is_pattern and name.value not in _RESERVED
    for inner in inside(words):
        if inner is None or depth > _DEEPEST:
            certain = False
        elif isinstance(inner, str):
            line = _parse(inner, depth + 1)
            found += line.commands
            certain &= line.is_certain
        else:
            command = Command(" ".join(word.shown for word in inner), tuple(inner))
            found.append(command)
            certain &= _follow(command.words, found, depth + 1)
    return certain


def _nodes(root: "Node") -> "tuple[list[Node], Parents]":
    """All nodes in the order in which they stand, and what each is part of."""
    found = []
    parents: Parents = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        found.append(node)
        for child in node.children:
            parents[child.id] = node
        waiting += reversed(node.children)
    return found, parents


def _command(node: "Node", parents: "Parents") -> Command | None:
    if node.type in _DECLARING:
        parent = parents.get(node.id)
        # Those before a command, or among others, are told with them.
        if parent is not None and parent.type in ("command", *_DECLARING):
            return None
        text = source_of(node)
        return Command(text, tuple(Word(each, each, True) for each in _SPACES.split(text)))
    if node.type == "file_redirect":
        return _redirection(node, parents)
    return _simple(node, parents) if node.type == "command" else None


def _redirection(node: "Node", parents: "Parents") -> Command | None:
    """A redirection that belongs to no simple command."""
    parent = parents.get(node.id)
    if parent is not None and parent.type == "heredoc_redirect":
        parent = parents.get(parent.id)
    body = None if parent is None else parent.child_by_field_name("body")
    if (parent is not None and parent.type == "command") or (body and _last_simple(body)):
        return None
    file, words = _destinations(node)[:1], _destinations(node)[1:]
    text = "" if body and not words else source_of(node)
    return Command(text, tuple(words), tuple(file))


def _last_simple(body: "Node") -> "Node | None":
    """The simple command that a redirection after several belongs to, if it is one."""
    last: Node | None = body
    while last is not None and last.type in _CHAINS:
        last = last.named_child(last.named_child_count - 1)
    return last if last is not None and last.type == "command" else None


def _simple(node: "Node", parents: "Parents") -> Command:
    words: list[Word] = []
    files: list[Word] = []
    assigned: list[str] = []
    is_fed = False
    for child in node.children:
        if child.type == "variable_assignment":
            assigned.append(source_of(child))
        elif child.type == "command_name":
            words.append(read_word(child.children[0]))
        elif child.type in _REDIRECTS:
            files += _destinations(child)[:1]
            is_fed |= _feeds(child)
        elif child.type != "subshell":
            words.append(read_word(child))
    text = [source_of(node)]
    for redirect in _redirects_of(node, parents):
        is_fed |= _feeds(redirect)
        if redirect.type in _FEEDING:
            words += map(read_word, redirect.children_by_field_name("argument"))
            continue
        destinations = _destinations(redirect)
        text.append(source_of(redirect))
        files += destinations[:1]
        # Whatever follows the name of the file is a word of the command.
        words += destinations[1:]
    is_piped = _is_piped(node, parents)
    return Command(" ".join(text), tuple(words), tuple(files), " ".join(assigned), is_fed, is_piped)


def _feeds(redirect: "Node") -> bool:
    return source_of(redirect).lstrip("0123456789").startswith("<")


def _is_piped(node: "Node", parents: "Parents") -> bool:
    """Whether a command stands, in whatever it stands, behind a pipe."""
    parent = parents.get(node.id)
    while parent is not None:
        if parent.type == "pipeline" and parent.children[0].id != node.id:
            return True
        node, parent = parent, parents.get(parent.id)
    return False


def _redirects_of(node: "Node", parents: "Parents") -> "list[Node]":
    """The redirections of files that stand after a simple command."""
    body, parent = node, parents.get(node.id)
    while parent is not None and parent.type in _CHAINS and parent.end_byte == body.end_byte:
        body, parent = parent, parents.get(parent.id)
    if parent is None or parent.type != "redirected_statement":
        return []
    if parent.child_by_field_name("body") != body:
        return []
    found: list[Node] = []
    for each in parent.children_by_field_name("redirect"):
        found.append(each)
        if each.type == "heredoc_redirect":
            found += each.children_by_field_name("redirect")
    return found


def _destinations(redirect: "Node") -> list[Word]:
    """The file of a redirection, and the words that stand after it."""
    if redirect.type != "file_redirect":
        return []
    found = [read_word(each) for each in redirect.children_by_field_name("destination")]
    operator = next((source_of(each) for each in redirect.children if not each.is_named), "")
    if operator.endswith("&") and found and re.fullmatch(r"\d*-?", found[0].value):
        # Another descriptor and no file; words may still follow.
        found[0] = Word("/dev/null", found[0].source, True)
    return found
