"""The names of the files below folders, kept as long as no folder in them has changed.

ripgrep makes the list. Whether it would make the same one again is seen in the folders that it
walked: one changes when a name in it comes, goes or changes, and so do the files with its rules.
Their stat data are compared each time, which takes a twentieth of the time; so nothing is ever out
of date. What may have changed unseen is not kept: within a tick of the clock, on file systems with
another machine's clock, below folders that cannot all be known.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from time import time_ns

from kedge.engine.worktrees import find_worktree
from kedge.snapshot.ignore.folders import Ignore
from kedge.snapshot.repository.config import read_config
from kedge.snapshot.repository.discover import Repository, find_repository
from kedge.snapshot.repository.signatures import (
    LARGEST_RULES,
    Signature,
    is_settled,
    read_small,
    signature,
)
from kedge.snapshot.worktree.filesystems import Mounts, has_own_clock

_MOST_NAMES = 200_000
"""In all lists together, with the folders that they depend on."""
_MOST_FOLDERS = 50_000
"""In one list."""
_GIT = b".git"
_RULES = b".gitignore"
_OTHER_RULES = (b".ignore", b".rgignore")
"""With these, what git ignores may be listed all the same."""

Rules = tuple[bytes, bytes]
"""What the user's own file of rules and the repository's say."""
Listing = Callable[[], Awaitable[list[bytes]]]


class _Unknowable(Exception):
    """There is no telling when the list changes."""


@dataclass(frozen=True, slots=True)
class _Kept:
    names: list[bytes]
    seen: dict[bytes, Signature | None]
    """What the list depends on: folders and files of rules, as they were before it was made."""

    @property
    def size(self) -> int:
        return len(self.names) + len(self.seen)

    def is_current(self) -> bool:
        return all(signature(path) == seen for path, seen in self.seen.items())


class FileNames:
    """The lists of the folders that were asked for last."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._learning: dict[str, asyncio.Task[None]] = {}

    def __contains__(self, root: str) -> bool:
        """Whether the list of a folder is kept."""
        return root in self._kept

    async def below(self, root: str, listing: Listing) -> list[bytes]:
        """The names below a folder, of which `listing` makes a new list."""
        kept = self._kept.get(root)
        if kept is not None and await asyncio.to_thread(kept.is_current):
            return kept.names
        self._kept.pop(root, None)
        started = time_ns()
        names = await listing()
        if root not in self._learning and len(names) < _MOST_NAMES:
            learning = asyncio.create_task(self._learn(root, names, started))
            self._learning[root] = learning
            learning.add_done_callback(lambda _: self._learning.pop(root))
        return names

    async def learned(self) -> None:
        """Return when what was listed is kept, if it can be."""
        await asyncio.gather(*self._learning.values())

    async def _learn(self, root: str, names: list[bytes], started: int) -> None:
        try:
            seen = await asyncio.to_thread(_dependencies, root, names, started)
        except (_Unknowable, OSError):
            # It is listed anew each time: that is slower, and as right.
            return
        self._kept.pop(root, None)
        self._kept[root] = _Kept(names, seen)
        while sum(each.size for each in self._kept.values()) > _MOST_NAMES:
            del self._kept[next(iter(self._kept))]


def _dependencies(root: str, names: list[bytes], started: int) -> dict[bytes, Signature | None]:
    """What a list depends on, if all of it was as now before the list was begun."""
    top = os.fsencode(root)
    if not has_own_clock(top, Mounts()):
        raise _Unknowable
    repository = find_worktree(root).repository
    rules, seen = _rules_above(top, repository)
    walk = _Walk(_folders_of(names), seen, has_git=repository is not None)
    walk.all_below(top, rules)
    if not all(is_settled(each, started) for each in seen.values()):
        raise _Unknowable
    return seen


