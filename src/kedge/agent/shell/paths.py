"""Finds the words of a command that are paths, as far as that is known before it runs."""

import os
import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote

from kedge.agent.shell.expansion import BELOW, REST, Variables
from kedge.agent.shell.words import ShellWord

MOVING = frozenset({"cd", "pushd"})
TOUCHING = frozenset(
    {
        *(".", "cat", "chgrp", "chmod", "chown", "cp", "dd", "head", "install", "less", "ln"),
        *("mkdir", "mkfifo", "more", "mv", "rm", "rmdir", "rsync", "shred", "source", "tail"),
        *("tee", "touch", "truncate", "unlink"),
    }
)
_DEVICES = re.compile(r"/dev/(null|zero|full|tty|stdin|stdout|stderr|u?random|fd/\d+)")
_WILD = re.compile(r"[*?\[]")
_WILD_NAME = re.compile(r"[^/]*[*?\[][^/]*")
_WILD_DOTS = re.compile(r"(?:^|/)\.+[*?\[]")
_ODD_HOME = re.compile(r"~[-+\d]")
_PROCESSES = ("<(", ">(")
_CARRIED = re.compile(r"-\w(?=/|~|\.\.)")
_BRACES = re.compile(r"\{([^{}]*(?:,|\.\.)[^{}]*)\}")
_GAP = re.compile(f"{BELOW}(?!scratch)|{REST}")
_URL = re.compile(r"file:(?://(?:localhost|127\.0\.0\.1)?)?(?=/|\.\.)", re.IGNORECASE)
_HANDED_OVER = re.compile(r"(?:^|=)[@<](?=.)|@(?=[./~])")
"""Prefixes of a file whose content is sent: `-d @file`, `-F name=@file`."""
_VOLUMES = frozenset({"docker", "nerdctl", "podman"})
"""Programs that take two paths in one word, separated by a colon."""
_MOST_BRACES = 32


class Named(NamedTuple):
    """A path that a word names."""

    path: str | None
    """The path, or its fixed beginning; None if there is neither."""
    is_known: bool
    """Whether it cannot be elsewhere."""
    is_exact: bool = True
    """Whether it is exactly this path, and not one below it."""
    is_guessed: bool = False
    """Whether only its beginning is known, and it is assumed to be below that."""


def named(word: ShellWord, variables: Variables, *, with_environment: bool = True) -> list[Named]:
    """The paths that a word may be; for an option, those that it contains."""
    if word.source.startswith(_PROCESSES) and word.source.endswith(")"):
        return []
    found = []
    for given, is_whole in variables.texts(word, with_environment=with_environment):
        text = given if is_whole else _beginning(given)
        for each in _of_braces(text, word):
            found.append(_named(each, is_whole and each is not None, word))
    return list(dict.fromkeys(found))


def carried(program: str, path: str) -> Iterator[str]:
    """Other paths that a word may contain: `-Ifolder`, `file:///x`, `-d @file`."""
    if path.startswith("-") and not path.startswith("--"):
        yield path[2:]
    for sign in (_URL, _HANDED_OVER):
        match = sign.search(path)
        if match:
            yield unquote(path[match.end() :]) if sign is _URL else path[match.end() :]
    if program in _VOLUMES:
        yield from re.split("[:,=]", path)


def is_device(path: str) -> bool:
    """Whether it is a device that holds nothing, or the command's own input or output."""
    return _DEVICES.fullmatch(path) is not None


def leads_away(path: str) -> bool:
    """Whether a possible path leads elsewhere."""
    if path.startswith("/"):
        # Many arguments begin with a slash and are not paths.
        return os.path.lexists("/" + path.lstrip("/").partition("/")[0])
    return ".." in path.split("/")


def _named(text: str | None, is_known: bool, word: ShellWord) -> Named:
    if text is None:
        return Named(None, False)
    text = _without_option(text)
    wild = _WILD.search(text) if word.is_pattern else None
    if wild:
        leads_up = ".." in text[wild.start() :].split("/")
        is_known &= not _WILD_DOTS.search(text) and not leads_up
        text = _WILD_NAME.sub("_", text) if leads_up else _beginning(text[: wild.start()]) or "."
    if word.source.startswith("~"):
        is_known &= not _ODD_HOME.match(word.source)
        text = os.path.expanduser(text)
    if not text or is_device(text):
        return Named(None, is_known)
    return _without_gaps(text, is_known)


def _without_gaps(text: str, is_known: bool) -> Named:
    """A path, or the folder at its beginning if only the shell knows the rest."""
    gap = _GAP.search(text)
    if gap is None:
        return Named(text, is_known)
    is_guessed = REST in text
    if ".." in text[gap.start() :].split("/"):
        return Named(text, is_known and not is_guessed, False, is_guessed)
    return Named(_beginning(text[: gap.start()]) or ".", is_known, False, is_guessed)


def _of_braces(text: str, word: ShellWord) -> Iterator[str | None]:
    """The words that the shell makes of `a{b,c}`; None for other forms."""
    first = _BRACES.search(text)
    if first is None or not _BRACES.search(word.source) or {"'", '"', "\\"} & set(word.source):
        yield text
        return
    options = first[1].split(",")
    rest = text[: first.start()] + text[first.end() :]
    is_simple = len(options) > 1 and not {"{", "}"} & set(rest)
    if not is_simple or len(options) > _MOST_BRACES:
        yield None
        return
    for each in options:
        yield text[: first.start()] + each + text[first.end() :]


def _beginning(text: str) -> str:
    """The folders at the beginning of a path of which only so much is known."""
    return text[: text.rfind("/") + 1]


def _without_option(text: str) -> str:
    if text.startswith("-"):
        carried = _CARRIED.match(text)
        return text[carried.end() :] if carried else text.partition("=")[2]
    return text.partition("=")[2] if "=" in text.partition("/")[0] else text
