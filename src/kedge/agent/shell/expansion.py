"""The values of variables and command substitutions in a command line, as far as they can be known
before it runs."""

import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeAlias

from kedge.agent.shell.words import ShellWord, WordPiece, read_word, source_of

if TYPE_CHECKING:
    from tree_sitter import Node

BELOW = "…"
"""Stands for names in the command's folder or below (or for words that are no files, such as
numbers)."""
SCRATCH = "…scratch"
"""The name of what `mktemp` makes: new, and the command's own."""

HERE = "./."
"""The folder of the command as an absolute path: without the end it would be another one."""
_FOLDERS = {
    "pwd": HERE,
    "pwd -P": HERE,
    "git rev-parse --git-dir": f"{HERE}/.git",
    "git rev-parse --show-toplevel": HERE,
}
"""Commands that print the folder they are in."""
_SIMPLE = re.compile(
    r"arch|hostname(?: -[fs])?|id -[gnu]+|nproc(?: --all)?|uname(?: -[mnrsv]+)?|whoami"
    r"|seq(?: -w)?(?: -?[\d.]+){1,3}"
    r"|date(?: -u| -I\w*| --utc| -d (?:'[^']*'|\"[^\"$`]*\"))*"
    r"(?: (?:\+[\w%:.-]+|'\+[^'/]+'|\"\+[\w%:. -]+\"))?"
    r"|git rev-parse(?: --short(?:=\d+)?| --abbrev-ref| --verify| -q)*(?: [\w@^.-]+)?"
    r"|git branch --show-current|git rev-list --count [\w.-]+"
    r"|git describe(?: --(?:tags|always|dirty))*"
    r"|git log -1 --(?:format|pretty)=['\"]?(?:format:)?%[hHct]+['\"]?(?: [\w.-]+)?"
    r"|wc -[clw]+ < [\w-][\w./-]*"
)
"""Commands that print numbers, dates, hashes and names that cannot lead out of the folder."""
_QUIET = re.compile(r"\s*2>\s*/dev/null(?=$|[\s|])")
_QUOTED = re.compile(r"'[^']*'")
_ODD = re.compile(r"[$`\\{}\n;&<>()]|\|\|")
_LEADS_AWAY = re.compile(r"(?:^|[=:,])[/~]|(?:^|[/=:])\.\.(?:/|$)")
_FILTERS = {
    "sort": re.compile(r"-[bdfginruRVhz]+"),
    "uniq": re.compile(r"-[cdiu]+"),
    "head": re.compile(r"-?[nc]?|-n?\d+|-?\d+"),
    "tail": re.compile(r"-?[nc]?|-n?\+?\d+|[-+]?\d+"),
    "wc": re.compile(r"-[clmw]+"),
}
"""Programs that filter or count lines, and the only words that they may have."""
_GREP_FILTER = re.compile(r"-[EFGPaivwxc]+|-m\d*|-e|\d+")
_LIST_FILES = re.compile(r"-[acEFGHiIlLnPRrsvwxz]*[lL][acEFGHiIlLnPRrsvwxz]*|--files-w\S+")
_RG_FILES = re.compile(r"-[FHILSUainsuvwx.]*l[FHILSUainsuvwx.]*|--files\S*")
_FIND_ODD = re.compile(r"-(?:printf|fprint\w*|exec\w*|ok\w*|files0-from|fls|ls)")
_FD_ODD = re.compile(
    r"-[xX].*|--exec\S*|--format\S*|--base-dir\S*|--search-path\S*|-C.*|--path-sep\S*"
)
_NO_HEADS = frozenset({"--pretty=", "--pretty=format:", "--format=", "--no-commit-id"})


def output(line: str) -> frozenset[str] | None:
    """Everything that a command line may print; None if that is not known."""
    line = _QUIET.sub("", line.strip())
    if line in _FOLDERS:
        return frozenset({_FOLDERS[line]})
    if _SIMPLE.fullmatch(line) and ".." not in line:
        return frozenset({BELOW})
    if _ODD.search(_QUOTED.sub("", line)):
        return None
    try:
        stages = [shlex.split(stage) for stage in _stages(line)]
    except ValueError:
        return None
    first, *filters = stages
    if first[:1] == ["mktemp"] and not filters:
        return frozenset({os.path.join(tempfile.gettempdir(), SCRATCH)})
    words = [word for stage in stages for word in stage]
    is_below = _lists(first) and all(map(_lets_through, filters))
    return frozenset({BELOW}) if is_below and not any(map(_LEADS_AWAY.search, words)) else None


def _stages(line: str) -> list[str]:
    """The commands of a pipe."""
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", lambda match: "_" * len(match[0]), line)
    ends = [*(at for at, sign in enumerate(bare) if sign == "|"), len(line)]
    return [line[start:end].strip("|") for start, end in zip([0, *ends], ends, strict=False)]


