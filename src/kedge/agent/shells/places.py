"""The files and folders that a command line names, as far as that can be told before it runs."""

import os
from collections.abc import Iterator
from pathlib import Path

from kedge.agent.shells.parsing import Command, Line
from kedge.agent.shells.paths import MOVING, TOUCHING, leads_away, named

_MOST_FOLDERS = 16
"""More places than a line can sensibly be in."""


def places(line: Line, directory: Path) -> list[Path]:
    """What the commands of a line name, when it begins in this directory, without symlinks."""
    folders = [directory]
    found: list[Path] = []
    for command in line.commands:
        for given in _given(command, line):
            # The system follows links before it goes up; the shell, when it moves, does not.
            found += [Path(os.path.realpath(folder / given)) for folder in folders]
            if command.name in MOVING:
                here = [Path(os.path.normpath(folder / given)) for folder in folders]
                found += [Path(os.path.realpath(folder)) for folder in here]
                # Whether it gets there is not known; so later words may mean either.
                folders = list(dict.fromkeys([*folders, *here]))[:_MOST_FOLDERS]
    return list(dict.fromkeys(found))


def _given(command: Command, line: Line) -> Iterator[str]:
    if command.name in MOVING and len(command.words) == 1:
        yield os.path.expanduser("~")
    is_touching = command.name in MOVING or command.name in TOUCHING
    for word in command.files:
        path, _ = named(word, line.tame)
        if path:
            yield path
    for word in command.words[1:]:
        path, _ = named(word, line.tame)
        if path and (is_touching or leads_away(path)):
            yield path
