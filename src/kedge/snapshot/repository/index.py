"""The index of the user's repository: the tracked paths, and the stat data git stored for them.

It is read whole and only once; entries stay in the bytes and are decoded one by one, when they are
needed. The index is never written.

Numbers in it are not trusted: a damaged or hostile index ends in `DamagedIndex`, within time and
memory that its size bounds.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError

from kedge.domain.errors import InvariantBroken
from kedge.snapshot.repository.signatures import Signature, read_regular, signature_of

Entry = tuple[int, int, int, int, int, int, int, int, int, int, bytes, int]
"""ctime and mtime, each with its nanoseconds, device, inode, mode, owner, group, size, id, flags.

All as from `lstat`, cut to 32 bits. The extended flags are the upper 16 bits of the flags.
"""

_HEADER = Struct(">4sII")
_EXTENSION = Struct(">4sI")
_LAYOUTS = {20: Struct(">10I20sH"), 32: Struct(">10I32sH")}
_HASHES = {20: hashlib.sha1, 32: hashlib.sha256}
_EXTENDED = 0x4000
_UNDERSTOOD = (b"link", b"sdir")
# Far more than any file system allows in a name and any repository has in all its folders.
_LONGEST_PATH = 16 * 1024
_MOST_FOLDER_BYTES = 64 * 1024 * 1024


class DamagedIndex(Exception):
    """The index was not written by git, or needs something that is not supported here."""


class Folders(dict[bytes, dict[bytes, int]]):
    """Tracked names by folder; a folder is always entered together with its parents."""

    __slots__ = ("_room",)

    def __init__(self) -> None:
        super().__init__({b"": {}})
        self._room = _MOST_FOLDER_BYTES

    def enter(self, folder: bytes) -> dict[bytes, int]:
        """The names in a folder, to which more can be added."""
        known = self.get(folder)
        if known is not None:
            return known
        names = self._add(folder)
        above = folder.rpartition(b"/")[0]
        while above not in self:
            self._add(above)
            above = above.rpartition(b"/")[0]
        return names

    def _add(self, folder: bytes) -> dict[bytes, int]:
        self._room -= len(folder)
        if self._room < 0 or len(folder) > _LONGEST_PATH:
            raise DamagedIndex("the index names more folders than there can be")
        names: dict[bytes, int] = {}
        self[folder] = names
        return names


@dataclass(slots=True, kw_only=True)
class Parsed:
    """A parsed index, as far as every use of it needs."""

    content: bytes
    hash_length: int
    folders: Folders
    base: bytes | None = None
    """The id of the shared index that a split one builds on."""
    is_sparse: bool = False


def parse_index(content: bytes, hash_length: int) -> Parsed:
    """Check an index and find its names."""
    try:
        _check_sum(content, hash_length)
        return _parse(content, hash_length)
    except (IndexError, ValueError, StructError) as error:
        raise DamagedIndex("the index ends in the middle") from error


def entry_at(parsed: Parsed, place: int) -> Entry:
    """The entry at a position from `folders`."""
    entry: Entry = _LAYOUTS[parsed.hash_length].unpack_from(parsed.content, place)
    if not entry[11] & _EXTENDED:
        return entry
    after = place + _LAYOUTS[parsed.hash_length].size
    extended = int.from_bytes(parsed.content[after : after + 2])
    return (*entry[:11], entry[11] | extended << 16)


def _check_sum(content: bytes, hash_length: int) -> None:
    stored = content[-hash_length:]
    # git may be told to leave it out; then it is all zeros.
    if any(stored):
        counted = _HASHES[hash_length](memoryview(content)[:-hash_length], usedforsecurity=False)
        if counted.digest() != stored:
            raise DamagedIndex("the checksum of the index does not match")


def _parse(content: bytes, hash_length: int) -> Parsed:
    magic, version, count = _HEADER.unpack_from(content)
    if magic != b"DIRC" or version not in (2, 3, 4):
        raise DamagedIndex("this is no index, or one of an unknown version")
    folders = Folders()
    fixed = _LAYOUTS[hash_length].size
    parse_names = _compressed_names if version == 4 else _plain_names
    place = parse_names(content, count, fixed, folders)
    # A folder of a sparse index and a replacement in a split one have no name of their own.
    for names in folders.values():
        names.pop(b"", None)
    parsed = Parsed(content=content, hash_length=hash_length, folders=folders)
    for name, start in _extensions(content, place, len(content) - hash_length):
        _note_extension(parsed, name, start)
    return parsed


def _plain_names(content: bytes, count: int, fixed: int, folders: Folders) -> int:
    place = _HEADER.size
    present: bytes | None = None
    names = folders[b""]
    index = content.index
    for _ in range(count):
        start = place + fixed
        if content[start - 2] & 0x40:
            start += 2
        end = index(0, start)
        folder, _slash, name = content[start:end].rpartition(b"/")
        if folder != present:
            present = folder
            names = folders.enter(folder)
        names[name] = place
        # Padded with one to eight NULs.
        place += (end - place + 8) & ~7
    return place


def _compressed_names(content: bytes, count: int, fixed: int, folders: Folders) -> int:
    place = _HEADER.size
    present: bytes | None = None
    names = folders[b""]
    index = content.index
    path = b""
    for _ in range(count):
        start = place + fixed
        if content[start - 2] & 0x40:
            start += 2
        dropped = content[start]
        start += 1
        if dropped & 0x80:
            dropped, start = _long_number(content, start - 1)
        end = index(0, start)
        path = _replace_end(path, dropped, content[start:end])
        folder, _slash, name = path.rpartition(b"/")
        if folder != present:
            present = folder
            names = folders.enter(folder)
        names[name] = place
        place = end + 1
    return place


def _replace_end(path: bytes, dropped: int, added: bytes) -> bytes:
    kept = len(path) - dropped
    if kept < 0 or kept + len(added) > _LONGEST_PATH:
        raise DamagedIndex("a path of the index builds on more than there is")
    return path[:kept] + added


def _long_number(content: bytes, place: int) -> tuple[int, int]:
    byte = content[place]
    number = byte & 0x7F
    while byte & 0x80:
        place += 1
        byte = content[place]
        number = ((number + 1) << 7) | (byte & 0x7F)
        if number > _LONGEST_PATH:
            raise DamagedIndex("a path of the index builds on more than there is")
    return number, place + 1


def _extensions(content: bytes, place: int, end: int) -> Iterator[tuple[bytes, int]]:
    while place < end:
        name, size = _EXTENSION.unpack_from(content, place)
        start = place + _EXTENSION.size
        place = start + size
        yield name, start
    if place != end:
        raise DamagedIndex("the extensions of the index do not end where it ends")


def _note_extension(parsed: Parsed, name: bytes, start: int) -> None:
    if name == b"sdir":
        parsed.is_sparse = True
    elif name == b"link":
        base = parsed.content[start : start + parsed.hash_length]
        parsed.base = base if any(base) else None
    elif not name[:1].isupper():
        # An extension whose name begins with a capital letter may be ignored.
        raise DamagedIndex(f"the index needs an extension {name!r} that is not known here")


__all__ = ["DamagedIndex", "Entry", "GitIndex", "read_index"]

_LONGEST_INDEX = 1024 * 1024 * 1024
_NOT_HERE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GitIndex:
    """The tracked files by folder, as the scan of a worktree needs them."""

    folders: Mapping[bytes, Mapping[bytes, int]]
    """The tracked names in each folder with the positions of their entries.

    It has every folder with tracked files in it or below it. A submodule is a name in its folder.
    """
    usable_for_seeding: bool
    """Whether the entries may stand for files at all: SHA-1, and neither split nor sparse."""
    modified: int
    """When the index was written, in nanoseconds; files that are not older may have changed."""
    signature: Signature
    """The signature of the index file when it was read."""
    _parsed: Parsed = field(repr=False)

    def names_in(self, folder: bytes) -> Mapping[bytes, int]:
        """The tracked names directly in a folder, with the positions of their entries."""
        return self.folders.get(folder, {})

    def entry(self, place: int) -> Entry:
        """Git's entry for one file; only if the entries are usable for seeding."""
        if place < 0:
            raise InvariantBroken("an entry of a shared index was asked for")
        return entry_at(self._parsed, place)

    def tracks(self, path: bytes) -> bool:
        """Whether a file, a link or a submodule at this path is tracked."""
        folder, _, name = path.rpartition(b"/")
        return name in self.names_in(folder)

    def tracks_below(self, folder: bytes) -> bool:
        """Whether anything in a folder, at any depth, is tracked."""
        return folder in self.folders

    def paths(self) -> Iterator[bytes]:
        """Every tracked path."""
        for folder, names in self.folders.items():
            above = folder + b"/" if folder else b""
            for name in names:
                yield above + name