def _lists(words: Sequence[str]) -> bool:
    """Whether a command prints names of files below the folders that it names."""
    match words:
        case ["ls", *rest]:
            return not any(re.match(r"-\w*[afl]|--all|--format|-\w*[xm]", word) for word in rest)
        case ["find", *rest]:
            return not any(map(_FIND_ODD.fullmatch, rest))
        case ["fd" | "fdfind", *rest]:
            return not any(map(_FD_ODD.fullmatch, rest))
        case ["rg", *rest]:
            is_odd = any(word.startswith(("--path-sep", "--context-sep")) for word in rest)
            return any(map(_RG_FILES.fullmatch, rest)) and not is_odd
        case ["grep" | "egrep" | "fgrep", *rest]:
            return any(map(_LIST_FILES.fullmatch, rest))
        case ["git", verb, *rest]:
            return _git_lists(verb, rest)
        case _:
            return False


def _git_lists(verb: str, rest: Sequence[str]) -> bool:
    if verb == "grep":
        return any(map(_LIST_FILES.fullmatch, rest))
    if verb == "ls-files":
        return not any(re.match(r"--format|-\w*[st]|--stage|--eol|--debug", word) for word in rest)
    is_named = "--name-only" in rest and not any(word.startswith("--line-prefix") for word in rest)
    has_heads = verb in ("diff-tree", "log", "show") and not _NO_HEADS & set(rest)
    return is_named and not has_heads and verb in ("diff", "diff-tree", "log", "show")


def _lets_through(words: Sequence[str]) -> bool:
    name, rest = words[0] if words else "", words[1:]
    if name in ("grep", "egrep", "fgrep"):
        # One pattern, and no file: that would be read instead.
        return sum(not _GREP_FILTER.fullmatch(word) for word in rest) <= 1 and not any(
            word.startswith("-") and not _GREP_FILTER.fullmatch(word) for word in rest
        )
    allowed = _FILTERS.get(name)
    return allowed is not None and all(map(allowed.fullmatch, rest))


Values: TypeAlias = frozenset[str] | None
"""Everything that a variable may hold; None if that is not known."""

