"""The in-memory state of a worktree: updated from the disk at the least cost, and written as git
trees."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from operator import attrgetter
from stat import S_IFREG, S_ISLNK, S_IXUSR

from kedge.domain.errors import SnapshotError
from kedge.domain.file_states import Reason
from kedge.snapshot.files.reader import stamp_of
from kedge.snapshot.files.root import Root
from kedge.snapshot.objects.formats import EMPTY_TREE, encode_tree
from kedge.snapshot.worktree.covered_files import CoveredFiles, FileLimits, NameInFolder, git_mode
from kedge.snapshot.worktree.entries import File, FolderEntry
from kedge.snapshot.worktree.repositories import Space, Spaces
from kedge.snapshot.worktree.scan import Lister
from kedge.snapshot.worktree.stat_cache import Nothing
from kedge.snapshot.worktree.watch import Hints, Rescan, Watch, WatchesUsedUp

_mode_of: "attrgetter[int]" = attrgetter("mode")

_FOLDER_MODE = 0o40000
_FILE_MODE = 0o100644
_USUAL = ((0o644, 0o755), (0o664, 0o775), (0o600, 0o700), (0o640, 0o750), (0o660, 0o770))

Put = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Trees:
    """The two trees of a snapshot."""

    files: bytes
    notes: bytes


def write_trees(top: FolderEntry, base: tuple[int, int], put_tree: Put, put_blob: Put) -> Trees:
    """Write the trees of every folder that changed, deepest first."""
    for folder in reversed(_unwritten(top)):
        folder.tree = _put(put_tree, _file_entries(folder))
        folder.notes = _put(put_tree, _note_entries(folder, base, put_blob))
    return Trees(top.tree or _put_empty(put_tree), top.notes or _put_empty(put_tree))


def _unwritten(top: FolderEntry) -> list[FolderEntry]:
    found = []
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        if folder.tree is None or folder.notes is None:
            found.append(folder)
            waiting.extend(folder.folders.values())
    return found


Entry = tuple[bytes, int, bytes]


def _file_entries(folder: FolderEntry) -> list[Entry]:
    entries = [(name, git_mode(file.mode), file.blob) for name, file in folder.files.items()]
    entries += [
        (name, _FOLDER_MODE, below.tree) for name, below in folder.folders.items() if below.tree
    ]
    return entries


def _note_entries(folder: FolderEntry, base: tuple[int, int], put_blob: Put) -> list[Entry]:
    plain, executable = base
    entries = [
        (name, _FILE_MODE, put_blob(_uncovered_note(folder, name, reason)))
        for name, reason in folder.uncovered.items()
    ]
    for name, file in folder.files.items():
        bits = file.mode & 0o7777
        if bits != (executable if bits & S_IXUSR else plain) and not S_ISLNK(file.mode):
            entries.append((name, _FILE_MODE, put_blob(b"mode %o" % bits)))
    entries += [
        (name, _FOLDER_MODE, below.notes) for name, below in folder.folders.items() if below.notes
    ]
    return entries


def _uncovered_note(folder: FolderEntry, name: bytes, reason: Reason) -> bytes:
    if reason is Reason.LARGE and name in folder.large:
        return b"%b %b" % (reason.encode(), folder.large[name])
    return reason.encode()


def _put(put_tree: Put, entries: list[Entry]) -> bytes:
    return put_tree(encode_tree(entries)) if entries else b""


def _put_empty(put_tree: Put) -> bytes:
    assert put_tree(b"") == EMPTY_TREE
    return EMPTY_TREE


def usual_bits(top: FolderEntry) -> tuple[int, int]:
    """The permission bits that most files have, so that the notes need not mention them."""
    modes = Counter[int]()
    for folder in top.everything():
        modes.update(map(_mode_of, folder.files.values()))
    return max(_USUAL, key=lambda pair: sum(modes[S_IFREG | bits] for bits in pair))


class WorktreeState:
    """The covered part of a worktree, updated on demand. Not thread-safe."""

    def __init__(
        self,
        root: Root,
        spaces: Spaces,
        watch: Watch,
        put: Callable[[bytes], bytes],
        limits: FileLimits,
    ) -> None:
        self._root = root
        self.covered = CoveredFiles(put, limits)
        self.lister = Lister(root, spaces, watch, self.covered)
        self.spaces = spaces
        self.top = self.lister.top
        self.is_known = False
        """Whether everything was examined once."""
        self._doubt = False
        self.way_reason = ""
        """Why no better way to detect changes is used; empty if there is none."""
        self._undeclared: list[bytes] = []
        self.base = (0o644, 0o755)

    @property
    def watch(self) -> Watch:
        return self.lister.watch

    @property
    def overflows(self) -> int:
        """How often the kernel lost events."""
        return self.watch.overflows

    def refresh(self, deadline: float = float("inf")) -> None:
        """Update it from the disk, giving up at a time of the monotonic clock."""
        self.covered.deadline = deadline
        self.covered.now = time.monotonic_ns() if self.is_known else 0
        self.covered.unstable.clear()
        try:
            self._refresh()
        except BaseException:
            # The hints are used up, but not everything they named was examined.
            self._doubt = True
            raise
        finally:
            self.covered.pool.clear()
        self._doubt = False

    def follow_root(self) -> None:
        """If another folder is at the root's path now, use that one from now on."""
        if not self._root.is_same():
            self._root.reopen()
            self._doubt = True

    def check_root(self) -> None:
        """Raise if the root was replaced while it was being read: the result is then useless."""
        if not self._root.is_same():
            self._doubt = True
            raise SnapshotError(f"the folder {os.fsdecode(self._root.path)} was replaced")

    def _refresh(self) -> None:
        try:
            self._refresh_once()
        except WatchesUsedUp as error:
            self._stop_watching(error)
            self._refresh_once()

    def _refresh_once(self) -> None:
        self.spaces.look_at_indexes()
        if self._doubt:
            self._distrust_all()
        if not self.is_known:
            self.lister.classify(self.top)
            self.is_known = True
            self.lister.memory = Nothing()
            self.base = usual_bits(self.top)
            self._follow_declared()
            self.covered.new_links.clear()
            self.spaces.follow_indexes()
            return
        hints = self.watch.collect()
        again, self.covered.again = self.covered.again, set()
        self._mark(hints)
        if hints.everything or self._doubt:
            self.lister.check(self.top)
            # A file that is read every time was just read.
            again = {place for place in again if place[1] not in place[0].files}
        else:
            self._follow(hints)
            self._look_at(self._changed_links())
        self._look_at(again)
        self._follow_rules()
        self._follow_declared()
        self._follow_links()

    def _distrust_all(self) -> None:
        """A refresh was cut short: trust only the files' own stat data from now on."""
        for folder in self.top.everything():
            folder.signature = folder.tree = folder.notes = None
        self.covered.count = sum(len(folder.files) for folder in self.top.everything())

    def _stop_watching(self, error: WatchesUsedUp) -> None:
        self.way_reason = f"there are too many folders to watch: {error}"
        self.watch.close()
        self.lister.watch = Rescan()
        for folder in self.top.everything():
            folder.watch = None
        self._doubt = True

    # Changes

    def _mark(self, hints: Hints) -> None:
        """Distrust everything that hints name, before anything is examined or moved."""
        for folder, names in hints.names.items():
            for name, hint in names.items():
                file = folder.files.get(name)
                if file is not None and hint.written:
                    file.doubt()
        for folder, names in hints.names.items():
            for name, hint in names.items():
                below = folder.folders.get(name)
                if below is not None and hint.replaced:
                    self.lister.forget(below)
                    # After an overflow, a check must not miss that it is gone.
                    folder.signature = None

    def _follow(self, hints: Hints) -> None:
        for folder in sorted(hints.names, key=_path_of):
            self.lister.look(folder, hints.names[folder])

    def _changed_links(self) -> list[NameInFolder]:
        """Files with several names that were changed through any of them."""
        changed = []
        for place in list(self.covered.linked):
            folder, name = place
            file = folder.files.get(name)
            if folder.gone or file is None:
                self.covered.linked.discard(place)
            elif _stamp_at(folder, name) != file.stamp:
                changed.append(place)
        return changed

    def _follow_links(self) -> None:
        """Find the earlier names of files that got another one."""
        inodes, self.covered.new_links = self.covered.new_links, set()
        if not inodes:
            return
        for folder in self.top.everything():
            for name, file in folder.files.items():
                if file.stamp[4] in inodes:
                    self.covered.linked.add((folder, name))
        self._look_at(self._changed_links())

    def _look_at(self, places: Iterable[NameInFolder]) -> None:
        names: dict[FolderEntry, list[bytes]] = {}
        for folder, name in places:
            if not folder.gone:
                names.setdefault(folder, []).append(name)
        for folder in sorted(names, key=_path_of):
            self.lister.look(folder, names[folder])

    def _follow_rules(self) -> None:
        """Apply changed rules that are not in the covered files themselves."""
        for space in self.spaces.stale():
            if folder := self.lister.folder_at(space.path):
                self.lister.classify(folder)
        for space in self.spaces.with_other_index():
            self._look_at(self._ignored_in(space))
        self.spaces.follow_indexes()

    def _ignored_in(self, space: Space) -> list[NameInFolder]:
        """Names to examine again: ignored ones that are tracked by now, and covered ones that may
        be ignored by now."""
        places = [
            (folder, name)
            for folder in self.top.everything()
            if folder.space.is_within(space)
            for name, reason in folder.uncovered.items()
            if reason is Reason.IGNORED and _is_tracked(folder, name)
        ]
        exceptions = {place for place in self.lister.exceptions if not place[0].gone}
        self.lister.exceptions.intersection_update(exceptions)
        # Ignored folders that were entered for tracked files may have to be left.
        entered = [
            (folder.parent, folder.name)
            for folder in self.top.everything()
            if folder.excluded and folder.parent is not None
        ]
        return [*places, *exceptions, *entered]

    # Information from callers

    def declare(self, paths: Iterable[bytes]) -> None:
        """Cover paths even if they are ignored."""
        # Thread-safe: the next refresh applies it.
        self._undeclared.extend(paths)

    def _follow_declared(self) -> None:
        while self._undeclared:
            path = self._undeclared.pop()
            if path in self.lister.declared:
                continue
            self.lister.declared.add(path)
            folder, names = self.top, path.split(b"/")
            while len(names) > 1 and names[0] in folder.folders:
                folder = folder.folders[names.pop(0)]
            self.lister.look(folder, names[:1])

    def distrust(self, blobs: Set[bytes]) -> None:
        """These blobs could not be copied after all: read the files that hold them again."""
        for folder in self.top.everything():
            for name, file in folder.files.items():
                if file.blob in blobs:
                    file.doubt()
                    self.covered.again.add((folder, name))

    # Verification

    def verify(self, folders: Iterable[FolderEntry]) -> list[bytes]:
        """Compare folders with the disk; returns the paths with changes that were missed."""
        try:
            return self._verify(folders)
        except BaseException:
            self._doubt = True
            raise

    def _verify(self, folders: Iterable[FolderEntry]) -> list[bytes]:
        self.refresh()
        found: list[NameInFolder] = []
        self.covered.changes = found
        try:
            for folder in folders:
                if not folder.gone:
                    self.lister.relist(folder)
        except WatchesUsedUp as error:
            self._stop_watching(error)
        finally:
            self.covered.changes = None
            self.covered.pool.clear()
        # Changes that were noticed while the check ran explain its findings.
        hints = self.watch.collect()
        self._mark(hints)
        excused = {(folder, name) for folder, names in hints.names.items() for name in names}
        self._follow(hints)
        if hints.everything:
            self._doubt = True
            return []
        missed = {place for place in found if not _is_excused(*place, excused)}
        return sorted(self._path_at(*place) for place in missed)

    # Results

    def write(
        self, put_tree: Callable[[bytes], bytes], put_blob: Callable[[bytes], bytes]
    ) -> Trees:
        """Write the trees of the known state; unchanged ones are not written."""
        return write_trees(self.top, self.base, put_tree, put_blob)

    def holding(self, blobs: Set[bytes]) -> list[tuple[bytes, File]]:
        """The paths that held these blobs at the last refresh."""
        return [
            (self._path_at(folder, name), file)
            for folder in self.top.everything()
            for name, file in folder.files.items()
            if file.blob in blobs
        ]

    def moved_in(self, births: Mapping[bytes, int], after: int) -> set[bytes]:
        """Those of the paths at which a file is since some time of the monotonic clock that was
        at no other covered path before; `births` says when each was made, by the file clock."""
        came = {
            path: file.stamp[4]
            for path, birth in births.items()
            if path not in self.lister.declared
            and (file := self._file_at(path)) is not None
            and file.came > after
            and self.covered.left.get(file.stamp[4], -1) < birth
        }
        if not came:
            return set()
        inodes = set(came.values())
        # It may be one more name of a file that is where it was.
        linked = {
            file.stamp[4]
            for folder in self.top.everything()
            for file in folder.files.values()
            if file.stamp[4] in inodes and file.came <= after
        }
        return {path for path, inode in came.items() if inode not in linked}

    def _file_at(self, path: bytes) -> File | None:
        above, _, name = (self.top.path + b"/" + path).rpartition(b"/")
        folder = self.lister.folder_at(above)
        return None if folder is None else folder.files.get(name)

    def unstable(self) -> tuple[bytes, ...]:
        """The paths that changed whenever the last refresh tried to read them."""
        return tuple(sorted(self._path_at(*place) for place in self.covered.unstable))

    def _path_at(self, folder: FolderEntry, name: bytes) -> bytes:
        return (folder.path + b"/" + name)[len(self.top.path) + 1 :]

    def close(self) -> None:
        self.watch.close()


def _is_tracked(folder: FolderEntry, name: bytes) -> bool:
    path = folder.path + b"/" + name
    return folder.space.is_tracked(path) or folder.space.is_tracked_below(path)


def _path_of(folder: FolderEntry) -> bytes:
    return folder.path


def _stamp_at(folder: FolderEntry, name: bytes) -> tuple[int, ...] | None:
    try:
        return stamp_of(os.lstat(folder.path + b"/" + name))
    except OSError:
        return None


def _is_excused(folder: FolderEntry, name: bytes, excused: set[NameInFolder]) -> bool:
    while (folder, name) not in excused:
        if folder.parent is None:
            return False
        folder, name = folder.parent, folder.name
    return True
