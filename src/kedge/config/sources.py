"""A single configuration file as found on disk: its text, the files it includes, and its owner."""

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kedge.config.display import dotted
from kedge.config.file_reader import LARGEST_CONFIG, UnreadableFile, decoded, lies_below, read
from kedge.config.jsonc import KeyPath, SyntaxProblem, line_of, parse
from kedge.domain.errors import ConfigInvalid

TOKEN = re.compile(r"\{(env|file):([^{}]*)\}")
_MOST_INCLUDED = 64


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible path of a configuration file."""

    path: str
    root: str | None
    """The worktree, for a file of a project; None for the user's own."""
    reach: str | None = None
    """The folder that a project's file applies to: untrusted, it can refer to files in it only."""


@dataclass(frozen=True, slots=True)
class Included:
    """A file that a configuration includes, as it was when it was read."""

    where: str
    """The path with all links followed."""
    is_elsewhere: bool
    """Whether it is outside of the project; then it was not read yet."""
    content: bytes | None = None
    """None if there is no file."""
    problem: UnreadableFile | None = None


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """An existing configuration file, before anything in it is replaced or left out."""

    path: str
    root: str | None
    reach: str | None
    home: str
    text: str
    value: dict[str, Any]
    _seen: dict[str, Included] = field(default_factory=dict)

    def invalid(self, path: KeyPath, why: str) -> ConfigInvalid:
        """The error for a key of this file."""
        line = line_of(self.text, path)
        return ConfigInvalid(self.path, why, line=line, key=dotted(path))

    def locate(self, name: str) -> str:
        """The path that `{file:name}` refers to."""
        if name == "~" or name.startswith("~/"):
            name = self.home + name[1:]
        return os.path.normpath(os.path.join(os.path.dirname(self.path), name))

    def digest(self) -> str:
        """A digest of its text and of all files of its project that it includes; it changes when
        any of these changes."""
        digest = hashlib.sha256(self.text.encode())
        for name in self._names():
            found = self.included(name)
            digest.update(b"\0" + os.fsencode(found.where) + b"\0" + _state(found))
        return digest.hexdigest()

    def included(self, name: str) -> Included:
        """The file that `{file:name}` refers to, read only once: what is used is what was
        trusted."""
        if name not in self._seen:
            self._seen[name] = self._look(os.path.realpath(self.locate(name)))
        return self._seen[name]

    def included_text(self, name: str) -> str | None:
        """The text of that file, None if it does not exist; raises `UnreadableFile`."""
        if "\0" in name:
            raise UnreadableFile("has a name that no file can have")
        found = self.included(name)
        if found.problem is not None:
            raise found.problem
        return decoded(read(found.where) if found.is_elsewhere else found.content)

    def _look(self, where: str) -> Included:
        # Files elsewhere are the user's own; they may change a key there without trusting again.
        if self.root is None or not lies_below(where, self.root):
            return Included(where, is_elsewhere=True)
        try:
            return Included(where, is_elsewhere=False, content=read(where))
        except UnreadableFile as error:
            return Included(where, is_elsewhere=False, problem=error)

    def _names(self) -> list[str]:
        names = [
            token[2].strip()
            for _, text in strings(self.value)
            for token in TOKEN.finditer(text)
            if token[1] == "file" and "\0" not in token[2]
        ]
        names = list(dict.fromkeys(names))
        if len(names) > _MOST_INCLUDED:
            raise ConfigInvalid(self.path, f"it includes more than {_MOST_INCLUDED} files")
        return names


def _state(found: Included) -> bytes:
    if found.is_elsewhere:
        return b"elsewhere"
    if found.problem is not None:
        return str(found.problem).encode()
    return b"absent" if found.content is None else hashlib.sha256(found.content).digest()


def open_source(candidate: Candidate, home: str) -> ConfigSource | None:
    """The file, if it exists."""
    try:
        text = decoded(read(candidate.path, LARGEST_CONFIG))
    except UnreadableFile as error:
        raise ConfigInvalid(candidate.path, f"the file {error}") from error
    if text is None:
        return None
    try:
        value = parse(text)
    except SyntaxProblem as problem:
        raise ConfigInvalid(candidate.path, problem.why, line=problem.line) from problem
    source = ConfigSource(
        path=candidate.path,
        root=candidate.root,
        reach=candidate.reach,
        home=home,
        text=text,
        value={} if value is None else value,
    )
    if not isinstance(source.value, dict):
        raise source.invalid((), "expected an object")
    return source


def strings(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Every string in a value, but not its keys."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings(item, (*path, key))
    elif isinstance(value, list):
        for n, item in enumerate(value):
            yield from strings(item, (*path, n))
