"""Finds every simple command of a command line, at any depth of nesting, without running any of it.

The grammar does not see everything that bash does. Whenever a construct could hide a command, the
line counts as uncertain: it is better to ask the user once too often.
"""

import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from kedge.agent.shell.certainty import is_hiding, is_plain
from kedge.agent.shell.expansion import Variables, variables
from kedge.agent.shell.options import values
from kedge.agent.shell.paths import MOVING, TOUCHING, named
from kedge.agent.shell.words import ShellWord, read_word, source_of
from kedge.agent.shell.wrappers import READ, Words, inside

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

    Parents: TypeAlias = dict[int, Node]
    """The parent of each node, by the node's id. Looking it up in the tree is slow."""

_LONGEST = 16 * 1024
_MOST_PIPES = 1000
"""With more than this, in a line with an error, the parser takes minutes, or all memory."""
_DEEPEST = 8
"""How deeply nested commands are searched: `env nice sudo ls`, `bash -c 'eval "ls"'`."""
_MOST_NESTED = 32
"""Nesting of substitutions: each command has the text of everything in it."""
_MOST_STEPS = 64_000
"""Nodes and words to process before a line counts as not understood."""
_CHUNK = 64
_READ_AGAIN = 16
"""How often the parser may read a line, chunk by chunk. Most are read once or twice; in a wrong one
it may read the rest again at every byte."""
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
_SUBSTITUTIONS = ("command_substitution", "process_substitution")
_LISTING = re.compile(
    r"(?:fd|fdfind|find|ls|seq)\b|git (?:-\S+ )*(?:diff|ls-files|status)\b"
    r"|(?:git |[ef])?grep .*-\w*[lL]|rg .*(?:-\w*l|--files)"
    r"|printf (?:(['\"])%s\\[n0]\1(?: [\w./'\"-]+)+|(['\"])[\w./-]+(?:\\n[\w./-]*)*\2)$"
)
"""The beginnings of commands that print names of files."""
_PASSING_ON = frozenset({"egrep", "fgrep", "grep", "head", "rg", "shuf", "sort", "tail", "uniq"})
"""Programs that print some of the lines that they read."""
_HELD_ELSEWHERE = ("/dev/", "/proc/")
_CHAINS = ("list", "pipeline", "negated_command")
_REDIRECTS = ("file_redirect", "herestring_redirect", "heredoc_redirect")
_DECLARING = ("declaration_command", "unset_command", "variable_assignment", "variable_assignments")
_UNKNOWN_SOURCE = "…"
_SPACES = re.compile(r"\s+")
_FEEDING = ("heredoc_redirect", "herestring_redirect")


