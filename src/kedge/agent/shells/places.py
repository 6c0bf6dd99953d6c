"""The files and folders that a command line names, as far as that can be told before it runs."""

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from itertools import dropwhile, filterfalse, takewhile
from pathlib import Path
from typing import NamedTuple

from kedge.agent.shells.edits import AWK, SED, sed
from kedge.agent.shells.edits import written as written_by
from kedge.agent.shells.options import has
from kedge.agent.shells.outputs import SCRATCH
from kedge.agent.shells.parsing import Command, Line
from kedge.agent.shells.paths import MOVING, TOUCHING, carried, is_device, leads_away, named
from kedge.agent.shells.words import Word

_MOST_FOLDERS = 16
"""More places than a line can sensibly be in."""
_MOST_LOOKS = 10_000
"""Paths that are looked for on the disk."""
_WILD = re.compile(r"[*?\[]")
_STRING = re.compile(r'"([^"\n]*)"')
_CHANGING_FOLDERS = frozenset({"find", "git", "mv", "rm"})
_LISTING = ("find", "ls")
_IN_STACK = re.compile(r"[-+]\d+")
_ODD_HOMES = ("~-", "~+", *(f"~{digit}" for digit in range(10)))


class Places(NamedTuple):
    """Where the commands of a line work."""

    paths: list[Path]
    """What they name, without symlinks."""
    is_known: bool
    """Whether that is all that they surely touch."""
    written: list[Path]
    """What they surely write, as it is named."""
    written_in: list[Path]
    """Folders in which they write, at the top or below, and nobody can tell which files."""
    unplaced: list[str]
    """Commands that surely write, and nobody can tell where."""


def places(line: Line, directory: Path) -> Places:
    """What the commands of a line name, when it begins in this directory."""
    seen = _Places(line, directory)
    for command in line.commands:
        seen.look_at(command)
    return Places(
        [path for path in dict.fromkeys(seen.found) if SCRATCH not in path.parts],
        seen.is_known,
        list(dict.fromkeys(seen.written)),
        list(dict.fromkeys(seen.written_in)),
        seen.unplaced,
    )


class _Places:
    """What was found so far."""

    def __init__(self, line: Line, directory: Path) -> None:
        self.found: list[Path] = []
        self.is_known = True
        self.written: list[Path] = []
        self.written_in: list[Path] = []
        self.unplaced: list[str] = []
        self._listed: list[Path] = []
        """Folders whose files were listed, maybe for commands that come after."""
        self._programs = {command.words[0].value for command in line.commands if command.words}
        self._folders = [directory]
        self._left = _MOST_LOOKS

    def look_at(self, command: Command) -> None:
        """One more command."""
        is_moving = command.name in MOVING
        surely, perhaps = self._given(command)
        self._left -= len(self._folders) * (len(surely) + len(perhaps))
        if self._left < 0:
            self.is_known = False
            return
        for path in surely:
            # The system follows links before it goes up; the shell, when it moves, does not.
            self.found += [real(folder / path) for folder in self._folders]
            if is_moving:
                here = [Path(os.path.normpath(folder / path)) for folder in self._folders]
                self.found += [real(folder) for folder in here]
                # Whether it gets there is not known; so later words may mean either.
                together = list(dict.fromkeys([*self._folders, *here]))
                self.is_known &= len(together) <= _MOST_FOLDERS
                self._folders = together[:_MOST_FOLDERS]
        is_touching = command.name in TOUCHING or command.name == "for"
        matching = [
            path for path in self._matching(command.words[1:]) if is_touching or "/" in path
        ]
        for path in (*perhaps, *matching, *self._matching(command.files)):
            self.found += self._existing(path)
        self._list(command)
        self._write(command)

    def _list(self, command: Command) -> None:
        if command.name in _LISTING:
            words = list(_roots_of(command))
            given = (path for word in words for path, *_ in named(word, command.variables) if path)
            for path in (*given, *self._matching(words)):
                self._listed += [folder / path for folder in self._folders]
            self._left -= len(self._listed)

    def _matching(self, words: Sequence[Word]) -> Iterator[str]:
        """What the shell makes of patterns, as far as that is reached through links."""
        for word in words:
            if word.is_pattern and word.is_fixed:
                for folder in self._folders:
                    yield from self._globbed(folder, word.value.split("/"))

    def _globbed(self, folder: Path, names: Sequence[str], above: str = "") -> Iterator[str]:
        for at, name in enumerate(names):
            if _WILD.search(name):
                for entry in self._entries(folder / above):
                    is_meant = fnmatch.fnmatchcase(entry.name, name) and (
                        not entry.name.startswith(".") or name.startswith(".")
                    )
                    if is_meant and entry.is_symlink():
                        yield os.path.join(above, entry.name, *names[at + 1 :])
                    elif is_meant and entry.is_dir():
                        below = os.path.join(above, entry.name)
                        yield from self._globbed(folder, names[at + 1 :], below)
                return
            above = os.path.join(above, name) if above or name else "/"
        if above.split("/")[-1].lower() == ".git" or "/.git/" in f"/{above.lower()}/":
            yield above

    def _entries(self, folder: Path) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left < 0:
                        self.is_known = False
                        return
                    yield entry
        except OSError:
            # The shell cannot look into it either.
            return

    def _write(self, command: Command) -> None:
        words = written_by(command)
        self.written += [
            folder / path for path in self._matching(words) for folder in self._folders
        ]
        for word in words:
            given = named(word, command.variables)
            is_told = all(each.is_known and each.is_exact for each in given)
            if word.is_filled or not is_told:
                self.unplaced.append(command.text or word.source)
                self.written_in += self._listed
            for path, _, is_exact, _ in given:
                if path and is_exact:
                    self.written += [folder / path for folder in self._folders]
                    self._write_below(command, path)
                elif path:
                    self.written_in += [folder / path for folder in self._folders]
        self._left -= len(self._folders) * len(command.words)

    def _write_below(self, command: Command, path: str) -> None:
        """Those that delete or move whole folders change files that they do not name."""
        if command.name in _CHANGING_FOLDERS and any(
            os.path.isdir(folder / path) for folder in self._folders
        ):
            self.unplaced.append(command.text)

    def _given(self, command: Command) -> tuple[list[str], list[str]]:
        """What a command surely names, and what may be the name of a file."""
        surely = list(_named_by(command, command.files))
        self.is_known &= _are_known(command, command.files)
        words: Sequence[Word] = command.words[1:]
        if any(word.source.startswith(_ODD_HOMES) for word in words) or _reads_paths(command):
            self.is_known = False
        if command.name in MOVING:
            words = self._moved(command)
        if command.name in MOVING or command.name in TOUCHING:
            self.is_known &= _are_known(command, words)
            surely += _named_by(command, words)
            return surely, list(_carried_by(command))
        given = [path for path in _perhaps_named_by(command) if path not in self._programs]
        surely += filter(leads_away, given)
        perhaps = [path for path in given if not leads_away(path)]
        return surely, [*perhaps, *_carried_by(command)]

    def _moved(self, command: Command) -> Sequence[Word]:
        """Where the shell is told to go."""
        words = [word for word in command.words[1:] if word.value not in ("-P", "-L", "-e", "--")]
        if not words and command.name == "cd":
            return [Word(os.path.expanduser("~"), "~", True)]
        if [word.value for word in words] == ["-"]:
            # Back to where it came from, if it came from anywhere.
            self.is_known &= len(self._folders) > 1
            return []
        if len(words) > 1:
            # The shell refuses that.
            self.is_known = False
            return []
        if any(_IN_STACK.fullmatch(word.value) for word in words):
            self.is_known = False
        has_paths = "CDPATH" in os.environ or "CDPATH" in command.variables.names
        if has_paths and not all(word.value.startswith(("/", "./", "../")) for word in words):
            self.is_known = False
        return words

    def _existing(self, path: str) -> Iterator[Path]:
        """Where a word leads that may be the name of a file, if that is through links."""
        for folder in self._folders:
            leads_to = real(folder / path)
            as_written = Path(os.path.normpath(real(folder) / path))
            if (leads_away(path) or leads_to != as_written) and not _is_program(leads_to):
                yield leads_to


