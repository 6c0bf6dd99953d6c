"""Commands that run other commands (`sudo`, `xargs`, `eval` and the like): what they would run."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from kedge.agent.shell.options import leading, operands, tar_words, values
from kedge.agent.shell.words import ShellWord

_EVALUATING = frozenset(
    {
        *("alias", "bind", "compgen", "complete", "enable", "fc", "getopts", "let", "mapfile"),
        *("readarray", "unalias"),
    }
)
_NAMING = frozenset({"declare", "export", "local", "read", "readonly", "typeset", "unset"})
"""Commands that take names of variables, in which the shell evaluates the subscripts."""
_TESTING = ("test", "[")
_SOURCING = (".", "source")
_HELD_ELSEWHERE = ("/dev/", "/proc/")
_DECLARING_ODDLY = re.compile(r"[-+]\w*[aAinf]\w*")


def evaluates(name: str, words: Sequence[ShellWord]) -> bool:
    """Whether a command could run something unknown, given the words after its name."""
    values = [word.value for word in words]
    if name in _EVALUATING:
        return True
    if name in _NAMING:
        is_odd = name != "read" and any(map(_DECLARING_ODDLY.fullmatch, values))
        return is_odd or any(not word.is_told or "[" in word.value for word in words)
    if name == "printf":
        return not words or not words[0].is_told or values[0].startswith("-v")
    if name in ("hash", "jobs", "wait"):
        return any(value.startswith("-") for value in values)
    if name in _TESTING:
        return _asks_for_variable(words)
    if name in _SOURCING:
        return not words or not _is_plain_file(words[0])
    return False


def _asks_for_variable(words: Sequence[ShellWord]) -> bool:
    """Whether it may test if a variable is set, whose name is evaluated."""
    is_told = all(word.is_told or _is_one(word) for word in words)
    is_told &= all(one.is_told or other.is_told for one, other in pairwise(words))
    return not is_told or any(word.value in ("-v", "-R") for word in words)


def _is_one(word: ShellWord) -> bool:
    """Whether the shell makes one word of it, whatever its value."""
    return word.source.startswith('"') and "$@" not in word.source and "[@]" not in word.source


def _is_plain_file(word: ShellWord) -> bool:
    is_told = word.is_told and not word.is_pattern
    return is_told and not word.value.startswith((*_HELD_ELSEWHERE, "-"))


Words: TypeAlias = Sequence[ShellWord]
Inner: TypeAlias = Words | str | None
"""Another command by its words, a command line as text, or None for an unknown one."""

_SHELL = re.compile(r"r?(?:a|ba|c|da|fi|[mop]?d?k|tc|ya|z)?sh[-.\d]*")
_READ_ALIKE = ("ash", "bash", "dash", "rbash", "sh")
"""Shells that read a line as bash does."""
_SHELL_LETTERS = frozenset("abcefhiklmnoptuvxBCEHOPT")
_SHELL_FLAGS = ("--login", "--noprofile", "--norc", "--posix")
_EXECUTING = ("-exec", "-execdir", "-ok", "-okdir")


class _Options(NamedTuple):
    """The known options of a program. Any other could change the meaning of its words."""

    flags: str = ""
    """Letters that take no value,"""
    values: str = ""
    """and letters that take the rest of their word, or the next one."""
    long_flags: tuple[str, ...] = ()
    long_values: tuple[str, ...] = ()


_WRAPPERS: Mapping[str, _Options] = {
    "!": _Options(),
    "builtin": _Options(),
    "busybox": _Options(),
    "command": _Options("p"),
    "coproc": _Options(),
    "doas": _Options("n", "aCu"),
    "env": _Options("0iv", "Cu", ("--ignore-environment",), ("--chdir", "--unset")),
    "exec": _Options("cl", "a"),
    "ionice": _Options("t", "cn", (), ("--class", "--classdata")),
    "nice": _Options("", "n", (), ("--adjustment",)),
    "nohup": _Options(),
    "setsid": _Options("cfw", "", ("--ctty", "--fork", "--wait")),
    "stdbuf": _Options("", "eio", (), ("--error", "--input", "--output")),
    "sudo": _Options(
        "AbEHknPS",
        "CDRTUgprtu",
        ("--non-interactive", "--preserve-env", "--set-home", "--stdin"),
        ("--chdir", "--chroot", "--group", "--preserve-env", "--prompt", "--user"),
    ),
    "time": _Options("p"),
    "timeout": _Options(
        "fpv",
        "ks",
        ("--foreground", "--preserve-status", "--verbose"),
        ("--kill-after", "--signal"),
    ),
    "unbuffer": _Options("p"),
    "watch": _Options("bcdegtw", "n", ("--color", "--no-title"), ("--interval",)),
    "xargs": _Options(
        "0oprtx",
        "EILPadns",
        ("--no-run-if-empty", "--null", "--verbose"),
        ("--arg-file", "--delimiter", "--max-args", "--max-chars", "--max-procs"),
    ),
}
"""Programs whose arguments are a command."""

_UNTOLD = frozenset(
    {
        *("at", "batch", "capsh", "chpst", "chroot", "chrt", "dbus-run-session", "dumb-init"),
        *("entr", "expect", "fakeroot", "firejail", "flock", "gdb", "gosu", "linux32", "linux64"),
        *("ltrace", "nsenter", "numactl", "parallel", "perf", "pkexec", "prlimit", "rlwrap"),
        *("runuser", "screen", "script", "setarch", "setpriv", "softlimit", "strace", "su"),
        *("systemd-run", "taskset", "tini", "tmux", "toybox", "unshare", "valgrind", "xvfb-run"),
    }
)
"""Programs that run a command too, whose arguments are not analysed."""

CODE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "apt": ("-o", "--option"),
    "apt-get": ("-o", "--option"),
    "bat": ("--pager",),
    "cargo": ("--config",),
    "clang": ("-fplugin",),
    "cmake": ("-P",),
    "cpio": ("--rsh-command",),
    "ctest": ("--test-command",),
    "dpkg": ("--pre-invoke", "--post-invoke"),
    "fd": ("-x", "-X", "--exec", "--exec-batch"),
    "fzf": ("--preview", "--bind"),
    "gcc": ("-wrapper", "-specs"),
    "gcloud": ("--command",),
    "go": ("-exec", "-toolexec", "-vettool"),
    "gradle": ("-I", "--init-script"),
    "hg": ("--config",),
    "just": ("--shell", "-c", "--command"),
    "less": ("-k", "+!"),
    "make": ("--eval", "-E", "SHELL", ".SHELLFLAGS"),
    "man": ("-P", "--pager", "-H", "--html"),
    "nix": ("-c", "--command"),
    "npm": ("-c", "--call", "--script-shell"),
    "npx": ("-c", "--call"),
    "pnpm": ("-c", "--shell-mode"),
    "rg": ("--pre", "--hostname-bin"),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "scp": ("-S", "-o"),
    "sftp": ("-S", "-o"),
    "sort": ("--compress-program",),
    "split": ("--filter",),
    "svn": ("--config-option", "--diff-cmd", "--editor-cmd"),
    "tar": (
        *("--to-command", "--use-compress-program", "-I", "--rsh-command", "--rmt-command"),
        *("--info-script", "--new-volume-script", "-F", "--checkpoint-action"),
    ),
    "tcpdump": ("-z",),
    "wget": ("--use-askpass", "-e", "--execute"),
    "zip": ("-TT", "--unzip-command"),
}
"""Options whose value is run."""
_COMPILERS = (
    ("gcc", re.compile(r"(?:[\w.]+-)*(?:gcc|g\+\+|gfortran|cc|c\+\+|c89|c99)(?:-[\d.]+)?")),
    ("clang", re.compile(r"(?:[\w.]+-)*clang(?:\+\+|-cpp)?(?:-[\d.]+)?")),
)
"""Names that end in a version or begin with a machine, and the one whose options they share."""
_CLUSTERED: Mapping[str, str] = {
    "cmake": "ABCDGSTUW",
    "fd": "ESTcdejot",
    "gradle": "DPbcpx",
    "make": "CIWfjlo",
    "man": "CLMRSTers",
    "rsync": "BMTf",
    "scp": "DFJPXcil",
    "sftp": "BDFJPRXbcils",
    "tar": "CHKLNTVXbfg",
    "wget": "ABDIOPQRTUXailotw",
}
"""The other letters of options that take a value: what stands after them is not an option."""
_OF_NPM = ("npm", "npx", "pnpm")
RUNNING_VERBS: Mapping[str, tuple[str, ...]] = {
    "bun": ("x",),
    "docker": ("exec", "run"),
    "kubectl": ("exec", "run", "debug"),
    "nerdctl": ("exec", "run"),
    "npm": ("exec", "explore", "x"),
    "pnpm": ("exec", "dlx"),
    "podman": ("exec", "run"),
    "yarn": ("exec", "dlx"),
}
"""Verbs of programs after which a command stands."""
GIT_CODE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "archive": ("--exec", "--remote"),
    "clone": ("-u", "--upload-pack", "-c", "--config", "--template"),
    "difftool": ("-x", "--extcmd"),
    "fetch": ("--upload-pack",),
    "fetch-pack": ("--upload-pack", "--exec"),
    "grep": ("-O", "--open-files-in-pager"),
    "init": ("--template",),
    "ls-remote": ("--upload-pack", "--exec"),
    "mergetool": ("-t", "--tool"),
    "pull": ("--upload-pack",),
    "push": ("--receive-pack", "--exec"),
    "rebase": ("-x", "--exec"),
    "send-pack": ("--receive-pack", "--exec"),
    "send-email": ("--smtp-server", "--to-cmd", "--cc-cmd"),
}
"""Options of git's commands whose value is run."""
_NO_LINE = frozenset(
    {
        *("apt", "apt-get", "cargo", "clang", "cmake", "fzf", "gcc", "gradle", "hg"),
        *("less", "make", "scp", "sftp", "svn", "wget", "zip"),
    }
)
"""Programs whose options hold something other than a command line."""
_GIT_RUNS = re.compile(
    r"(?:core\.(?:editor|fsmonitor|pager|sshcommand)|diff\.external|pager\.\w+|sequence\.editor)=(.*)"
    r"|(?:alias\.\w+|credential\..*helper)=!(.*)",
    re.IGNORECASE | re.DOTALL,
)
"""Settings of git whose value is a command line."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?=")
_SETTING = ("doas", "env", "sudo")
"""Programs that take every word with an equals sign for a variable,"""
_BEFORE_ASSIGNMENTS = ("!", "coproc", "time")
"""and words after which the shell does so as usual."""

READ = ShellWord("…", "…", is_fixed=False)
"""The input of a program that adds it to a command."""

_TAKING_COMMANDS = frozenset({"bun", "kubectl", "npm", "pnpm", "yarn"})
_STARTING = frozenset(
    {
        *("bun", "bundle", "bunx", "conda", "direnv", "docker", "dotenvx", "hatch", "mise", "npx"),
        *("pdm", "pipenv", "pixi", "pnpm", "pnpx", "podman", "poetry", "rye", "uv", "uvx", "yarn"),
    }
)
"""Programs that start others in a project's environment, after words of their own."""
_MOST_BEFORE = 12
"""Words after which no command is looked for any more."""
_SSH_VALUES = "BDEFIJLOQRSWbceilmopw"
_GIT_VALUES = ("-c", "-C", "--git-dir", "--work-tree", "--namespace")

