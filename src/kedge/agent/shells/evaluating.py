"""Commands of the shell that may run text which looks like no command."""

import re
from collections.abc import Sequence
from itertools import pairwise

from kedge.agent.shells.words import Word

_EVALUATING = frozenset(
    {
        *("alias", "bind", "compgen", "complete", "enable", "fc", "getopts", "let", "mapfile"),
        *("readarray", "unalias"),
    }
)
_NAMING = frozenset({"declare", "export", "local", "read", "readonly", "typeset", "unset"})
"""Those that take names of variables, in which the shell evaluates what stands in brackets."""
_TESTING = ("test", "[")
_SOURCING = (".", "source")
_HELD_ELSEWHERE = ("/dev/", "/proc/")
_DECLARING_ODDLY = re.compile(r"[-+]\w*[aAinf]\w*")


def evaluates(name: str, words: Sequence[Word]) -> bool:
    """Whether a command could run something that cannot be told, given the words after its name."""
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


def _asks_for_variable(words: Sequence[Word]) -> bool:
    """Whether it could be asked if a variable is set, whose name is evaluated."""
    is_told = all(word.is_told or _is_one(word) for word in words)
    is_told &= all(one.is_told or other.is_told for one, other in pairwise(words))
    return not is_told or any(word.value in ("-v", "-R") for word in words)


def _is_one(word: Word) -> bool:
    """Whether the shell makes one word of it, whatever it says."""
    return word.source.startswith('"') and "$@" not in word.source and "[@]" not in word.source


def _is_plain_file(word: Word) -> bool:
    is_told = word.is_told and not word.is_pattern
    return is_told and not word.value.startswith((*_HELD_ELSEWHERE, "-"))
