"""Updates folders of the in-memory tree from the disk.

`state` decides which folders need it. Names and stat data are taken by path, which is fast;
`file_reader` reads the files that need reading.
"""

import errno
import os
import stat
import time
from collections.abc import Collection, Iterable
from operator import attrgetter

from kedge.domain.errors import SnapshotRefused
from kedge.domain.file_states import Reason
from kedge.snapshot.files.reader import Content, Stamp, read_file, stamp_of
from kedge.snapshot.files.root import FolderAbsent, FolderBlocked, Root
from kedge.snapshot.files.steps import is_own_name
from kedge.snapshot.repository.signatures import LARGEST_RULES
from kedge.snapshot.worktree.covered_files import CoveredFiles
from kedge.snapshot.worktree.entries import File, FolderEntry, signature_of
from kedge.snapshot.worktree.repositories import Spaces
from kedge.snapshot.worktree.stat_cache import Found, Memory, Nothing
from kedge.snapshot.worktree.watch import Watch

RULES = b".gitignore"
GIT = b".git"

_links_of = attrgetter("st_nlink")
# A folder that cannot be read, or whose path is longer than the system allows.
_UNREADABLE = {errno.EACCES, errno.EPERM, errno.EIO, errno.ENAMETOOLONG, errno.ESTALE}


