"""The worktree in memory: folders and covered files with the stat data they were last read at."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from kedge.snapshot.files.reader import Stamp
from kedge.snapshot.values import Reason

if TYPE_CHECKING:
    from kedge.snapshot.ignore.folders import Ignore
    from kedge.snapshot.worktree.repositories import Space


class File(msgspec.Struct, gc=False):
    """A covered file or link. There may be many: it is small, and nothing for the collector."""

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
    """A folder that is looked into."""

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
        """Absolute, without a slash at its end: with one, a symlink would be followed."""
        self.parent = parent
        self.name = path.rpartition(b"/")[2]
        self.files: dict[bytes, File] = {}
        self.folders: dict[bytes, FolderEntry] = {}
        self.uncovered: dict[bytes, Reason] = {}
        self.large: dict[bytes, bytes] = {}
        """Of uncovered files that are too large, what tells whether they changed."""
        self.signature: Stamp | None = None
        """Its stat data when it was listed; None when it has to be listed again."""
        self.space = space
        """The repository whose rules hold in it."""
        self.excluded = False
        """It is ignored itself, and looked into only for what is tracked or declared."""
        self.ignore: Ignore | None = None
        """The rules inside it; known once it was listed."""
        self.own = b""
        """The content of its own `.gitignore`."""
        self.rules: Stamp | None = None
        """The stat data of that file; None if there is none."""
        self.watch: int | None = None
        self.tree: bytes | None = None
        """The id of its tree, empty if it holds nothing; None when it has to be written anew."""
        self.notes: bytes | None = None
        self.gone = False
        """It was taken out of the tree; whoever still knows it must forget it."""

    def touch(self) -> None:
        """Something in this folder is no longer what its trees say."""
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
    """What tells whether a folder's names may have changed."""
    return (
        status.st_mode,
        status.st_dev,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
    )