_BEFORE_COMMAND = {"timeout": 1}
"""How many words stand before the command, if any do."""


def inside(words: Words) -> Iterator[Inner]:
    """The commands that a command runs in turn."""
    name = os.path.basename(words[0].value)
    if name in _UNTOLD or evaluates(name, words[1:]):
        yield None
    elif _SHELL.fullmatch(name):
        if name not in _READ_ALIKE:
            yield None
        yield from _of_shell(words)
    elif name == "eval":
        yield _joined(words[2:] if [word.value for word in words[1:2]] == ["--"] else words[1:])
    elif name == "trap":
        yield from _of_trap(words)
    elif name == "find":
        yield from _of_find(words)
    elif name in _WRAPPERS:
        yield from _wrapped(name, words)
    elif name == "git":
        yield from _of_git(words[1:])
    elif name == "ssh":
        # Everything after the name of the machine is a line for a shell there.
        yield from _line(operands(words[1:], _SSH_VALUES)[1:])
    else:
        yield from _of_options(name, words[1:])
        yield from _of_verb(name, words[1:])


def code_values(name: str, words: Words) -> Iterator[ShellWord]:
    """The values of options that are run."""
    if name in _OF_NPM:
        # What follows belongs to the started program.
        own = _own_of_npm(words)
        at = next((at for at, word in enumerate(words) if word.value == "--"), len(words))
        yield from values(own, *CODE_OPTIONS[name])
        yield from values(words[len(own) : at], "--script-shell")
    else:
        name = _family(name)
        words = tar_words(words) if name == "tar" else words
        options = CODE_OPTIONS.get(name, ())
        letters = "".join(each[1:] for each in options if len(each) == 2)
        yield from values(words, *options, valued=_CLUSTERED.get(name, "") + letters)


