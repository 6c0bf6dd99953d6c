"""Takes blobs of files from the user's own index, so that a first snapshot need not read every
file.

Only where the index entry certainly stands for the bytes on disk. The blobs themselves are copied
from the user's packs meanwhile; files whose blobs cannot be copied are read after all.

This is stricter than git, which only has to notice that a file may have changed. Callers check
whether the blob still exists, its size, and which attributes apply.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field

from kedge.snapshot.files.reader import Content, read_file
from kedge.snapshot.files.root import Root
from kedge.snapshot.ignore.attributes import Attributes
from kedge.snapshot.objects.formats import EMPTY_BLOB
from kedge.snapshot.objects.store import ObjectStore
from kedge.snapshot.objects.user_packs import BlobCopy
from kedge.snapshot.repository.index import Entry, GitIndex
from kedge.snapshot.repository.signatures import LARGEST_RULES, read_small
from kedge.snapshot.worktree.entries import FolderEntry
from kedge.snapshot.worktree.repositories import Space
from kedge.snapshot.worktree.stat_cache import Found

_SECOND = 1_000_000_000
_WORD = 0xFFFFFFFF
_KIND_AND_EXECUTABLE = 0o170100
_LINK = 0o120000

# Assumed unchanged or in conflict; in the upper half: not checked out, or only to be added.
_UNSURE = 0x8000 | 0x3000 | 0x4000 << 16 | 0x2000 << 16


def entry_stands_for(
    entry: Entry, found: os.stat_result, index_modified: int, may_convert: bool
) -> bool:
    """Whether the blob of an entry, if it has the size of the file, is what `lstat` found.

    The caller compares the size of the blob, as the entry has the file's. If they are equal, no
    line ends were converted. `may_convert` says that git may have changed the bytes of this path in
    another way, which need not show in the size.
    """
    ctime, ctime_ns, mtime, mtime_ns, _, inode, mode, owner, group, size, blob, flags = entry
    if flags & _UNSURE or not _is_same_kind(mode, found.st_mode, may_convert):
        return False
    if not size and blob != EMPTY_BLOB:
        # git's mark for an entry that it could not trust itself when it wrote the index.
        return False
    modified, changed = found.st_mtime_ns, found.st_ctime_ns
    return (
        modified == mtime * _SECOND + mtime_ns
        and changed == ctime * _SECOND + ctime_ns
        # Without nanoseconds two changes within a second look alike.
        and ctime_ns > 0
        # A file may have changed again in the clock tick in which the index was written.
        and modified < index_modified > changed
        and found.st_size & _WORD == size
        and found.st_ino & _WORD == inode
        and found.st_uid == owner
        and found.st_gid == group
    )


def _is_same_kind(mode: int, found: int, may_convert: bool) -> bool:
    if stat.S_ISREG(found):
        return not may_convert and not (mode ^ found) & _KIND_AND_EXECUTABLE
    # A link's target is never converted.
    return mode == _LINK and stat.S_ISLNK(found)


FEWEST_FILES = 2_000
"""Fewer files are read faster than git starts."""
LARGEST_BLOB = 4096
"""A larger file is read faster than git can check its blob."""

_ATTRIBUTES = b".gitattributes"
_ANYTHING = b"* filter\n"
"""Stands for attributes that cannot be read here, but perhaps by git."""


@dataclass(frozen=True, slots=True)
class Seed:
    """The index of the worktree's own repository, as a memory of its files."""

    root: Root
    index: GitIndex
    copy: BlobCopy
    """Receives the blobs that are taken from the index."""
    elsewhere: tuple[bytes, ...]
    """Contents of the attributes files outside of the worktree."""
    ignore_case: bool
    attributes: dict[bytes, Attributes] = field(default_factory=dict)
    """Of each folder, by path."""

    def blobs(self, folder: FolderEntry, found: Found) -> Mapping[bytes, bytes]:
        if folder.space.path != self.root.path:
            return {}
        path = folder.path[len(self.root.path) + 1 :]
        attributes = self._attributes(folder)
        entry_at, modified = self.index.entry, self.index.modified
        blobs = {}
        for name, place in self.index.names_in(path).items():
            now = found.get(name)
            if now is None or now[0].st_size > LARGEST_BLOB:
                continue
            entry = entry_at(place)
            may_convert = bool(attributes) and attributes.may_convert(name)
            if entry_stands_for(entry, now[0], modified, may_convert):
                blobs[name] = entry[10]
        self.copy.add(blobs.values(), [found[name][0].st_size for name in blobs])
        return blobs

    def _attributes(self, folder: FolderEntry) -> Attributes:
        own, parent = self._read_own(folder.path[len(self.root.path) + 1 :]), folder.parent
        if parent is None:
            here = Attributes.at_root(files=self.elsewhere, own=own, ignore_case=self.ignore_case)
        else:
            # Nobody asks for those of a folder that changes while it is listed.
            if parent.path not in self.attributes:
                self._attributes(parent)
            here = self.attributes[parent.path].below(folder.name, own)
        self.attributes[folder.path] = here
        return here

    def _read_own(self, path: bytes) -> bytes:
        """What the attributes file of a folder says, whether or not snapshots cover that file."""
        file = path + b"/" + _ATTRIBUTES if path else _ATTRIBUTES
        try:
            os.lstat(self.root.path + b"/" + file)
            with self.root.folder(path) as fd:
                found = read_file(fd, _ATTRIBUTES, LARGEST_RULES)
        except FileNotFoundError:
            # git takes it from the index then.
            return _ANYTHING if self.index.tracks(file) else b""
        except OSError:
            return _ANYTHING
        if isinstance(found, Content) and stat.S_ISREG(found.mode):
            return found.data
        return _ANYTHING


def seed_from(root: Root, space: Space, store: ObjectStore) -> Seed | None:
    """The worktree's own repository as a memory; None if it cannot be one."""
    repository, config = space.repository, space.config
    if repository is None or config.converts or config.object_format != "sha1":
        return None
    index = space.tracked()
    if index is None or not index.usable_for_seeding:
        return None
    count = sum(map(len, index.folders.values()))
    if count < FEWEST_FILES:
        return None
    copy = store.copy_from(repository.objects_folder, expected=count)
    if copy is None:
        return None
    elsewhere = (config.system_attributes_file, config.attributes_file, repository.attributes_file)
    contents = tuple(_read_elsewhere(file) for file in elsewhere if file is not None)
    return Seed(root, index, copy, contents, config.ignore_case)


def _read_elsewhere(file: bytes) -> bytes:
    content = read_small(file, LARGEST_RULES)
    if content is None:
        return _ANYTHING if os.path.lexists(file) else b""
    return content
