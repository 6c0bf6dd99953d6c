"""What rules are asked about a command line."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import dropwhile

from kedge.agent.shells.parsing import Command, Line
from kedge.agent.shells.prefixes import prefix
from kedge.agent.shells.programs import does_more
from kedge.agent.shells.wrapping import hinted
from kedge.domain.permission_rules import DOES_MORE, UNCERTAIN

_SEPARATORS = re.compile(r"[\n;&|(){}`]+")
_KEYWORDS = frozenset({"!", "coproc", "do", "elif", "else", "if", "then", "time", "until", "while"})


@dataclass(frozen=True, slots=True)
class Asked:
    """What must be allowed before a line may run."""

    patterns: tuple[str, ...]
    """Each of them must be allowed, and none may be denied."""
    always: tuple[str, ...]
    """What a person who allows it for good allows."""
    hints: tuple[str, ...] = ()
    """What may be denied, too, though nobody is asked about it."""


def asked_of(line: str, parsed: Line) -> Asked:
    """What rules are asked about a line."""
    named = [form for command in parsed.commands for form in _forms(command)]
    hints = _once(
        " ".join(word.shown for word in inner)
        for command in parsed.commands
        if command.words
        for inner in hinted(command.words)
    )
    patterns = [_marked(form) for form in named if form.text]
    if not parsed.is_certain or not patterns:
        # A person who allows this one allows no other; what is denied stays denied.
        return Asked(_once([UNCERTAIN + line, *patterns, *_sketch(line)]), (), hints)
    named = [form for form in named if form.text]
    return Asked(_once(patterns), _once(filter(None, map(prefix, named))), hints)


def _marked(form: Command) -> str:
    return DOES_MORE + form.text if does_more(form) else form.text


def _sketch(line: str) -> Iterable[str]:
    """What may be commands in a line that is not understood."""
    for piece in _SEPARATORS.split(line):
        words = " ".join(dropwhile(_KEYWORDS.__contains__, piece.split()))
        if words:
            yield words


def _forms(command: Command) -> Iterable[Command]:
    """The command as it is written, and as a rule may name it: without quotes that it does not
    need, without what is assigned before it, without the folder of its program."""
    yield command
    if not command.words or not command.text:
        return
    bare = " ".join(word.shown for word in command.words)
    # What is redirected stands behind the words, and a rule for the command means it as well.
    if not f"{command.text} ".startswith(f"{bare} "):
        yield replace(command, text=bare, assigned="")
    if command.is_declared:
        return
    first, *rest = command.words
    name = os.path.basename(first.value)
    if name not in ("", first.value):
        words = (first._replace(value=name, source=name), *rest)
        yield replace(
            command, text=" ".join(word.shown for word in words), words=words, assigned=""
        )


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
