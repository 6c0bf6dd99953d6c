"""Programs that do more than their names say: they run other programs, or code that is not the
shell's.

What they run is looked up in their words. Where it is not there, the user should see the whole
command.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from kedge.agent.shell.options import has, leading, operands, values
from kedge.agent.shell.parser import SimpleCommand
from kedge.agent.shell.words import ShellWord
from kedge.agent.shell.wrappers import GIT_CODE_OPTIONS, RUNNING_VERBS, code_values, git_verb
from kedge.agent.shell.written_files import awk_runs, sed

Words: TypeAlias = Sequence[ShellWord]

_PYTHON = r"(?:python|pypy)[\d.]*"


class _Interpreter(NamedTuple):
    """How an interpreter is given code to run."""

    programs: re.Pattern[str]
    options: re.Pattern[str]
    """The arguments with which it runs the given code, not a file,"""
    letters: str = ""
    """and the options whose value is the next word."""
    names: Collection[str] = ()


_INTERPRETERS: Sequence[_Interpreter] = [
    _Interpreter(
        re.compile(_PYTHON), re.compile(r"-[^\WWXcm]*c.*|-"), "WXQm", ("--check-hash-based-pycs",)
    ),
    _Interpreter(
        re.compile(r"perl[\d.]*(?:-[\w-]+)?"), re.compile(r"-(?:[^\WIMmFCDxVeE]|\.)*[eEM].*|-"), "I"
    ),
    _Interpreter(
        re.compile(r"ruby[\d.]*"), re.compile(r"-(?:[^\WICEKFTWxre]|\.)*[er].*|-"), "ICEX"
    ),
    _Interpreter(re.compile(r"php[\d.]*"), re.compile(r"-[rBREdf].*|--run|-"), "ctSz"),
    _Interpreter(
        re.compile(r"node(?:js)?[\d.]*|bun|deno"),
        re.compile(
            r"-[ep]|-pe|-r.*|--(?:eval|print|require|import|(?:experimental-)?loader).*|eval|-"
        ),
        "C",
    ),
    _Interpreter(re.compile(r"groovy|scala"), re.compile(r"-e.*|-")),
    _Interpreter(re.compile(r"java"), re.compile(r"-XX:On.*|-agent.*|-javaagent.*")),
    _Interpreter(re.compile(r"[\w-]*tex"), re.compile(r"--?shell-escape|--?enable-write18")),
    _Interpreter(
        re.compile(
            r"lua[\d.]*|luajit|Rscript|R|julia|osascript|pwsh|guile|racket|elixir|ghc|ocaml"
        ),
        re.compile(r"-[ecE].*|--(?:eval|execute|command).*|-"),
    ),
]
_NODE = re.compile(r"node(?:js)?[\d.]*")
_NODE_FLAGS = re.compile(
    r"--(?:inspect.*|test|test-.*=.*|watch|check|no-.*|trace-.*|enable-.*|expose[-_]gc|harmony.*"
    r"|experimental-(?!loader).*|preserve-.*|[\w-]+=.*|help|version)"
)
"""Options of node that take no further word."""
_ALWAYS = re.compile(
    r"vi|vim|nvim|view|ex|ed|emacs|emacsclient|nano|dc|m4|tclsh[\d.]*|irb|ghci|crontab|ssh|sqlite3|psql"
    r"|mysql|mongosh?|gnuplot|octave|jshell|telnet|nc|ncat|socat|lftp|ftp|scheme|erl|pdb|wsl|pwsh"
    r"|powershell|adb|ansible|caffeinate|chronic|fab|flatpak-spawn|fly|flyctl|heroku|hyperfine|mosh"
    r"|nix-shell|nodemon|proot|proxychains4?|run-parts|torify|torsocks|vagrant|watchexec|dotenv"
)
"""Programs that run commands with any arguments."""
_SED = re.compile(r"[gs]?sed")
_AWK = re.compile(r"[gmn]?awk")
_GIT_HARMLESS = re.compile(
    r"(?:user|author|committer|color|advice|log|diff|status|column|init|push|pull|fetch|branch|tag"
    r"|http|gc|safe|commit|merge|rebase|rerere|format|feature|index|pack|protocol)\.[\w.-]+"
    r"|core\.(?:abbrev|autocrlf|commentchar|eol|filemode|ignorecase|longpaths|precomposeunicode"
    r"|preloadindex|quotepath|safecrlf|symlinks|untrackedcache|whitespace)",
    re.IGNORECASE,
)
"""Settings with which git runs nothing."""
_GIT_HARMFUL = re.compile(
    r"diff\.external|.*\.(?:textconv|command|driver|cmd|program|helper|tool|smudge|clean|process)"
    r"|init\.templatedir|.*\.path|protocol\..*allow|http\.(?:proxy|cookiefile|ssl\w+).*",
    re.IGNORECASE,
)
_GIT_ELSEWHERE = ("--exec-path=", "--config-env", "--git-dir", "--ext-diff", "ext::", "fd::")
_GIT_ALWAYS = frozenset(
    {"daemon", "filter-branch", "instaweb", "remote-ext", "remote-fd", "send-email", "shell"}
)
_RUNNING_MODULES = frozenset(
    {"asyncio", "cProfile", "code", "pdb", "profile", "runpy", "timeit", "trace"}
)
_READING = frozenset(
    {
        *("cat", "cmp", "comm", "cut", "diff", "grep", "head", "join", "jq", "less", "paste", "rg"),
        *("sdiff", "sort", "tail", "tee", "vimdiff", "wc", "while"),
    }
)
"""Programs that only read the files they are given."""
_TELLING = {
    "cargo": ("watch",),
    "gh": ("alias",),
    "ip": ("netns",),
    "mvn": ("exec:", "-Dexec."),
    "npm": ("scripts.", "script-shell"),
}
"""Words with which programs run others."""
_GIT_RUNNING = (("bisect", "run"), ("submodule", "foreach"))
_HARMLESS_VALUES = frozenset({"", ":", "0", "1", "cat", "echo", "false", "less", "more", "true"})
_POWERFUL = re.compile(
    r"PATH|LD_\w+|DYLD_\w+|BASH_[\w%]+|BASHOPTS|ENV|PROMPT_COMMAND|PS[0-4]|IFS|SHELL|SHELLOPTS|\w*PAGER"
    r"|\w*EDITOR|VISUAL|BROWSER|LESS(?:OPEN|CLOSE|KEY\w*)|GIT_(?!AUTHOR|COMMITTER|TERMINAL)\w+"
    r"|PYTHON(?:STARTUP|INSPECT|HOME|BREAKPOINT|PATH|WARNINGS)|PERL5\w+|PERLLIB|RUBY(?:OPT|LIB)"
    r"|NODE_(?:OPTIONS|PATH)|(?:_|JDK_)?JAVA\w*OPTIONS|MAKE(?:FLAGS|FILES)|GNUMAKEFLAGS|\w*ASKPASS"
    r"|TAR_OPTIONS|RSYNC_\w+|\w*_RSH|HOME|XDG_CONFIG_\w+|ZDOTDIR|MANOPT|GCONV_PATH|LUA_INIT\w*|PHPRC"
    r"|npm_config_\w+|NPM_CONFIG_\w+|CARGO_(?!INCREMENTAL|NET_OFFLINE|PROFILE_|TERM_)\w+|RUSTC\w*|CC|CXX|CDPATH|GLOBIGNORE|EXINIT|VIMINIT"
    r"|COMPRESS_PROGRAM|TMPDIR|OPENSSL_\w+|GREP_\w+|AWK\w+|SED\w*|FCEDIT|HISTFILE|INPUTRC|TERMINFO"
)
"""Variables that change which programs run, or what they do."""
_ASSIGNED = re.compile(r"(?:^|\s)([A-Za-z_]\w*)\+?=((?:\"[^\"]*\"|'[^']*'|\S)*)")
_ASSIGNMENT = re.compile(r"([A-Za-z_][\w%]*)\+?=(.*)", re.DOTALL)
_SHELLS_OWN = frozenset({"declare", "env", "export", "local", "readonly", "sudo", "typeset"})


def does_more(command: SimpleCommand) -> bool:
    """Whether a command runs, or may run, what its first words do not say."""
    words = command.words[1:]
    name = command.name
    if any(_is_powerful(*found) for found in _ASSIGNED.findall(command.assigned)):
        return True
    if name in ("read", "mapfile", "readarray", "printf", "getopts"):
        return any(_POWERFUL.fullmatch(word.value) for word in words)
    if command.is_declared or name in _SHELLS_OWN:
        assigned = (_ASSIGNMENT.fullmatch(word.value) for word in command.words)
        return any(match and _is_powerful(match[1], match[2]) for match in assigned)
    return (
        _ALWAYS.fullmatch(name) is not None
        or _is_interpreting(command)
        or any(True for _ in code_values(name, words))
        or _has_verb(name, words)
        or (name == "git" and _git_does_more(words))
        or (name == "find" and any(word.value in _FIND_CHANGES for word in words))
        or (name == "make" and _makes_more(words))
        or (name not in _READING and any(word.source.startswith("<(") for word in words))
        or any(word.value.startswith(_TELLING.get(name, ("\0",))) for word in words)
    )


_FIND_CHANGES = ("-delete", "-fprint", "-fprint0", "-fprintf", "-fls")


def _is_powerful(name: str, value: str) -> bool:
    value = value.strip("'\"")
    if name in _HARMLESS and _HARMLESS[name].fullmatch(value):
        return False
    return _POWERFUL.fullmatch(name) is not None and value not in _HARMLESS_VALUES


_HARMLESS: Mapping[str, re.Pattern[str]] = {
    "NODE_OPTIONS": re.compile(r"--max[-_]old[-_]space[-_]size=\d+|--no-\w+|--trace-\w+"),
    "PYTHONPATH": re.compile(r"(?:\.|\./src|src|lib|\$PWD|\$PYTHONPATH|:)+/?"),
    "PYTHONWARNINGS": re.compile(r"[a-z]+(?:::[A-Z]\w*Warning)?"),
}
"""Common values of variables that change no program: folders of the project are its own."""


def _is_interpreting(command: SimpleCommand) -> bool:
    words = command.words[1:]
    if _SED.fullmatch(command.name):
        return sed(words).runs
    if _AWK.fullmatch(command.name):
        return awk_runs(words)
    for known in _INTERPRETERS:
        if known.programs.fullmatch(command.name):
            return _is_given_code(known, command)
    return False


def _is_given_code(known: _Interpreter, command: SimpleCommand) -> bool:
    words: Words = command.words[1:]
    is_python = re.fullmatch(_PYTHON, command.name) is not None
    if is_python and _runs_module(words):
        return True
    own: Words = leading(words, known.letters, known.names)
    reads = command.is_fed or command.is_piped
    if _NODE.fullmatch(command.name):
        own = _of_node(words)
        is_doubtful = own and not _NODE_FLAGS.fullmatch(own[-1].value)
        if reads and is_doubtful and len(words) == len(own) + 1:
            return True
    at = next((at for at, each in enumerate(own) if has([each], "m", valued=known.letters)), None)
    if is_python and at is not None:
        # What follows belongs to the module.
        words = own = own[:at]
    is_read = len(own) == len(words) and at is None
    if is_python and reads:
        # After the file it goes on with its input.
        is_read |= has(own, "i", valued=known.letters)
    is_asked = any(word.value in ("-V", "-v", "--version", "--help") for word in words)
    return (is_read and not is_asked) or any(
        known.options.fullmatch(word.value) for word in words[: len(own) + 1]
    )


def _of_node(words: Words) -> Words:
    """The words that are, or may be, node's own: many of its options take the next one."""
    own = leading(words, "C")
    while own and own[-1].value.startswith("--") and not _NODE_FLAGS.fullmatch(own[-1].value):
        rest = words[len(own) + 1 :]
        if not any(word.value.startswith("-") for word in rest[:1]):
            break
        own = [*words[: len(own) + 1], *leading(rest, "C")]
    return own