def read_index(path: bytes, hash_length: int) -> GitIndex | None:
    """The index at a path; None if there is none. Raises `DamagedIndex` if it is invalid.

    For a split index the names of both halves are returned. These include names deleted since it
    was split: an untracked file that counts as tracked is merely covered.
    """
    found = _parse_file(path, hash_length)
    if found is None:
        return None
    parsed, status = found
    if parsed.base is not None:
        _add_names(parsed, _shared_index(path, parsed.base, hash_length))
    whole = parsed.base is None and not parsed.is_sparse
    return GitIndex(
        folders=parsed.folders,
        usable_for_seeding=whole and hash_length == 20,
        modified=status.st_mtime_ns,
        signature=signature_of(status),
        _parsed=parsed,
    )


def _parse_file(path: bytes, hash_length: int) -> tuple[Parsed, os.stat_result] | None:
    try:
        # Read, not mapped: if another program truncates a mapped file, the process dies.
        found = read_regular(path, _LONGEST_INDEX)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DamagedIndex(f"the index cannot be read: {error.strerror}") from error
    if found is None:
        raise DamagedIndex("the index is no regular file, or too large")
    content, status = found
    return parse_index(content, hash_length), status


def _shared_index(path: bytes, id: bytes, hash_length: int) -> Parsed:
    shared = os.path.join(os.path.dirname(path), b"sharedindex." + id.hex().encode())
    found = _parse_file(shared, hash_length)
    if found is None:
        raise DamagedIndex("the shared half of a split index is missing")
    if found[0].base is not None:
        raise DamagedIndex("the shared half of a split index is itself split")
    return found[0]


def _add_names(parsed: Parsed, shared: Parsed) -> None:
    for folder, names in shared.folders.items():
        known = parsed.folders.enter(folder)
        for name in names:
            known.setdefault(name, _NOT_HERE)