_NO_VARIABLES = Variables()


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """A simple command, or an assignment that stands alone."""

    text: str
    """As it is written, with its redirections; empty for a redirection of several commands."""
    words: tuple[ShellWord, ...]
    files: tuple[ShellWord, ...] = ()
    """The files that its output goes to or that its input comes from."""
    assigned: str = ""
    """The assignments before it."""
    is_fed: bool = False
    """Whether the line itself contains its input,"""
    is_piped: bool = False
    """or its input is another command's output."""
    fed_by: str = ""
    """The beginning of its pipe, if the commands in between only filter."""
    is_declared: bool = False
    """Whether it is an assignment, or a command that is parsed as one."""
    written: tuple[ShellWord, ...] = ()
    """The files that its output goes to."""
    variables: Variables = _NO_VARIABLES
    """The values of its variables."""

    @property
    def name(self) -> str:
        """The program, without its folder."""
        return os.path.basename(self.words[0].value) if self.words else ""

    @property
    def values(self) -> tuple[str, ...]:
        """The values of its words."""
        return tuple(word.value for word in self.words)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line."""

    commands: tuple[SimpleCommand, ...]
    """In the order in which they stand; commands that one runs come after it."""
    is_certain: bool
    """Whether these are all, and their programs are known."""
    steps: int = 0
    """How many steps the analysis took."""


@dataclass(slots=True)
class _Budget:
    """A limit on the analysis. Not a time limit: a thread cannot be stopped."""

    spent: int = 0

    def spend(self, steps: int) -> bool:
        """Use so many steps; return whether there were enough left."""
        self.spent += steps
        return self.spent <= _MOST_STEPS


@dataclass(slots=True)
class _Tree:
    """The result of the grammar."""

    nodes: "list[Node]" = field(default_factory=list)
    """In the order in which they stand."""
    parents: "Parents" = field(default_factory=dict)
    piped: dict[int, str] = field(default_factory=dict)
    """Those behind a pipe, at any depth, with the program at its start."""
    depth: int = 0
    """The depth of nested substitutions."""


def commands(line: str) -> list[SimpleCommand] | None:
    """Every simple command of a line; None if that is not certain."""
    found = parse(line)
    return list(found.commands) if found.is_certain else None


def parse(line: str) -> CommandLine:
    """Analyse a line."""
    budget = _Budget()
    found = _parse(line, 0, budget, ())
    return replace(found, steps=budget.spent)


@cache
def _parser() -> "Parser":
    # Imported late: only programs that run commands pay for the import.
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def _parse(line: str, depth: int, budget: _Budget, outer: Collection[str]) -> CommandLine:
    source = line.encode("utf-8", "replace")
    if len(source) > _LONGEST or source.count(b"|") > _MOST_PIPES or depth > _DEEPEST:
        return CommandLine((), False)
    if not _is_read_quickly(source):
        return CommandLine((), False)
    root = _parser().parse(source).root_node
    if not budget.spend(root.descendant_count):
        return CommandLine((), False)
    tree = _tree(root)
    if tree.depth > _MOST_NESTED:
        return CommandLine((), False)
    hides = is_hiding(source, tree.nodes, tree.parents)
    certain = not root.has_error and not hides and is_plain(tree.nodes, tree.parents)
    found: list[SimpleCommand] = []
    inner = [*outer, *_set_in(tree.nodes)]
    for node in tree.nodes:
        command = _command(node, tree)
        if command is not None:
            found.append(command)
            certain &= _follow(command.words, found, depth, budget, inner)
            certain &= not _reads_names(command)
        elif node.type == "for_statement":
            given = [read_word(each) for each in node.children_by_field_name("value")]
            found.append(SimpleCommand("", (ShellWord("for", "for", True), *given)))
    told = variables(tree.nodes, tree.parents, map(_words_of, found), outer)
    certain = certain and not any(
        told.is_read(word) or any(each.is_guessed for each in named(word, told))
        for command in found
        for word in (*command.words[1:], *command.files)
        if command.name in TOUCHING or command.name in MOVING or word in command.files
    )
    known = (
        each if each.variables is not _NO_VARIABLES else replace(each, variables=told)
        for each in found
    )
    return CommandLine(tuple(known), certain)


def _reads_names(command: SimpleCommand) -> bool:
    """Whether a command gets names of files to touch from something that does not list files."""
    if command.name != "xargs" or not any(word.value in TOUCHING for word in command.words):
        return False
    is_listed = not command.is_piped or _LISTING.match(command.fed_by) is not None
    return (
        command.is_fed
        or not is_listed
        or any(True for _ in values(command.words, "-a", "--arg-file"))
    )


def _set_in(nodes: "Iterable[Node]") -> "Iterable[str]":
    """The names of variables that are set anywhere in a line."""
    for node in nodes:
        field = {"variable_assignment": "name", "for_statement": "variable"}.get(node.type)
        name = node.child_by_field_name(field) if field else None
        if name is not None:
            yield source_of(name)


def _words_of(command: SimpleCommand) -> Sequence[ShellWord]:
    return () if command.is_declared and command.variables is _NO_VARIABLES else command.words


def _is_read_quickly(source: bytes) -> bool:
    """Whether the parser reaches the end of a line without reading it again and again."""
    left = _READ_AGAIN * (len(source) // _CHUNK + 1)

    def read(at: int, _: object) -> bytes:
        nonlocal left
        left -= 1
        return source[at : at + _CHUNK] if left >= 0 else b""

    _parser().parse(read)
    return left >= 0


def _follow(
    words: Words, found: list[SimpleCommand], depth: int, budget: _Budget, outer: Collection[str]
) -> bool:
    """Add what a command runs in turn; return whether that is certain."""
    if not words:
        return True
    if not budget.spend(len(words)):
        return False
    name = words[0]
    certain = name.is_told and not name.is_pattern and name.value not in _RESERVED
    certain &= not name.value.startswith(_HELD_ELSEWHERE)
    for inner in inside(words):
        if inner is None or depth > _DEEPEST:
            certain = False
        elif isinstance(inner, str):
            line = _parse(inner, depth + 1, budget, outer)
            found += line.commands
            certain &= line.is_certain
        else:
            shown = tuple(word for word in inner if word is not READ)
            found.append(SimpleCommand(" ".join(word.shown for word in shown), shown))
            certain &= _follow(inner, found, depth + 1, budget, outer)
    return certain


def _tree(root: "Node") -> _Tree:
    """All nodes, and their positions."""
    found = _Tree()
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        depth += node.type in _SUBSTITUTIONS
        found.depth = max(found.depth, depth)
        found.nodes.append(node)
        source = found.piped.get(node.id)
        children = node.children
        for at, child in enumerate(children):
            found.parents[child.id] = node
            if at and node.type == "pipeline":
                source = _source(source or "", at, children)
            if source is not None:
                found.piped[child.id] = source
        waiting += [(child, depth) for child in reversed(children)]
    return found


def _source(before: str | None, at: int, children: "Sequence[Node]") -> str:
    """The source of a pipe's next command, given what the one before it does."""
    if at == 1:
        return before or _beginning_of(children[0])
    is_passed_on = not children[at - 1].is_named or (
        _beginning_of(children[at - 1]).partition(" ")[0] in _PASSING_ON
    )
    return (before or "") if is_passed_on else _UNKNOWN_SOURCE


