"""The repositories inside a worktree: their ignore rules and their tracked files.

The worktree's own repository is one, and every nested repository another; a folder that is in none
has the rules that git would apply if it were one.
"""

import os
import time
from collections.abc import Iterator

from kedge.snapshot.ignore.folders import Ignore
from kedge.snapshot.repository.config import GitConfig, read_config
from kedge.snapshot.repository.discover import Repository, find_repository
from kedge.snapshot.repository.index import DamagedIndex, GitIndex, read_index
from kedge.snapshot.repository.signatures import (
    LARGEST_RULES,
    Signature,
    is_settled,
    read_small,
    signature,
)
from kedge.snapshot.worktree.entries import FolderEntry


class Space:
    """The part of a worktree that belongs to one repository."""

    def __init__(
        self, path: bytes, repository: Repository | None, outer: "Space | None" = None
    ) -> None:
        self.path = path
        self.repository = repository
        self.outer = outer
        """The space around it; its rules end here, but its tracked files stay tracked."""
        self._index: GitIndex | None = None
        self._index_seen: Signature | None = None
        self._asked = False
        self.reload()

    def reload(self) -> None:
        """Read the rules that are not in the worktree."""
        self.config: GitConfig = read_config(self.repository)
        self._read_at = time.time_ns()
        self._sources = self._rule_files()
        self._excludes = _read(self.config.excludes_file)
        self._exclude = _read(self.repository.excludes_file if self.repository else None)

    def _rule_files(self) -> dict[bytes, Signature | None]:
        files = [self.config.excludes_file]
        if self.repository is not None:
            files.append(self.repository.excludes_file)
        return {file: signature(file) for file in files if file is not None}

    def is_current(self) -> bool:
        """Whether the rules are still those that were read."""
        settled = all(is_settled(seen, self._read_at) for seen in self._sources.values())
        return settled and self._sources == self._rule_files() and self.config.is_current()

    def rules(self) -> tuple[bytes, bytes, bool]:
        """The inputs of the rules; equal ones ignore the same files."""
        return self._excludes, self._exclude, self.config.ignore_case

    def ignore(self, own: bytes) -> Ignore:
        """The rules in its root folder, given the content of its `.gitignore`."""
        return Ignore.at_root(
            excludes_file=self._excludes,
            info_exclude=self._exclude,
            own=own,
            ignore_case=self.config.ignore_case,
        )

    # Tracked files

    def is_tracked(self, path: bytes) -> bool:
        """Whether the repository, or one around it, tracks the file at an absolute path."""
        index = self.tracked()
        if index is not None and index.tracks(path[len(self.path) + 1 :]):
            return True
        return self.outer is not None and self.outer.is_tracked(path)

    def is_tracked_below(self, path: bytes) -> bool:
        """Whether it tracks anything in the folder at an absolute path."""
        index = self.tracked()
        if index is not None and index.tracks_below(path[len(self.path) + 1 :]):
            return True
        return self.outer is not None and self.outer.is_tracked_below(path)

    def is_within(self, other: "Space") -> bool:
        """Whether it is another space, or nested in it."""
        return self is other or (self.outer is not None and self.outer.is_within(other))

    def tracked(self) -> GitIndex | None:
        """The index as it is now; None if there is no readable one."""
        now = self.index_signature()
        if not self._asked or now != self._index_seen:
            self._asked = True
            self._index_seen = now
            self._index = self._read_index()
        return self._index

    def _read_index(self) -> GitIndex | None:
        if self.repository is None:
            return None
        try:
            return read_index(self.repository.index_file, self.config.hash_length)
        except DamagedIndex:
            # git itself would fail on it; what it tracked before is the best guess.
            return self._index

    def index_signature(self) -> Signature | None:
        return signature(self.repository.index_file) if self.repository is not None else None


class Spaces:
    """The spaces of a worktree by their root folders."""

    def __init__(self, root: bytes, private: bytes) -> None:
        self.private: set[bytes] = {os.path.realpath(private)}
        """Git's or kedge's own folders, with any path and any name."""
        self.root = self._begin(root, find_repository(root))
        self._nested: dict[bytes, Space] = {}
        self._indexes: dict[Space, Signature | None] = {}
        self._followed: dict[Space, Signature | None] = {}

    def _begin(
        self, path: bytes, repository: Repository | None, outer: Space | None = None
    ) -> Space:
        if repository is not None:
            folders = (repository.git_folder, repository.common_folder)
            self.private.update(map(os.path.realpath, folders))
        return Space(path, repository, outer)

    def at(self, folder: FolderEntry, holds_git: bool) -> Space:
        """The space that a folder belongs to, or starts."""
        if folder.parent is None:
            return self._at_root(holds_git)
        if holds_git and (repository := find_repository(folder.path)):
            outer, space = folder.parent.space, self._nested.get(folder.path)
            if space is None or (space.repository, space.outer) != (repository, outer):
                space = self._nested[folder.path] = self._begin(folder.path, repository, outer)
            return space
        self._nested.pop(folder.path, None)
        return folder.parent.space

    def _at_root(self, holds_git: bool) -> Space:
        repository = find_repository(self.root.path) if holds_git else None
        if repository != self.root.repository:
            self.root = self._begin(self.root.path, repository)
        return self.root

    def stale(self) -> list[Space]:
        """The spaces whose rules or repository have changed; they are read again."""
        return [space for space in self._all() if self._renew(space)]

    def _renew(self, space: Space) -> bool:
        if find_repository(space.path) != space.repository:
            # Listing its folder again finds out what it is now.
            self._nested.pop(space.path, None)
            return True
        if space.is_current():
            return False
        before = space.rules()
        space.reload()
        return space.rules() != before

    def look_at_indexes(self) -> None:
        """Start a refresh: later changes of an index are left to the next one."""
        self._indexes = {space: space.index_signature() for space in self._all()}

    def with_other_index(self) -> list[Space]:
        """The spaces that may track other files than when their indexes were last followed."""
        return [
            space for space, seen in self._indexes.items() if self._followed.get(space, ()) != seen
        ]

    def follow_indexes(self) -> None:
        """Record that a refresh used the indexes that `look_at_indexes` saw, or later ones."""
        self._followed = self._indexes

    def _all(self) -> Iterator[Space]:
        yield self.root
        yield from list(self._nested.values())


def _read(path: bytes | None) -> bytes:
    return (read_small(path, LARGEST_RULES) or b"") if path is not None else b""
