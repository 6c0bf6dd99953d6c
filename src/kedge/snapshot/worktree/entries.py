"""The in-memory tree of a worktree: folders and covered files with their last stat data."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from kedge.domain.file_states import Reason
from kedge.snapshot.files.reader import Stamp

if TYPE_CHECKING:
    from kedge.snapshot.ignore.folders import Ignore
    from kedge.snapshot.worktree.repositories import Space


class File(msgspec.Struct, gc=False):
    """A covered file or link. There may be many, so it is small and not tracked by the
    collector."""

    blob: bytes
    mode: int
    stamp: Stamp
    came: int
    """When this very file was first seen at this path, on the monotonic clock; 0 if it may always
    have been there."""

    def doubt(self) -> None:
        """Have the next look read it, whatever its stat data say; which file it is stays known."""
        self.stamp = doubted(self.stamp)

    @property
    def is_doubted(self) -> bool:
        """Whether the next look has to read it."""
        return self.stamp[0] < 0


def doubted(stamp: Stamp) -> Stamp:
    """A stamp that no file has, with the same inode and time of change."""
    return -1, -1, -1, stamp[3], stamp[4]


class FolderEntry:
    """A folder whose contents are examined."""

    __slots__ = (
        "excluded",
        "files",
        "folders",
        "gone",
        "ignore",
        "large",
        "name",
        "notes",
        "own",
        "parent",
        "path",
        "rules",
        "signature",
        "space",
        "tree",
        "uncovered",
        "watch",
    )

    def __init__(self, path: bytes, space: "Space", parent: "FolderEntry | None" = None) -> None:
        self.path = path
        """Absolute, without a trailing slash: with one, a symlink would be followed."""
        self.parent = parent
        self.name = path.rpartition(b"/")[2]
        self.files: dict[bytes, File] = {}
        self.folders: dict[bytes, FolderEntry] = {}
        self.uncovered: dict[bytes, Reason] = {}
        self.large: dict[bytes, bytes] = {}
        """For uncovered files that are too large: values that change when they change."""
        self.signature: Stamp | None = None
        """Its stat data when it was listed; None if it must be listed again."""
        self.space = space
        """The repository whose rules apply in it."""
        self.excluded = False
        """Whether it is ignored itself, and examined only for tracked or declared files."""
        self.ignore: Ignore | None = None
        """The rules inside it; known once it was listed."""
        self.own = b""
        """The content of its own `.gitignore`."""
        self.rules: Stamp | None = None
        """The stat data of that file; None if there is none."""
        self.watch: int | None = None
        self.tree: bytes | None = None
        """The id of its tree, empty if it holds nothing; None if it must be written again."""
        self.notes: bytes | None = None
        self.gone = False
        """Whether it was removed from the tree; other references to it must then be dropped."""

    def touch(self) -> None:
        """Record a change in this folder: its trees, and those of its parents, are out of date."""
        folder: FolderEntry | None = self
        while folder is not None and (folder.tree is not None or folder.notes is not None):
            folder.tree = folder.notes = None
            folder = folder.parent

    def everything(self) -> Iterator["FolderEntry"]:
        """This folder and all below it, parents first."""
        waiting = [self]
        while waiting:
            folder = waiting.pop()
            yield folder
            waiting.extend(folder.folders.values())


def signature_of(status: os.stat_result) -> Stamp:
    """A value that changes when a folder's names may have changed."""
    return (
        status.st_mode,
        status.st_dev,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
    )
