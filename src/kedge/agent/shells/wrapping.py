"""Commands that run other commands: what they would run."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from kedge.agent.shells.evaluating import evaluates
from kedge.agent.shells.words import Word

Words: TypeAlias = Sequence[Word]
Inner: TypeAlias = Words | str | None
"""Another command by its words, a command line as text, or None for what cannot be told."""

_SHELL = re.compile(r"r?(?:a|ba|c|da|fi|[mop]?d?k|tc|ya|z)?sh[-.\d]*")
_READ_ALIKE = ("ash", "bash", "dash", "rbash", "sh")
"""Shells whose lines mean what they mean to bash."""
_SHELL_LETTERS = frozenset("abcefhiklmnoptuvxBCEHOPT")
_SHELL_FLAGS = ("--login", "--noprofile", "--norc", "--posix")
_EXECUTING = ("-exec", "-execdir", "-ok", "-okdir")


class _Options(NamedTuple):
    """The options of a program that are known. Any other could change what its words mean."""

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
"""Programs that run a command, too, which nobody looks for in their arguments."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?=")
_SETTING = ("doas", "env", "sudo")
"""Those that take every word with an equals sign for a variable,"""
_BEFORE_ASSIGNMENTS = ("!", "coproc", "time")
"""and those after which the shell does so as it always does."""

_READ = Word("…", "…", is_fixed=False)
"""Whatever is read by a program that adds it to a command."""

_BEFORE_COMMAND = {"timeout": 1}
"""How many words stand before the command, where any do."""


def inside(words: Words) -> Iterator[Inner]:
    """What a command runs in turn."""
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


def _joined(words: Words) -> str | None:
    if all(word.is_fixed and not word.is_pattern for word in words):
        return " ".join(word.value for word in words)
    return None


def _of_shell(words: Words) -> Iterator[Inner]:
    is_code = False
    skipped = 0
    for word in words[1:]:
        if not word.is_fixed or word.is_pattern:
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
    # There is something that cannot be told, or the code comes from elsewhere.
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
        elif at and not words[at].is_fixed and words[at].source[:1] != '"':
            # It may be several words.
            yield None
        at += 1


def _wrapped(name: str, words: Words) -> Iterator[Inner]:
    if name == "command" and any(word.value in ("-v", "-V") for word in words[1:2]):
        return
    at = _after_options(name, words)
    before = _BEFORE_COMMAND.get(name, 0)
    while at is not None and at < len(words) and (before or _is_assigned(name, words[at])):
        if not words[at].is_fixed:
            at = None
        else:
            before -= not _is_assigned(name, words[at])
            at += 1
    if at is None:
        yield None
    elif name == "xargs":
        options = [word.value for word in words[1:at]]
        marks = {"{}", *options, *(each.partition("I")[2] for each in options)}
        yield from _filled(words[at:], marks - {""}, _READ)
    elif words[at:]:
        yield _joined(words[at:]) if name == "watch" else words[at:]


def _filled(words: Words, marks: Collection[str], *more: Word) -> Iterator[Inner]:
    """A command in which the marks are replaced, and to which more may be added."""
    if not words:
        return
    yield words
    told = [each._replace(is_fixed=_has_none(each, marks)) for each in words]
    if _is_open([*told, *more]):
        yield None


def _has_none(word: Word, marks: Collection[str]) -> bool:
    return word.is_fixed and not any(mark in word.value for mark in marks)


def _is_open(words: Words) -> bool:
    """Whether a command runs something that depends on words which are not fixed."""
    return not words[0].is_fixed or any(
        each is None or (not isinstance(each, str) and _is_open(each)) for each in inside(words)
    )


def _after_options(name: str, words: Words) -> int | None:
    """Where the options end; None if that cannot be told."""
    at = 1
    while at < len(words) and words[at].value.startswith("-"):
        option = words[at].value
        if option == "--":
            return at + 1
        size = _size(_WRAPPERS[name], option)
        if not words[at].is_fixed or words[at].is_pattern or size is None:
            return None
        if any(not word.is_fixed or word.is_pattern for word in words[at : at + size]):
            return None
        at += size
    return at


def _size(known: _Options, option: str) -> int | None:
    """How many words an option is."""
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


def _is_assigned(name: str, word: Word) -> bool:
    if name in _SETTING:
        return "=" in word.value
    return name in _BEFORE_ASSIGNMENTS and bool(_ASSIGNMENT.match(word.source))