def _family(name: str) -> str:
    return next((family for family, names in _COMPILERS if names.fullmatch(name)), name)


def _own_of_npm(words: Words) -> Words:
    """The words of npm and its like before the program that they start."""
    own = leading(words, "cpw", _NPM_NAMES)
    verb = words[len(own) : len(own) + 1]
    if not any(word.value in _NPM_VERBS for word in verb):
        return own
    return [*own, *verb, *leading(words[len(own) + 1 :], "cpw", _NPM_NAMES)]


_NPM_VERBS = ("dlx", "exec", "x")
_NPM_NAMES = ("--call", "--package", "--workspace", "--filter", "--prefix", "--dir", "-C", "-F")


def _of_options(name: str, words: Words) -> Iterator[Inner]:
    """The lines that are values of options."""
    if _family(name) not in _NO_LINE:
        for word in code_values(name, words):
            yield from _line([word._replace(value=word.value.removeprefix("exec="))])


def _of_verb(name: str, words: Words) -> Iterator[Inner]:
    """The command after a verb, as in `npm exec -- ls`."""
    verb = next(iter(operands(words)), None)
    if name not in _TAKING_COMMANDS or verb is None or verb.value not in RUNNING_VERBS[name]:
        return
    rest = words[words.index(verb) + 1 :]
    at = next((at for at, word in enumerate(rest) if word.value == "--"), None)
    before = len(leading(rest, "pw", _NPM_NAMES)) if at is None else at + 1
    if rest[before:] and (at is not None or name != "kubectl"):
        yield rest[before:]