_MOST = 32
"""The largest number of values that are tracked."""
_MOST_PIECES = 100
_LONGEST = 4096
"""Characters of a path. Each variable may hold another one twice, and so grow without end."""
REST = "⋯"
"""Stands for the unknown rest of a word whose beginning is known: assumed to be below that."""
_NUMBERS = re.compile(r"BASHPID|E?UID|EPOCH\w+|LINENO|PPID|S?RANDOM|SECONDS|SHLVL")
"""Variables in which the shell keeps numbers."""
_SET_BY_SHELL = re.compile(
    r"_|BASH\w*|COMP_\w+|DIRSTACK|E?UID|EPOCH\w+|FUNCNAME|GROUPS|HOSTNAME|IFS|LINENO|OLDPWD|OPTARG"
    r"|OPTIND|PIPESTATUS|PPID|RANDOM|REPLY|SECONDS|SHLVL|SRANDOM|PWD"
)
_TAKING_NAMES = frozenset(
    {"declare", "getopts", "let", "local", "mapfile", "printf", "read", "readarray", "typeset"}
    | {"unset", "wait"}
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_USE = re.compile(r"\$\{?[#!]?([A-Za-z_]\w*)")
_READING = re.compile(
    r"while\s+(?:IFS=\S*\s+)?read\s+(?:-r\s+)?([A-Za-z_]\w*(?: [A-Za-z_]\w*)*)\s*;"
)
_PART = re.compile(r"(?:base|dir)name(?: --)? \"?\$\{?(\w+)\}?\"?(?: [\w.'\"-]+)?")
_HARMLESS = re.compile(
    r"%.*|##?(?:[^/]*/)+|,,?|\^\^?|:0:\d+|//?[^/]*/[\w.-]*\w[\w./-]*(?<!\.\.)", re.DOTALL
)
"""Changes of a variable after which a path below is still below: its end is cut off, or folders at
its beginning, or names in it are replaced."""
_SETTING = re.compile(r"\$\{\w+:?=")
_SEQUENCE = re.compile(r"\{\w+\.\.\w+(?:\.\.-?\d+)?\}")
_LIST = re.compile(r"\{([^{}]*,[^{}]*)\}")
_AROUND = ("list", "declaration_command", "variable_assignments")
_WILD = re.compile(r"[^/]*[*?\[][^/]*")
_WILD_DOTS = re.compile(r"(?:^|/)\.+[*?\[]")


class Variables:
    """The values of one line's variables.

    Every assignment anywhere in the line counts: the order of the commands is not known, nor
    whether they run.
    """

    def __init__(self, unknown: Iterable[str] = ()) -> None:
        self._values: dict[str, Values] = dict.fromkeys(unknown)
        self._read: set[str] = set()

    @property
    def names(self) -> set[str]:
        """The variables that the line sets."""
        return set(self._values)

    def values(self, name: str, *, with_environment: bool = True) -> Values:
        """What a variable may hold."""
        if name in self._values:
            return self._values[name]
        if name == "HOME":
            return frozenset({os.path.expanduser("~")})
        if name == "PWD":
            # The shell starts in that folder, and every path that is not absolute starts there.
            return frozenset({HERE})
        if _NUMBERS.fullmatch(name):
            return frozenset({BELOW})
        if _SET_BY_SHELL.fullmatch(name) or name not in os.environ or not with_environment:
            return None
        return frozenset({os.environ[name]})

    def add(self, name: str, values: Values) -> None:
        """Add an assignment."""
        known = self._values.get(name, frozenset())
        together = None if known is None or values is None else known | values
        self._values[name] = None if together is None else _few(together)

    def read(self, name: str) -> None:
        """Record that a loop reads it, line by line."""
        self._read.add(name)
        self.add(name, frozenset({BELOW}))

    def is_read_name(self, name: str) -> bool:
        """Whether a loop reads it."""
        return name in self._read

    def is_read(self, word: ShellWord) -> bool:
        """Whether a word depends on what a loop reads."""
        return any(piece.kind == "variable" and piece.text in self._read for piece in word.pieces)

    def texts(
        self, word: ShellWord, *, with_environment: bool = True
    ) -> Iterator[tuple[str, bool]]:
        """What a word may expand to, and whether that is all of it; otherwise only its beginning is
        known."""
        if len(word.pieces) > _MOST_PIECES:
            yield "", False
            return
        found = {"": True}
        whole = WordPiece(word.value, "text" if word.is_fixed else "unknown")
        for piece in word.pieces or (whole,):
            options = self._options(piece, with_environment)
            longer: dict[str, bool] = {}
            for text, is_whole in found.items():
                if options is None and is_whole and _is_firm(text):
                    longer[text + REST] = True
                elif not is_whole or options is None:
                    longer[text] = False
                else:
                    longer.update(dict.fromkeys((text + each for each in sorted(options)), True))
            found = longer if len(longer) <= _MOST else _together(longer)
            if not word.is_fixed and any(len(text) > _LONGEST for text in found):
                found = {"": False}
        yield from found.items()

    def _options(self, piece: WordPiece, with_environment: bool) -> Values:
        if piece.kind == "text":
            return frozenset({piece.text})
        if piece.kind == "output":
            return output(piece.text) or self._part_of(piece.text, with_environment)
        if piece.kind == "unknown":
            return None
        if piece.change:
            return _changed(self.values(piece.text, with_environment=with_environment), piece)
        if piece.default is None:
            return self.values(piece.text, with_environment=with_environment)
        # Without a name it is the alternative for a variable that is set.
        kept = self.values(piece.text) if piece.text else frozenset({""})
        return frozenset({piece.default}) | (kept or frozenset())

    def _part_of(self, line: str, with_environment: bool) -> Values:
        """The result of `dirname` and `basename` for a variable."""
        match = _PART.fullmatch(line)
        if match is None:
            return None
        values = self.values(match[1], with_environment=with_environment)
        return frozenset({BELOW}) if values and all(map(_is_below, values)) else None


def _is_firm(text: str) -> bool:
    """Whether a path with this beginning stays below it, whatever follows."""
    carried = text.partition("=")[2] if "=" in text.partition("/")[0] else text
    last = carried.rpartition("/")[2]
    is_home = carried.startswith("~") and "/" not in carried
    return bool(carried.strip("'\" ")) and not (
        carried.startswith("-") or "{" in carried or is_home or (last and not last.strip("."))
    )


def _is_below(text: str) -> bool:
    """Whether every part of a path leads to the command's folder or below."""
    return (
        bool(text)
        and not text.startswith(("/", "~", "-", HERE))
        and ".." not in text.split("/")
        and "//" not in text
    )


def _few(values: frozenset[str]) -> Values:
    """No more values than are tracked."""
    if len(values) <= _MOST:
        return values
    return frozenset({BELOW}) if all(map(_is_below, values)) else None


def _together(texts: Mapping[str, bool]) -> dict[str, bool]:
    """One text for too many values."""
    is_below = all(is_whole and _is_below(text) for text, is_whole in texts.items())
    return {BELOW: True} if is_below else {"": False}


def _changed(values: Values, piece: WordPiece) -> Values:
    """The values of a variable that is cut, or changed in some places."""
    if piece.change == "#":
        return frozenset({BELOW})
    if not values or not all(map(_is_below, values)) or not _HARMLESS.fullmatch(piece.change):
        return None
    return frozenset({BELOW})


def variables(
    nodes: "Sequence[Node]",
    parents: "Mapping[int, Node]",
    words: Iterable[Sequence[ShellWord]],
    outer: Iterable[str],
) -> Variables:
    """The variables of a line, given the words of its commands, and those that the enclosing line
    sets."""
    found = Variables(outer)
    used: dict[str, int] = {}
    for node in nodes:
        if node.type in ("simple_expansion", "expansion"):
            _use(node, found, used)
        elif node.type == "variable_assignment":
            _assign(node, parents, found, used)
        elif node.type == "for_statement":
            _loop(node, found)
        elif node.type == "while_statement":
            match = _READING.match(source_of(node))
            for name in match[1].split() if match else ():
                found.read(name)
    for each in words:
        _take_names(each, found)
    return found


def _use(node: "Node", found: Variables, used: dict[str, int]) -> None:
    source = source_of(node)
    name = _USE.match(source)
    if name:
        used.setdefault(name[1], node.start_byte)
    word = read_word(node)
    if not _SETTING.match(source):
        return
    if word.pieces[0].default is not None:
        found.add(word.pieces[0].text, frozenset({word.pieces[0].default}))
    elif name:
        found.add(name[1], None)


def _assign(
    node: "Node", parents: "Mapping[int, Node]", found: Variables, used: Mapping[str, int]
) -> None:
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name is None:
        return
    text = source_of(name)
    is_sure = _is_sure(node, parents) and text not in used
    if not is_sure and text not in found.names:
        # It may still have its old value.
        found.add(text, found.values(text) or frozenset({""}))
    if any(each.type == "+=" for each in node.children) or (value and value.type == "array"):
        found.add(text, None)
    elif value is None:
        found.add(text, frozenset({""}))
    else:
        word = read_word(value)
        found.add(text, _values(word, found, is_expanded=False))


def _is_sure(node: "Node", parents: "Mapping[int, Node]") -> bool:
    """Whether an assignment certainly happens before anything else."""
    parent = parents.get(node.id)
    while parent is not None and parent.type in _AROUND:
        if parent.type == "list" and parent.children[0].id != node.id:
            return False
        node, parent = parent, parents.get(parent.id)
    return parent is not None and parent.type == "program"


def _loop(node: "Node", found: Variables) -> None:
    name = node.child_by_field_name("variable")
    if name is None:
        return
    given = [read_word(each) for each in node.children_by_field_name("value")]
    for word in given:
        for each in _of_braces(word):
            found.add(source_of(name), _values(each, found, is_expanded=True))
    if not given:
        found.add(source_of(name), None)


def _of_braces(word: ShellWord) -> Iterator[ShellWord]:
    """The words that a loop iterates over for `{a,b}`."""
    if "{" not in word.source or {"'", '"', "\\", "$", "`"} & set(word.source):
        yield word
        return
    text = _SEQUENCE.sub(BELOW, word.source)
    match = _LIST.search(text)
    for option in match[1].split(",") if match else [""]:
        one = text[: match.start()] + option + text[match.end() :] if match else text
        yield word._replace(value=one, is_fixed="{" not in one, pieces=())


def _values(word: ShellWord, found: Variables, *, is_expanded: bool) -> Values:
    texts = list(found.texts(word))
    if not all(is_whole for _, is_whole in texts):
        return None
    if not is_expanded or not word.is_pattern:
        return frozenset(text for text, _ in texts)
    if any(_WILD_DOTS.search(text) or ".." in text for text, _ in texts):
        return None
    return frozenset(each for text, _ in texts for each in _matched(text))


def _matched(text: str) -> Iterator[str]:
    """What a pattern may match. git's own folder has to be named explicitly."""
    yield _WILD.sub(BELOW, text)
    names = text.split("/")
    meant = [name[:1] == "." and fnmatchcase(".git", name) for name in names]
    if any(meant):
        git = (".git" if is_git else name for name, is_git in zip(names, meant, strict=True))
        yield _WILD.sub(BELOW, "/".join(git))


def _take_names(words: Sequence[ShellWord], found: Variables) -> None:
    """The variables that commands set which take names of variables as words."""
    for word in words:
        match = _ASSIGNMENT.fullmatch(word.value)
        if match:
            is_told = word.is_fixed and not match[2] and not {"$", "`"} & set(match[3])
            found.add(match[1], frozenset({match[3].strip("'\"")}) if is_told else None)
    if words and words[0].value in _TAKING_NAMES:
        for word in words[1:]:
            if word.value.isidentifier() and not found.is_read_name(word.value):
                found.add(word.value, None)
