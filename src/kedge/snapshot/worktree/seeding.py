"""Blobs of files taken from the user's own index, so that a first snapshot need not read them all.

Only where the index entry certainly stands for the bytes on disk. The blobs themselves are copied
from the user's packs meanwhile; what cannot be copied has to be read after all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kedge.snapshot.files.opening import Root
from kedge.snapshot.files.reading import Content, read_file
from kedge.snapshot.ignore.attributes import Attributes
from kedge.snapshot.objects.store import ObjectStore
from kedge.snapshot.objects.user_packs import BlobCopy
from kedge.snapshot.repository.index import Index
from kedge.snapshot.repository.reading import LARGEST_RULES, read_small
from kedge.snapshot.repository.seeding import entry_stands_for
from kedge.snapshot.worktree.entries import Folder
from kedge.snapshot.worktree.remembering import Found
from kedge.snapshot.worktree.spaces import Space

FEWEST_FILES = 2_000
"""Fewer are read in less time than it takes to start git."""
LARGEST_BLOB = 4096
"""A larger file is read in less time than git needs to check its blob."""

_ATTRIBUTES = b".gitattributes"


@dataclass(frozen=True, slots=True)
class Seed:
    """The index of the worktree's own repository, as a memory of its files."""

    root: Root
    index: Index
    copy: BlobCopy
    """Gets what is taken from the index."""
    elsewhere: tuple[bytes, ...]
    """Contents of the attribute files outside of the worktree."""
    ignore_case: bool
    attributes: dict[bytes, Attributes] = field(default_factory=dict)
    """In each folder by its path."""

    def blobs(self, folder: Folder, found: Found) -> Mapping[bytes, bytes]:
        if folder.space.path != self.root.path:
            return {}
        path = folder.path[len(self.root.path) + 1 :]
        attributes = self._attributes(folder, path, _ATTRIBUTES in found)
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

    def _attributes(self, folder: Folder, path: bytes, has_own: bool) -> Attributes:
        own = self._read_own(path) if has_own else b""
        if folder.parent is None:
            here = Attributes.at_root(files=self.elsewhere, own=own, ignore_case=self.ignore_case)
        else:
            here = self.attributes[folder.parent.path].below(folder.name, own)
        self.attributes[folder.path] = here
        return here

    def _read_own(self, path: bytes) -> bytes:
        with self.root.folder(path) as fd:
            found = read_file(fd, _ATTRIBUTES, LARGEST_RULES)
        return found.data if isinstance(found, Content) else b""


def seed_from(root: Root, space: Space, store: ObjectStore) -> Seed | None:
    """The memory that the worktree's own repository is; None if it cannot be one."""
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
    contents = (read_small(file, LARGEST_RULES) or b"" for file in elsewhere if file is not None)
    return Seed(root, index, copy, tuple(contents), config.ignore_case)