def _beginning_of(node: "Node") -> str:
    return " ".join((node.text or b"")[: 4 * _CHUNK].decode("utf-8", "replace").split())


def _command(node: "Node", tree: _Tree) -> SimpleCommand | None:
    parents = tree.parents
    if node.type in _DECLARING:
        parent = parents.get(node.id)
        # Those before a command, or among others, are handled with the command.
        if parent is not None and parent.type in ("command", *_DECLARING):
            return None
        text = source_of(node)
        words = tuple(ShellWord(each, each, True) for each in _SPACES.split(text))
        return SimpleCommand(text, words, is_declared=True)
    if node.type == "file_redirect":
        return _redirection(node, parents)
    return _simple(node, tree) if node.type == "command" else None


def _redirection(node: "Node", parents: "Parents") -> SimpleCommand | None:
    """A redirection that belongs to no simple command."""
    parent = parents.get(node.id)
    if parent is not None and parent.type == "heredoc_redirect":
        parent = parents.get(parent.id)
    body = None if parent is None else parent.child_by_field_name("body")
    if (parent is not None and parent.type == "command") or (body and _last_simple(body)):
        return None
    file, words = _destinations(node)[:1], _destinations(node)[1:]
    text = "" if body and not words else source_of(node)
    written = file if _is_output(node) else ()
    return SimpleCommand(text, tuple(words), tuple(file), written=tuple(written))


def _last_simple(body: "Node") -> "Node | None":
    """The simple command that a redirection after several belongs to, if it is one."""
    last: Node | None = body
    while last is not None and last.type in _CHAINS:
        last = last.named_child(last.named_child_count - 1)
    return last if last is not None and last.type == "command" else None


def _simple(node: "Node", tree: _Tree) -> SimpleCommand:
    words: list[ShellWord] = []
    files: list[ShellWord] = []
    written: list[ShellWord] = []
    assigned: list[str] = []
    is_fed = False
    for child in node.children:
        if child.type == "variable_assignment":
            assigned.append(source_of(child))
        elif child.type == "command_name":
            words.append(read_word(child.children[0]))
        elif child.type in _REDIRECTS:
            files += _destinations(child)[:1]
            written += _destinations(child)[:1] if _is_output(child) else ()
            is_fed |= _feeds(child)
        elif child.type != "subshell":
            words.append(read_word(child))
    text = [source_of(node)]
    for redirect in _redirects_of(node, tree.parents):
        is_fed |= _feeds(redirect)
        if redirect.type in _FEEDING:
            words += map(read_word, redirect.children_by_field_name("argument"))
            continue
        destinations = _destinations(redirect)
        text.append(source_of(redirect))
        files += destinations[:1]
        written += destinations[:1] if _is_output(redirect) else ()
        # Words after the name of the file belong to the command.
        words += destinations[1:]
    is_piped = node.id in tree.piped
    return SimpleCommand(
        " ".join(text),
        tuple(words),
        tuple(files),
        " ".join(assigned),
        is_fed,
        is_piped,
        written=tuple(written),
        fed_by=tree.piped.get(node.id, ""),
    )


def _is_output(redirect: "Node") -> bool:
    file = redirect.child_by_field_name("destination")
    end = redirect.end_byte if file is None else file.start_byte
    return b">" in (redirect.text or b"")[: end - redirect.start_byte]


def _feeds(redirect: "Node") -> bool:
    return source_of(redirect).lstrip("0123456789").startswith("<")


def _redirects_of(node: "Node", parents: "Parents") -> "list[Node]":
    """The redirections of files after a simple command."""
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


def _destinations(redirect: "Node") -> list[ShellWord]:
    """The file of a redirection, and the words after it."""
    if redirect.type != "file_redirect":
        return []
    found = [read_word(each) for each in redirect.children_by_field_name("destination")]
    operator = next((source_of(each) for each in redirect.children if not each.is_named), "")
    if operator.endswith("&") and found and re.fullmatch(r"\d*-?", found[0].value):
        # Another descriptor and no file; words may still follow.
        found[0] = ShellWord("/dev/null", found[0].source, True)
    return found
