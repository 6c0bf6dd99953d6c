"""Markdown files that define an agent, a command or a skill: finds and reads them, within limits.

In a configuration folder these are `agent/**.md`, `command/**.md` and `skill/**/SKILL.md`. A file
that cannot be read is reported, and stops nothing.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kedge.config.file_reader import LARGEST_CONFIG, UnreadableFile, decoded, lies_below, read
from kedge.config.front_matter import FrontMatterError, parts

Json = dict[str, Any]
Kind = Literal["agent", "command", "skill"]

_SKILL_FILE = "SKILL.md"
_FOLDERS: tuple[tuple[str, Kind], ...] = (
    *(("mode", "agent"), ("modes", "agent"), ("agent", "agent"), ("agents", "agent")),
    *(("command", "command"), ("commands", "command"), ("skill", "skill"), ("skills", "skill")),
)
_MODES = ("mode", "modes")
"""Folders whose agents answer people; files in folders below them do not count."""
_WORD = r"(?!\.{1,2}(?:/|$))[\w@:+.-]+"
_NAME = re.compile(f"{_WORD}(/{_WORD})*")
_LONGEST_NAME = 200
_DEEPEST = 8
_MOST_NAMES = 5000
"""How many names one folder of definitions is searched for."""
_MOST_FILES = 500
"""How many definitions of one folder count."""
_NEVER_ENTERED = {".git", "node_modules"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionFolder:
    """A folder that may contain definitions."""

    path: str
    root: str | None = None
    """The worktree, for a folder of a project; None for the user's own."""
    reach: str | None = None
    """The folder that a project's definitions apply to."""
    is_of_skills: bool = False
    """Whether everything in it is a skill, instead of what its folders are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A file that defines something, or the reason why it does not."""

    path: str
    folder: DefinitionFolder
    kind: Kind
    name: str
    value: Json = field(default_factory=dict)
    digest: str = ""
    problem: str | None = None
    strays: bool = False
    """It is a link out of its project and was not read."""


def definitions(folder: DefinitionFolder) -> Iterator[Definition]:
    """The definitions in a folder, in the order of their names."""
    if folder.is_of_skills:
        yield from _in(folder, folder.path, "skill", is_deep=True)
        return
    for name, kind in _FOLDERS:
        place = os.path.join(folder.path, name)
        for found in _in(folder, place, kind, is_deep=name not in _MODES):
            if name in _MODES and found.problem is None:
                yield _with_mode(found)
            else:
                yield found


def _with_mode(found: Definition) -> Definition:
    value = {"mode": "primary", **found.value}
    return Definition(
        path=found.path,
        folder=found.folder,
        kind=found.kind,
        name=found.name,
        value=value,
        digest=found.digest,
    )


def _in(folder: DefinitionFolder, place: str, kind: Kind, *, is_deep: bool) -> Iterator[Definition]:
    search = _Search(folder, is_skill=kind == "skill")
    for path in search.files(place, is_deep=is_deep):
        name = os.path.relpath(path, place).removesuffix(".md")
        yield _read(folder, path, kind, os.path.dirname(name) if kind == "skill" else name)
    if search.is_cut:
        why = f"there are more than {_MOST_FILES} files or {_MOST_NAMES} names in it"
        yield Definition(path=place, folder=folder, kind=kind, name="", problem=why)


class _Search:
    """The search of one folder; every name that it looks at is counted."""

    def __init__(self, folder: DefinitionFolder, *, is_skill: bool) -> None:
        self._folder = folder
        self._is_skill = is_skill
        self._names = 0
        self._seen: set[str] = set()
        self.is_cut = False

    def files(self, place: str, *, is_deep: bool) -> list[str]:
        found = sorted(self._below(place, _DEEPEST if is_deep else 0))
        self.is_cut = self.is_cut or len(found) > _MOST_FILES
        return found[:_MOST_FILES]

    def _below(self, place: str, depth: int) -> Iterator[str]:
        folders = []
        for entry in self._entries(place):
            if self._is_folder(entry):
                folders.append(entry.path)
            elif entry.name == _SKILL_FILE if self._is_skill else entry.name.endswith(".md"):
                yield entry.path
        for path in sorted(folders) if depth else ():
            yield from self._below(path, depth - 1)

    def _entries(self, place: str) -> Iterator[os.DirEntry[str]]:
        real = os.path.realpath(place)
        root = self._folder.root
        # Links may lead in a circle, or out of the project.
        if real in self._seen or (root is not None and not lies_below(real, root)):
            return
        self._seen.add(real)
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    self._names += 1
                    if self._names > _MOST_NAMES:
                        self.is_cut = True
                        return
                    yield entry
        except OSError:
            # A folder that is not there, or cannot be listed, defines nothing.
            return

    def _is_folder(self, entry: os.DirEntry[str]) -> bool:
        try:
            return entry.is_dir() and entry.name not in _NEVER_ENTERED
        except OSError:
            return False


def _read(folder: DefinitionFolder, path: str, kind: Kind, name: str) -> Definition:
    found: Mapping[str, Any] = {"path": path, "folder": folder, "kind": kind, "name": name}
    if folder.root is not None and not lies_below(path, folder.root):
        return Definition(**found, strays=True, problem="it is a link out of the project")
    try:
        text = decoded(read(path, LARGEST_CONFIG))
        if text is None:
            return Definition(**found, problem="it is a link to nothing")
        settings, body = parts(text)
    except UnreadableFile as error:
        return Definition(**found, problem=f"it {error}")
    except FrontMatterError as error:
        return Definition(**found, problem=str(error))
    settings = {key: value for key, value in settings.items() if value is not None}
    name = str(settings.get("name") or "") if kind == "skill" else name
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        where = "its setting `name`" if kind == "skill" else "its path"
        why = f"{where} is no name: use letters, digits and . _ - @ : +"
        return Definition(**found, problem=why)
    if not isinstance(settings.get("description", ""), str):
        return Definition(**{**found, "name": name}, problem="description: expected a string")
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Definition(
        **{**found, "name": name}, value=_value(kind, settings, body, path), digest=digest
    )


def _value(kind: Kind, settings: Json, body: str, path: str) -> Json:
    if kind == "agent":
        return {**settings, "prompt": body} if body else settings
    if kind == "command":
        return {**settings, "template": body}
    described = {"description": settings["description"]} if settings.get("description") else {}
    return {**described, "location": path, "content": body}