def _of_git(words: Words) -> Iterator[Inner]:
    verb, rest = git_verb(words)
    for word in values(words[: len(words) - len(rest)], "-c"):
        match = _GIT_RUNS.fullmatch(word.value)
        if match and word.is_told:
            yield match[1] or match[2]
    for word in values(rest, *GIT_CODE_OPTIONS.get(verb, ())):
        yield from _line([word])
    first = [word.value for word in rest[:1]]
    if verb == "bisect" and first == ["run"] and rest[1:]:
        yield rest[1:]
    elif verb == "submodule" and first == ["foreach"]:
        yield from _line(operands(rest[1:]))


def git_verb(words: Words) -> tuple[str, Words]:
    """The verb of git, and the words after it."""
    at = 0
    while at < len(words) and words[at].value.startswith("-"):
        at += 2 if words[at].value in _GIT_VALUES else 1
    return (words[at].value if at < len(words) else "", words[at + 1 :])


def hinted(words: Words) -> Iterator[Words]:
    """What a command may run, or be, besides: it is not asked about, but may be denied."""
    name = os.path.basename(words[0].value)
    if name == "git":
        verb, rest = git_verb(words[1:])
        if verb:
            yield [words[0], words[len(words) - len(rest) - 1], *rest]
    elif name in _STARTING:
        for at, word in enumerate(words[:_MOST_BEFORE]):
            if at and not word.value.startswith("-"):
                yield words[at:]


def _line(words: Words) -> Iterator[Inner]:
    """A command line in words; an unknown one is shown as the whole command."""
    if words and all(word.is_told for word in words):
        yield " ".join(word.value for word in words)