class Lister:
    """Lists folders, decides what in them is covered, and has `CoveredFiles` read what changed."""

    def __init__(self, root: Root, spaces: Spaces, watch: Watch, covered: CoveredFiles) -> None:
        self._root = root
        self._below = len(root.path) + 1
        self.spaces = spaces
        self.watch = watch
        self.covered = covered
        self.top = FolderEntry(root.path, spaces.root)
        self.memory: Memory = Nothing()
        self.exceptions: set[tuple[FolderEntry, bytes]] = set()
        """Names that are covered although they are ignored."""
        self.declared: set[bytes] = set()
        """Paths that a tool wrote: covered even if ignored."""

    def survey(self, top: FolderEntry) -> None:
        """List a folder and all below it, regardless of the known names."""
        waiting = [top]
        while waiting:
            folder = waiting.pop()
            if self._list(folder):
                waiting.extend(folder.folders.values())

    def check(self, top: FolderEntry) -> None:
        """Compare a folder and all below it with the disk by their stat data."""
        waiting = [top]
        while waiting:
            folder = waiting.pop()
            if self._check_one(folder):
                waiting.extend(folder.folders.values())

    def classify(self, top: FolderEntry) -> None:
        """List a folder and all below it because the rules may have changed."""
        for folder in top.everything():
            folder.signature = None
        self.survey(top)

    def relist(self, folder: FolderEntry) -> None:
        """List a folder again, and every folder in it that was not known."""
        known = set(folder.folders.values())
        if self._list(folder):
            for below in list(folder.folders.values()):
                if below not in known or below.signature is None:
                    self.survey(below)

    def look(self, folder: FolderEntry, names: Iterable[bytes]) -> None:
        """Examine some names of a folder again, or all of them if its rules changed."""
        if self._look(folder, names):
            self.classify(folder)

    def forget(self, top: FolderEntry) -> None:
        """Remove a folder from the tree; its blobs are remembered, as it may have been moved."""
        if top.gone:
            return
        for folder in top.everything():
            folder.gone = True
            self.watch.remove(folder)
            self.covered.count -= len(folder.files)
            for file in folder.files.values():
                self.covered.note_left(file)
                if not file.is_doubted:
                    self.covered.pool[file.stamp] = file.blob
        if top.parent is not None:
            top.parent.folders.pop(top.name, None)
            self.covered.note_change(top.parent, top.name)

    def relative(self, folder: FolderEntry) -> bytes:
        """Its path relative to the root."""
        return folder.path[self._below :]

    # Folders

    def _check_one(self, folder: FolderEntry) -> bool:
        self.covered.check_deadline()
        try:
            status = os.lstat(folder.path)
        except OSError:
            return self._list(folder)
        if signature_of(status) != folder.signature:
            return self._list(folder)
        if folder.rules is not None and self._rules_changed(folder):
            self.look(folder, (RULES,))
        self._check_files(folder)
        return not folder.gone

    def _rules_changed(self, folder: FolderEntry) -> bool:
        try:
            return stamp_of(os.lstat(folder.path + b"/" + RULES)) != folder.rules
        except OSError:
            return True

    def _check_files(self, folder: FolderEntry) -> None:
        files = folder.files
        try:
            found = list(map(stamp_of, map(os.lstat, map((folder.path + b"/").__add__, files))))
        except OSError:
            # One of them is gone: the slower path finds out which.
            self.look(folder, list(files))
            return
        known = [file.stamp for file in files.values()]
        if found != known:
            pairs = zip(files, found, known, strict=True)
            self.look(folder, [name for name, now, then in pairs if now != then])

    def _list(self, folder: FolderEntry) -> bool:
        """Update the names of a folder; False if it cannot be read any more."""
        self.covered.check_deadline()
        try:
            self.watch.add(folder)
            status = os.lstat(folder.path)
            now = time.time_ns()
            folders, others = _names_in(folder.path, status)
        except (FileNotFoundError, NotADirectoryError):
            self._lose(folder)
            return False
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
            self._lose(folder, Reason.UNREADABLE)
            return False
        # Set only after a complete listing: one that fails leaves no trace.
        folder.signature = None
        before = (folder.own, folder.space)
        self._learn_rules(folder, GIT in folders or GIT in others, RULES in others)
        if (folder.own, folder.space) != before:
            self._distrust_below(folder)
        self._take_names(folder, folders, others)
        # The times were taken before the names, so any later change shows next time, except in the
        # same tick of the clock.
        if status.st_ctime_ns < now - self.covered.limits.window_ns:
            folder.signature = signature_of(status)
        return not folder.gone

    def _distrust_below(self, folder: FolderEntry) -> None:
        """The rules of a folder changed: the folders below it must be listed again."""
        for below in folder.everything():
            if below is not folder:
                below.signature = None

    def _lose(self, folder: FolderEntry, reason: Reason | None = None) -> None:
        """Record that a folder cannot be read any more."""
        parent = folder.parent
        if parent is None:
            raise SnapshotRefused(f"the folder {os.fsdecode(folder.path)} cannot be read any more")
        # A parent may only have been away for a moment, which leaves no trace here.
        parent.signature = None
        self.forget(folder)
        if reason is not None:
            self.covered.uncover(parent, folder.name, reason)
            self.covered.again.add((parent, folder.name))

    def _learn_rules(self, folder: FolderEntry, holds_git: bool, has_rules: bool) -> None:
        folder.own, folder.rules = self._read_rules(folder) if has_rules else (b"", None)
        private = len(self.spaces.private)
        # An ignored folder is entered for its tracked files, not to find repositories in it.
        holds_git = holds_git and not folder.excluded
        folder.space = self.spaces.at(folder, holds_git)
        if len(self.spaces.private) > private:
            self._look_at_private()
        if holds_git and folder.space.path != folder.path:
            self._wait_for_git(folder)
        if folder.space.path == folder.path:
            folder.ignore = folder.space.ignore(folder.own)
        else:
            assert folder.parent is not None
            assert folder.parent.ignore is not None
            folder.ignore = folder.parent.ignore.below(folder.name, folder.own)

    def _look_at_private(self) -> None:
        """A repository appeared: its own folder is examined again, if it was covered."""
        for path in self.spaces.private:
            if path.startswith(self._root.path + b"/"):
                above, _, name = path.rpartition(b"/")
                if parent := self.folder_at(above):
                    self.covered.again.add((parent, name))

    def folder_at(self, path: bytes) -> FolderEntry | None:
        """The folder at an absolute path, if it is in the tree."""
        folder: FolderEntry | None = self.top
        for name in path[self._below :].split(b"/") if path != self._root.path else ():
            folder = folder.folders.get(name) if folder is not None else None
        return folder

    def _read_rules(self, folder: FolderEntry) -> tuple[bytes, Stamp | None]:
        try:
            with self._root.folder(self.relative(folder)) as fd:
                found = read_file(fd, RULES, LARGEST_RULES, window_ns=self.covered.limits.window_ns)
        except (FolderAbsent, FolderBlocked, PermissionError):
            return b"", None
        # As in git, a link is not followed.
        if not isinstance(found, Content) or not stat.S_ISREG(found.mode):
            return b"", None
        if found.racy:
            self.covered.again.add((folder, RULES))
        return found.data, found.stamp

    def _take_names(self, folder: FolderEntry, folders: list[bytes], others: list[bytes]) -> None:
        uncovered: dict[bytes, Reason] = {}
        kept = self._covered_folders(folder, folders, uncovered)
        covered = self._covered_files(folder, others, uncovered)
        for name in folder.folders.keys() - kept.keys():
            self.forget(folder.folders[name])
        for name in folder.files.keys() - covered.keys():
            self.covered.drop_file(folder, name)
        folder.folders = kept
        if folder.uncovered != uncovered:
            folder.uncovered = uncovered
            folder.touch()
        self._take_files(folder, covered)

    def _covered_folders(
        self, folder: FolderEntry, names: list[bytes], uncovered: dict[bytes, Reason]
    ) -> dict[bytes, FolderEntry]:
        kept = {}
        for name in names:
            if reason := self._reason_against_folder(folder, name):
                uncovered[name] = reason
            elif self._is_tried_again(folder, name):
                uncovered[name] = Reason.UNREADABLE
            elif not is_own_name(name):
                below = folder.folders.get(name) or self._new_folder(folder, name)
                below.excluded = self._is_ignored(folder, name, True)
                kept[name] = below
        return kept

    def _is_tried_again(self, folder: FolderEntry, name: bytes) -> bool:
        """Whether a folder could not be read, and the next refresh tries again."""
        unreadable = folder.uncovered.get(name) is Reason.UNREADABLE
        return unreadable and (folder, name) in self.covered.again

    def _covered_files(
        self, folder: FolderEntry, names: list[bytes], uncovered: dict[bytes, Reason]
    ) -> dict[bytes, None]:
        covered = dict.fromkeys(names)
        if GIT in covered:
            del covered[GIT]
            uncovered[GIT] = Reason.REPOSITORY
        for name in list(filter(is_own_name, covered)):
            del covered[name]
        for name in self._ignored_files(folder, covered):
            if not self._is_wanted(folder, name):
                uncovered[name] = Reason.IGNORED
                del covered[name]
        for name in folder.uncovered.keys() & covered.keys():
            # It may still be too large or unreadable, as it was when last examined.
            if folder.uncovered[name] is not Reason.IGNORED:
                uncovered[name] = folder.uncovered[name]
        return covered

    def _ignored_files(self, folder: FolderEntry, names: Collection[bytes]) -> list[bytes]:
        assert folder.ignore is not None
        return list(names) if folder.excluded else folder.ignore.excluded_files(names)

    def _new_folder(self, parent: FolderEntry, name: bytes) -> FolderEntry:
        parent.touch()
        return FolderEntry(parent.path + b"/" + name, parent.space, parent)

    def _take_files(self, folder: FolderEntry, names: dict[bytes, None]) -> None:
        try:
            results = list(map(os.lstat, map((folder.path + b"/").__add__, names)))
        except OSError:
            self._look_at_rest(folder, names)
            return
        if max(map(_links_of, results), default=1) > 1:
            for name, status in zip(names, results, strict=True):
                self.covered.note_links(folder, name, status.st_nlink, status.st_ino)
        found = dict(zip(names, zip(results, map(stamp_of, results), strict=True), strict=True))
        unknown = self._take_known(folder, found)
        if unknown:
            self._look_at_rest(folder, unknown)

    def _take_known(self, folder: FolderEntry, found: Found) -> list[bytes]:
        """Keep the files that need no reading; returns the names of the others."""
        files, pool, limit = folder.files, self.covered.pool, self.covered.limits.file_size
        blobs = self.memory.blobs(folder, found)
        unknown = []
        known = {}
        for name, (_, stamp) in found.items():
            file = files.get(name)
            if file is not None and file.stamp == stamp:
                continue
            blob = blobs.get(name) or pool.get(stamp)
            if blob is None or stamp[1] > limit:
                unknown.append(name)
            else:
                known[name] = File(blob, stamp[0], stamp, self.covered.now)
        self.covered.keep_all(folder, known)
        return unknown

    def _look_at_rest(self, folder: FolderEntry, names: Iterable[bytes]) -> None:
        # The rules were just read: if they changed again, the next refresh must list again.
        if self._look(folder, names):
            self.covered.again.add((folder, RULES))

    # Names

    def _look(self, folder: FolderEntry, names: Iterable[bytes]) -> bool:
        """Examine names again; True if what is covered in the folder may have changed."""
        changed = False
        if folder.gone:
            return False
        try:
            with self._root.folder(self.relative(folder)) as fd:
                for name in names:
                    changed |= self._look_at(folder, fd, name)
        except (FolderAbsent, FolderBlocked):
            self._lose(folder)
        except PermissionError:
            self._lose(folder, Reason.UNREADABLE)
        return changed and not folder.gone

    def _look_at(self, folder: FolderEntry, fd: int, name: bytes) -> bool:
        if is_own_name(name):
            return False
        if name == GIT:
            return self._look_at_git(folder, fd)
        try:
            status = os.lstat(name, dir_fd=fd)
        except FileNotFoundError:
            self._look_at_nothing(folder, name)
            return name == RULES and folder.own != b""
        if stat.S_ISDIR(status.st_mode):
            self._look_at_folder(folder, name)
        else:
            self._look_at_file(folder, fd, name, stamp_of(status))
        return name == RULES and self._reread_rules(folder)

    def _look_at_git(self, folder: FolderEntry, fd: int) -> bool:
        try:
            os.lstat(GIT, dir_fd=fd)
        except FileNotFoundError:
            return GIT in folder.uncovered
        space = self.spaces.at(folder, not folder.excluded)
        if space.path != folder.path and not folder.excluded:
            self._wait_for_git(folder)
        return space is not folder.space or GIT not in folder.uncovered

    def _wait_for_git(self, folder: FolderEntry) -> None:
        # Half a repository may be one being created; changes inside of it are not noticed.
        self.covered.again.add((folder, GIT))

    def _reread_rules(self, folder: FolderEntry) -> bool:
        before = folder.own
        own, folder.rules = self._read_rules(folder)
        return own != before

    def _look_at_nothing(self, folder: FolderEntry, name: bytes) -> None:
        if below := folder.folders.get(name):
            self.forget(below)
        self.covered.drop(folder, name)

    def _look_at_folder(self, folder: FolderEntry, name: bytes) -> None:
        self.covered.drop_file(folder, name)
        if reason := self._reason_against_folder(folder, name):
            if below := folder.folders.get(name):
                self.forget(below)
            self.covered.uncover(folder, name, reason)
        elif below := folder.folders.get(name):
            self.relist(below)
        else:
            self.covered.drop(folder, name)
            below = folder.folders[name] = self._new_folder(folder, name)
            below.excluded = self._is_ignored(folder, name, True)
            self.survey(below)

    def _look_at_file(self, folder: FolderEntry, fd: int, name: bytes, stamp: Stamp) -> None:
        if below := folder.folders.get(name):
            self.forget(below)
        if reason := self._reason_against_file(folder, name):
            self.covered.uncover(folder, name, reason)
            return
        file = folder.files.get(name)
        if file is None or file.stamp != stamp:
            self.covered.read(folder, fd, name)

    # Coverage

    def _reason_against_folder(self, folder: FolderEntry, name: bytes) -> Reason | None:
        if name == GIT or folder.path + b"/" + name in self.spaces.private:
            return Reason.REPOSITORY
        if self._is_ignored(folder, name, True) and not self._is_wanted_below(folder, name):
            return Reason.IGNORED
        return None

    def _reason_against_file(self, folder: FolderEntry, name: bytes) -> Reason | None:
        if name == GIT:
            return Reason.REPOSITORY
        if self._is_ignored(folder, name, False) and not self._is_wanted(folder, name):
            return Reason.IGNORED
        return None

    def _is_ignored(self, folder: FolderEntry, name: bytes, is_folder: bool) -> bool:
        assert folder.ignore is not None
        return folder.excluded or folder.ignore.excludes(name, is_folder)

    def _is_wanted(self, folder: FolderEntry, name: bytes) -> bool:
        """Whether an ignored file is covered anyway."""
        path = folder.path + b"/" + name
        wanted = path[self._below :] in self.declared or folder.space.is_tracked(path)
        if wanted:
            self.exceptions.add((folder, name))
        return wanted

    def _is_wanted_below(self, folder: FolderEntry, name: bytes) -> bool:
        """Whether something in an ignored folder is covered anyway."""
        path = folder.path + b"/" + name
        start = path[self._below :] + b"/"
        if any(declared.startswith(start) for declared in self.declared):
            return True
        return folder.space.is_tracked_below(path)


def _names_in(path: bytes, status: os.stat_result) -> tuple[list[bytes], list[bytes]]:
    """The folders and the other names in a folder."""
    folders: list[bytes] = []
    others: list[bytes] = []
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                others.append(entry.name)
    return folders, others
