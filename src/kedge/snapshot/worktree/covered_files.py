"""The covered files of the in-memory tree: reads, keeps and drops single names.

Content is read only through descriptors that were opened without following a symlink.
"""

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass

from kedge.domain.errors import SnapshotRefused, SnapshotTimeout
from kedge.domain.file_states import Reason
from kedge.snapshot.files.reader import Content, ReadFailure, Stamp, read_file
from kedge.snapshot.worktree.entries import File, FolderEntry, doubted

NameInFolder = tuple[FolderEntry, bytes]
"""A name in a folder."""

_MOST_LEFT = 100_000
"""How many files that went from their paths are remembered."""

REASONS = {
    ReadFailure.FOLDER: Reason.UNSTABLE,
    ReadFailure.SPECIAL: Reason.SPECIAL,
    ReadFailure.TOO_LARGE: Reason.LARGE,
    ReadFailure.UNREADABLE: Reason.UNREADABLE,
    ReadFailure.UNSTABLE: Reason.UNSTABLE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """Limits for the files of a worktree."""

    file_size: int
    files: int
    window_ns: int
    """How long a file must have been unchanged for its stat data to be trusted."""


class CoveredFiles:
    """Reads files into the object store and records their stat data."""

    def __init__(self, put: Callable[[bytes], bytes], limits: FileLimits) -> None:
        self._put = put
        self.limits = limits
        self.count = 0
        self.reads = 0
        self.deadline = float("inf")
        """When to give up, on the monotonic clock."""
        self.now = 0
        """When this refresh began, on the same clock; 0 while everything is looked at first."""
        self.left: dict[int, int] = {}
        """Of files that went from their paths, by inode, when they had changed last: one of them
        that turns up elsewhere was moved there."""
        self.again: set[NameInFolder] = set()
        """Names to examine again next time, even if no change is noticed."""
        self.linked: set[NameInFolder] = set()
        """Files with several names: a write through one name is not noticed at the others."""
        self.new_links: set[int] = set()
        """Inodes that have got several names; the other names may be recorded as single."""
        self.unstable: set[NameInFolder] = set()
        self.pool: dict[Stamp, bytes] = {}
        """Blobs of files whose folder was dropped: it may have been moved."""
        self.changes: list[NameInFolder] | None = None
        """Collects unexpected states while a verification runs; else None."""

    def read(self, folder: FolderEntry, fd: int, name: bytes) -> None:
        """Read a name that is to be covered."""
        self.check_deadline()
        self.reads += 1
        found = read_file(fd, name, self.limits.file_size, window_ns=self.limits.window_ns)
        if isinstance(found, Content):
            stamp = doubted(found.stamp) if found.racy else found.stamp
            self.keep(folder, name, File(self._put(found.data), found.mode, stamp, self.now))
            self.note_links(folder, name, found.links, found.stamp[4])
            if found.racy:
                self.again.add((folder, name))
        elif found is ReadFailure.ABSENT:
            self.drop(folder, name)
        else:
            self._fail(folder, name, REASONS[found])
            if found is ReadFailure.TOO_LARGE:
                self._stamp(folder, fd, name)

    def _stamp(self, folder: FolderEntry, fd: int, name: bytes) -> None:
        """Record the stat data of a file that is too large, to notice when it changes."""
        try:
            status = os.lstat(name, dir_fd=fd)
        except FileNotFoundError:
            return  # the next refresh finds it gone
        stamp = b"%d %d %d" % (status.st_size, status.st_ctime_ns, status.st_ino)
        if folder.large.get(name) != stamp:
            folder.large[name] = stamp
            self.note_change(folder, name)

    def _fail(self, folder: FolderEntry, name: bytes, reason: Reason) -> None:
        if reason is not Reason.SPECIAL:
            self.again.add((folder, name))
        if reason is Reason.UNSTABLE:
            self.unstable.add((folder, name))
            if file := folder.files.get(name):
                file.doubt()
                return
        self.uncover(folder, name, reason)

    def keep_all(self, folder: FolderEntry, files: dict[bytes, File]) -> None:
        """Record that the names hold these files."""
        if folder.files or folder.uncovered:
            for name, file in files.items():
                self.keep(folder, name, file)
        elif files:
            # Most files are found in a folder that is new.
            folder.files = files
            self._count(len(files))
            folder.touch()
            if self.changes is not None:
                self.changes += [(folder, name) for name in files]

    def _count(self, more: int) -> None:
        self.count += more
        if self.count > self.limits.files:
            raise TooManyFiles(self.limits.files)

    def keep(self, folder: FolderEntry, name: bytes, file: File) -> None:
        """Record that the name holds this file."""
        before = folder.files.get(name)
        if before is None:
            self._count(1)
        elif before.stamp[4] == file.stamp[4]:
            file.came = before.came
        else:
            self.note_left(before)
        folder.files[name] = file
        if folder.uncovered.pop(name, None) is not None or not _is_same(before, file):
            self.note_change(folder, name)

    def uncover(self, folder: FolderEntry, name: bytes, reason: Reason) -> None:
        """Record that the name exists but is not covered."""
        self.drop_file(folder, name)
        if folder.uncovered.get(name) is not reason:
            folder.uncovered[name] = reason
            self.note_change(folder, name)

    def drop(self, folder: FolderEntry, name: bytes) -> None:
        """Record that the name holds neither a file nor anything uncovered."""
        # A parent may only have been away for a moment, which leaves no trace here.
        folder.signature = None
        self.drop_file(folder, name)
        if folder.uncovered.pop(name, None) is not None:
            self.note_change(folder, name)

    def drop_file(self, folder: FolderEntry, name: bytes) -> None:
        """There is no covered file at the name."""
        if (file := folder.files.pop(name, None)) is not None:
            self.count -= 1
            self.note_left(file)
            self.note_change(folder, name)

    def note_left(self, file: File) -> None:
        """A file is not at its path any more, whether it is gone or moved."""
        if len(self.left) >= _MOST_LEFT:
            # Whose origin is forgotten is taken for moved in: at worst too much is left alone.
            for inode in list(self.left)[: _MOST_LEFT // 2]:
                del self.left[inode]
        self.left[file.stamp[4]] = file.stamp[3]

    def note_change(self, folder: FolderEntry, name: bytes) -> None:
        folder.touch()
        if self.changes is not None:
            self.changes.append((folder, name))

    def note_links(self, folder: FolderEntry, name: bytes, links: int, inode: int) -> None:
        """Record whether a file has other names, in the worktree or elsewhere."""
        if links == 1:
            self.linked.discard((folder, name))
        elif (folder, name) not in self.linked:
            self.linked.add((folder, name))
            self.new_links.add(inode)

    def check_deadline(self) -> None:
        if time.monotonic() > self.deadline:
            raise SnapshotTimeout


class TooManyFiles(SnapshotRefused):
    """The worktree has more files than the limit for snapshots."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the worktree holds more than {limit:,} files; ignore some of them in .gitignore, or"
            " raise the setting snapshot_files"
        )


def _is_same(one: File | None, other: File) -> bool:
    return one is not None and one.blob == other.blob and one.mode == other.mode


def git_mode(mode: int) -> int:
    """The mode of a covered file in a git tree."""
    if stat.S_ISLNK(mode):
        return 0o120000
    return 0o100755 if mode & stat.S_IXUSR else 0o100644
