"""Which paths the words of a command are, as far as that can be told before it runs."""

import os
import re
from collections.abc import Collection
from typing import NamedTuple

from kedge.agent.shells.words import Word

MOVING = frozenset({"cd", "pushd"})
TOUCHING = frozenset(
    {
        *(".", "cat", "chgrp", "chmod", "chown", "cp", "dd", "head", "install", "less", "ln"),
        *("mkdir", "mkfifo", "more", "mv", "rm", "rmdir", "rsync", "shred", "source", "tail"),
        *("tee", "touch", "truncate", "unlink"),
    }
)
_DEVICES = re.compile(r"/dev/(null|zero|full|tty|stdin|stdout|stderr|u?random|fd/\d+)")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_UNKNOWN = re.compile(r"[$`]|\\.")
_WILD = re.compile(r"[*?\[]")
_WILD_DOTS = re.compile(r"(?:^|/)\.+[*?\[]")
_ODD_HOME = re.compile(r"~[-+\d]")
_PROCESSES = ("<(", ">(")
_CARRIED = re.compile(r"-\w(?=/|~|\.\.)")


class Named(NamedTuple):
    """What a word names."""

    path: str | None
    """The path, or the fixed folder at its beginning; None where there is neither."""
    is_known: bool
    """Whether it is nowhere else."""


def named(word: Word, tame: Collection[str] = ()) -> Named:
    """The path that a word is; of an option, the one that it carries.

    The tame variables are those that can only hold names below the folder of the command.
    """
    if word.source.startswith(_PROCESSES) and word.source.endswith(")"):
        return Named(None, True)
    text, is_known = word.value, True
    if not word.is_fixed:
        text = _VARIABLE.sub(lambda match: _value(match, tame), word.source.replace('"', ""))
        unknown = _UNKNOWN.search(text)
        if unknown:
            text, is_known = _beginning(text, unknown.start()), False
    text = _without_option(text)
    wild = _WILD.search(text) if word.is_pattern else None
    if wild:
        is_known &= not _WILD_DOTS.search(text) and ".." not in text[wild.start() :]
        text = _beginning(text, wild.start()) or "."
    if word.source.startswith("~"):
        is_known &= not _ODD_HOME.match(word.source)
        text = os.path.expanduser(text)
    if not text or _DEVICES.fullmatch(text):
        return Named(None, is_known)
    return Named(text, is_known)


def leads_away(path: str) -> bool:
    """Whether what may be a path looks like one that leads elsewhere."""
    if path.startswith("/"):
        # Many an argument begins with a slash and is no path.
        return os.path.lexists("/" + path.lstrip("/").partition("/")[0])
    return ".." in path.split("/")


def _beginning(text: str, end: int) -> str:
    """The folders at the beginning of a path of which only so much is known."""
    return text[: text.rfind("/", 0, end) + 1]


def _without_option(text: str) -> str:
    if text.startswith("-"):
        carried = _CARRIED.match(text)
        return text[carried.end() :] if carried else text.partition("=")[2]
    return text.partition("=")[2] if "=" in text.partition("/")[0] else text


def _value(match: re.Match[str], tame: Collection[str]) -> str:
    name = match[1] or match[2]
    if name not in tame:
        return match[0]
    if name == "HOME":
        return os.path.expanduser("~")
    # The shell begins where it is told to, and so does every path that is not absolute.
    return "." if name == "PWD" else "_"