def _folders_of(names: list[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    for name in names:
        folder = name.rpartition(b"/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition(b"/")[0]
    return found


def _rules_above(
    top: bytes, repository: Repository | None
) -> tuple[Rules, dict[bytes, Signature | None]]:
    """The rules that hold in a folder besides its own, and the files that are read for them."""
    config = read_config(repository)
    if not config.settled:
        raise _Unknowable
    files = [path for path, _ in config.origins]
    folder = top
    while True:
        files += [folder + b"/" + name for name in (_RULES, *_OTHER_RULES)]
        files.append(folder + b"/.git/info/exclude")
        if folder in (b"/", b""):
            break
        folder = os.path.dirname(folder)
    excludes = [config.excludes_file]
    if repository is not None:
        excludes.append(repository.excludes_file)
    found = [each for each in excludes if each is not None]
    seen = {path: signature(path) for path in (*files, *found)}
    if any(seen[path] for path in files if path.endswith(_OTHER_RULES)):
        raise _Unknowable
    if repository is None or repository.root != top:
        # Of those above only fewer folders would be known to be ignored.
        return (b"", b""), seen
    return (_read(config.excludes_file), _read(repository.excludes_file)), seen


def _read(path: bytes | None) -> bytes:
    return (read_small(path, LARGEST_RULES) or b"") if path is not None else b""


def _excludes_files(root: bytes) -> Iterator[bytes]:
    """The repository's own file of rules, and the files that say where it is."""
    git = root + b"/" + _GIT
    yield git + b"/info/exclude"
    if os.path.isdir(git):
        return
    # A worktree of a repository that is elsewhere.
    yield git
    if (repository := find_repository(root)) is not None:
        yield repository.git_folder + b"/commondir"
        yield repository.excludes_file


class _Walk:
    """Looks into every folder in which a name may come that would be listed."""

    def __init__(
        self, listed: set[bytes], seen: dict[bytes, Signature | None], *, has_git: bool
    ) -> None:
        self._listed = listed
        """The folders, from the root, in which names were listed."""
        self._seen = seen
        self._has_git = has_git
        """Whether the rules of git hold: elsewhere ripgrep does not read them."""
        self._waiting: list[tuple[bytes, bytes, Ignore]] = []

    def all_below(self, top: bytes, rules: Rules) -> None:
        """Note the folders and the files of rules below the root."""
        self._look(top, b"", None, rules)
        while self._waiting:
            path, relative, above = self._waiting.pop()
            self._look(path, relative, above, rules)

    def _look(self, path: bytes, relative: bytes, above: Ignore | None, rules: Rules) -> None:
        # Before its names are read: what comes later has another signature.
        self._seen[path] = signature(path)
        if len(self._seen) > _MOST_FOLDERS:
            raise _Unknowable
        folders, names = [], set()
        with os.scandir(path) as entries:
            for entry in entries:
                names.add(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
        if not names.isdisjoint(_OTHER_RULES):
            raise _Unknowable
        if _GIT in names:
            self._seen |= {file: signature(file) for file in _excludes_files(path)}
        ignore = self._rules_in(path, names, above, rules)
        for name in folders:
            below = name if not relative else relative + b"/" + name
            if name == _GIT or (below not in self._listed and ignore.excludes(name, True)):
                continue
            self._waiting.append((path + b"/" + name, below, ignore))

    def _rules_in(
        self, path: bytes, names: set[bytes], above: Ignore | None, rules: Rules
    ) -> Ignore:
        own = b""
        if _RULES in names:
            file = path + b"/" + _RULES
            self._seen[file] = signature(file)
            own = _read(file)
        if not self._has_git:
            return Ignore.at_root()
        if above is None:
            return Ignore.at_root(excludes_file=rules[0], info_exclude=rules[1], own=own)
        if _GIT in names:
            # Another repository: of its rules, those that are in its files. The others can only
            # ignore more, so that more is looked at than needs be.
            return Ignore.at_root(own=own)
        return above.below(os.path.basename(path), own)