def _runs_module(words: Words) -> bool:
    """Whether Python runs a module that runs code."""
    return any(word.value in _RUNNING_MODULES for word in values(words, "-m"))


def _has_verb(name: str, words: Words) -> bool:
    running = RUNNING_VERBS.get(name, ())
    if name in _CONTAINERS:
        verbs = operands(words, "Hcl", ("--config", "--connection", "--context", "--host"))
        if any(word.value in ("compose", "container") for word in verbs[:1]):
            return any(word.value in running for word in verbs[1:])
        return any(word.value in running for word in verbs[:1])
    return any(word.value in running for word in operands(words)[:1])


_CONTAINERS = ("docker", "nerdctl", "podman")


def _makes_more(words: Words) -> bool:
    is_read = any(word.value == "-" for word in values(words, "-f", "--file", "--makefile"))
    code = ("$(", "${", "`", "SHELL=", ".SHELLFLAGS")
    return is_read or any(sign in word.value for word in words for sign in code)


def _git_does_more(words: Words) -> bool:
    verb, rest = git_verb(words)
    settings = [word.value for word in values(words[: len(words) - len(rest)], "-c")]
    if verb == "config" and not has(rest, "", "--get", "--unset", "get", "unset"):
        named = [word.value for word in operands(rest, "f", ("--file", "--type", "--default"))]
        settings += [f"{name}={value}" for name, value in pairwise(named)]
    is_elsewhere = any(word.value.startswith(_GIT_ELSEWHERE) for word in words)
    if is_elsewhere or not all(map(_is_harmless_setting, settings)):
        return True
    first = rest[0].value if rest else ""
    is_told = all(word.is_told for word in words[: len(words) - len(rest)])
    is_running = (verb, first) in _GIT_RUNNING or verb in _GIT_ALWAYS or not is_told
    return is_running or any(True for _ in values(rest, *GIT_CODE_OPTIONS.get(verb, ())))


def _is_harmless_setting(setting: str) -> bool:
    name, _, value = setting.partition("=")
    if value in _HARMLESS_VALUES and not name.lower().startswith("alias."):
        return True
    return bool(_GIT_HARMLESS.fullmatch(name)) and not _GIT_HARMFUL.fullmatch(name)