def _joined(words: Words) -> str | None:
    if all(word.is_told and not word.is_pattern for word in words):
        return " ".join(word.value for word in words)
    return None


def _of_shell(words: Words) -> Iterator[Inner]:
    is_code = False
    skipped = 0
    for word in words[1:]:
        if not word.is_told or word.is_pattern:
            if is_code and word.is_fixed:
                # It becomes something else, but this is its beginning.
                yield word.value
            break
        if skipped:
            skipped -= 1
        elif word.value[:1] not in ("-", "+"):
            if is_code:
                yield word.value
            elif word.value.startswith(("/dev/", "/proc/")):
                break
            return
        elif word.value not in _SHELL_FLAGS:
            letters = word.value[1:]
            if not letters or not _SHELL_LETTERS.issuperset(letters):
                break
            is_code |= "c" in letters
            skipped = letters.count("o") + letters.count("O")
    # Part of it is unknown, or the code comes from elsewhere.
    yield None


def _of_trap(words: Words) -> Iterator[Inner]:
    rest = [word for word in words[1:] if word.value not in ("--", "-p", "-l")]
    if len(rest) > 1:
        yield _joined(rest[:1]) if rest[0].value != "-" else ""


def _of_find(words: Words) -> Iterator[Inner]:
    at = 0
    while at < len(words):
        if words[at].value in _EXECUTING:
            end = at + 1
            while end < len(words) and words[end].value not in (";", "+"):
                end += 1
            yield from _filled(words[at + 1 : end], {"{}"})
            at = end
        elif at and not words[at].is_told and words[at].source[:1] != '"':
            # It may be several words.
            yield None
        at += 1


def _wrapped(name: str, words: Words) -> Iterator[Inner]:
    if name == "command" and any(word.value in ("-v", "-V") for word in words[1:2]):
        return
    at = _after_options(name, words)
    before = _BEFORE_COMMAND.get(name, 0)
    while at is not None and at < len(words) and (before or _is_assigned(name, words[at])):
        if not words[at].is_told:
            at = None
        else:
            before -= not _is_assigned(name, words[at])
            at += 1
    if at is None:
        yield None
    elif name == "xargs":
        options = [word.value for word in words[1:at]]
        marks = {"{}", *options, *(each.partition("I")[2] for each in options)}
        yield from _filled(words[at:], marks - {""}, READ)
    elif words[at:]:
        yield _joined(words[at:]) if name == "watch" else words[at:]


def _filled(words: Words, marks: Collection[str], *more: ShellWord) -> Iterator[Inner]:
    """A command in which the marks are replaced, and to which more may be added."""
    if words:
        yield [*(_marked(each, marks) for each in words), *more]


def _marked(word: ShellWord, marks: Collection[str]) -> ShellWord:
    if word is READ or not any(mark in word.value for mark in marks):
        return word
    return word._replace(is_filled=True)


def _after_options(name: str, words: Words) -> int | None:
    """Where the options end; None if that is unknown."""
    at = 1
    while at < len(words) and words[at].value.startswith("-"):
        option = words[at].value
        if option == "--":
            return at + 1
        size = _size(_WRAPPERS[name], option)
        if not words[at].is_told or words[at].is_pattern or size is None:
            return None
        if any(not word.is_told or word.is_pattern for word in words[at : at + size]):
            return None
        at += size
    return at


def _size(known: _Options, option: str) -> int | None:
    """How many words an option takes."""
    if option.startswith("--"):
        name, equals, _ = option.partition("=")
        if name in known.long_values and (equals or name not in known.long_flags):
            return 1 if equals else 2
        return 1 if option in known.long_flags else None
    letters = option[1:].lstrip(known.flags)
    if not letters:
        return 1 if len(option) > 1 else None
    if letters[0] not in known.values:
        return None
    return 1 if letters[1:] else 2


def _is_assigned(name: str, word: ShellWord) -> bool:
    if name in _SETTING:
        return "=" in word.value
    return name in _BEFORE_ASSIGNMENTS and bool(_ASSIGNMENT.match(word.source))
