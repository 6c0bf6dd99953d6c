"""Finds the files that `instructions` match, safely: no pattern or link leads where it may not."""

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator

from kedge.config.file_reader import lies_below
from kedge.config.values import Instruction
from kedge.config.variables import keeps_secrets

_MOST_LOOKED_AT = 20_000
"""How many names one pattern may examine, and all untrusted patterns together: a tree may be too
large to search."""
_MOST_FOUND = 100
_NEVER_ENTERED = {".git", "node_modules"}
_WILD = re.compile(r"[*?\[]")


def is_address(instruction: Instruction) -> bool:
    """Whether an instruction is a URL instead of a file pattern."""
    return instruction.pattern.startswith(("http://", "https://"))


def instruction_files(
    instructions: Iterable[Instruction], directory: str, worktree: str
) -> list[str]:
    """The files, in the order of the instructions. A relative pattern is searched in the directory
    and every folder above it, up to the worktree."""
    found: dict[str, None] = {}
    of_strangers = _Patience()
    for instruction in instructions:
        if is_address(instruction) or "\0" in instruction.pattern:
            continue
        patience = _Patience() if instruction.trusted else of_strangers
        for path in _matches(instruction.pattern, directory, worktree, patience):
            if _may(path, instruction.root):
                found[path] = None
    return list(found)


def stays_inside(pattern: str, folder: str) -> bool:
    """Whether a pattern, as written, matches only files of a folder, and no secrets."""
    if "\0" in pattern or "://" in pattern or pattern.startswith("~"):
        return False
    if ".." in pattern.split("/"):
        return False
    full = os.path.join(folder, pattern)
    is_below = full == folder or full.startswith(folder.rstrip("/") + "/")
    return is_below and not keeps_secrets(full, folder)


def _may(path: str, root: str | None) -> bool:
    if not os.path.isfile(path):
        return False
    return root is None or (lies_below(path, root) and not keeps_secrets(path, root))


class _Patience:
    """The number of names that may still be examined."""

    def __init__(self) -> None:
        self.left = _MOST_LOOKED_AT


def _matches(pattern: str, directory: str, worktree: str, patience: _Patience) -> list[str]:
    search = _Search(pattern, patience)
    if os.path.isabs(pattern):
        return sorted(search.below("/"))[:_MOST_FOUND]
    found = []
    folder = directory
    while True:
        found += sorted(search.below(folder))
        if folder == worktree or folder == os.path.dirname(folder) or len(found) > _MOST_FOUND:
            return found[:_MOST_FOUND]
        folder = os.path.dirname(folder)


class _Search:
    """The search for one pattern; every name it examines is counted."""

    def __init__(self, pattern: str, patience: _Patience) -> None:
        self.patience = patience
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        # Two `**` in a row mean the same as one.
        self.parts = [p for n, p in enumerate(parts) if p != "**" or parts[n - 1 : n] != ["**"]]
        if self.parts[-1:] == ["**"]:
            self.parts.append("*")

    def below(self, folder: str) -> Iterator[str]:
        todo = [(folder, 0)]
        seen = set(todo)
        while todo:
            place, at = todo.pop()
            if at == len(self.parts):
                yield place
                continue
            for step in self._steps(place, at):
                if step not in seen:
                    seen.add(step)
                    todo.append(step)

    def _steps(self, place: str, at: int) -> Iterator[tuple[str, int]]:
        """The places to which a part of the pattern leads from a place."""
        part = self.parts[at]
        if part == "**":
            yield place, at + 1
            for name, is_folder in self._names(place):
                if is_folder and name not in _NEVER_ENTERED:
                    yield os.path.join(place, name), at
        elif _WILD.search(part):
            for name, _ in self._names(place):
                # As in a shell, names with a leading dot need a pattern with one.
                if fnmatch.fnmatchcase(name, part) and name.startswith(".") <= part.startswith("."):
                    yield os.path.join(place, name), at + 1
        elif os.path.lexists(path := os.path.join(place, part)):
            yield os.path.normpath(path), at + 1

    def _names(self, place: str) -> Iterator[tuple[str, bool]]:
        # Listing an empty folder takes time as well.
        self.patience.left -= 1
        if self.patience.left < 0:
            return
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    self.patience.left -= 1
                    if self.patience.left < 0:
                        return
                    yield entry.name, entry.is_dir(follow_symlinks=False)
        except OSError:
            # A folder that cannot be listed has nothing that could be read.
            return