def real(path: Path) -> Path:
    """Where a path leads."""
    # There they lead elsewhere for each process.
    return path if path.is_relative_to("/proc") else Path(os.path.realpath(path))


def _roots_of(command: Command) -> Iterator[Word]:
    """The files and folders that a command lists; for `find` they stand before its conditions."""
    words = iter(command.words[1:])
    if command.name == "find":
        words = dropwhile(lambda word: word.value in ("-H", "-L", "-P"), words)
        return takewhile(lambda word: word.value[:1] not in ("-", "(", "!"), words)
    return (word for word in words if not word.value.startswith("-"))


def _reads_paths(command: Command) -> bool:
    """Whether a command gets names of files from elsewhere, or changes what names mean."""
    words = command.words[1:]
    if command.name == "shopt":
        return any(word.value == "cdable_vars" for word in words)
    return command.name == "curl" and has(words, "K", "--config")


def _named_by(command: Command, words: Sequence[Word]) -> Iterator[str]:
    for word in words:
        for path, *_ in named(word, command.variables):
            if path:
                yield path


def _perhaps_named_by(command: Command) -> Iterator[str]:
    """What words of any program may name. What the environment says there was not written here."""
    for word in command.words[1:]:
        for path, *_ in named(word, command.variables, with_environment=False):
            if path:
                yield path
    if SED.fullmatch(command.name):
        yield from filterfalse(is_device, sed(command.words[1:]).named)
    elif AWK.fullmatch(command.name):
        for word in command.words[1:]:
            yield from filterfalse(is_device, _STRING.findall(word.value))


def _carried_by(command: Command) -> Iterator[str]:
    for word in command.words[1:]:
        for text, _ in command.variables.texts(word, with_environment=False):
            yield from carried(command.name, text)


def _are_known(command: Command, words: Sequence[Word]) -> bool:
    return all(each.is_known for word in words for each in named(word, command.variables))


def _is_program(path: Path) -> bool:
    """Whether it is a program, such as the Python that one of a virtual environment leads to."""
    return path.parent.name == "bin" and os.path.isfile(path) and os.access(path, os.X_OK)
