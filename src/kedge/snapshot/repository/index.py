"""Reads the index of the user's repository: which paths git tracks, and what it knew of the files.

It is read whole and only once; the entries stay where they are in it and are taken apart one by
one, when they are asked for. The index is never written.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kedge.domain.errors import InvariantBroken
from kedge.snapshot.repository.index_format import (
    DamagedIndex,
    Entry,
    Parsed,
    entry_at,
    parse_index,
)
from kedge.snapshot.repository.reading import Signature, read_regular, signature_of

__all__ = ["DamagedIndex", "Entry", "Index", "read_index"]

_LONGEST_INDEX = 1024 * 1024 * 1024
_NOT_HERE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What git tracks, by folder, as the scan of a worktree asks for it."""

    folders: Mapping[bytes, Mapping[bytes, int]]
    """The tracked names in each folder with the places of their entries.

    A folder is here if anything is tracked in it or below it. A submodule is a name in its folder.
    """
    usable_for_seeding: bool
    """Whether the entries may stand for files at all: SHA-1, and neither split nor sparse."""
    modified: int
    """When the index was written, in nanoseconds; files that are not older may have changed."""
    signature: Signature
    """What the index file was when it was read."""
    _parsed: Parsed = field(repr=False)

    def names_in(self, folder: bytes) -> Mapping[bytes, int]:
        """The tracked names directly in a folder, with the places of their entries."""
        return self.folders.get(folder, {})

    def entry(self, place: int) -> Entry:
        """What git knew of one file; only where the entries are usable for seeding."""
        if place < 0:
            raise InvariantBroken("an entry of a shared index was asked for")
        return entry_at(self._parsed, place)

    def tracks(self, path: bytes) -> bool:
        """Whether a file, a link or a submodule at this path is tracked."""
        folder, _, name = path.rpartition(b"/")
        return name in self.names_in(folder)

    def tracks_below(self, folder: bytes) -> bool:
        """Whether anything is tracked in a folder or further down."""
        return folder in self.folders

    def paths(self) -> Iterator[bytes]:
        """Every tracked path."""
        for folder, names in self.folders.items():
            above = folder + b"/" if folder else b""
            for name in names:
                yield above + name


def read_index(path: bytes, hash_length: int) -> Index | None:
    """The index at a path; None if there is none. Raises `DamagedIndex` if it makes no sense.

    Of a split index the names in both halves are given. Those that were deleted since it was split
    are among them: to take an untracked file for tracked only means to cover it.
    """
    found = _parse_file(path, hash_length)
    if found is None:
        return None
    parsed, status = found
    if parsed.base is not None:
        _add_names(parsed, _shared_index(path, parsed.base, hash_length))
    whole = parsed.base is None and not parsed.is_sparse
    return Index(
        folders=parsed.folders,
        usable_for_seeding=whole and hash_length == 20,
        modified=status.st_mtime_ns,
        signature=signature_of(status),
        _parsed=parsed,
    )


def _parse_file(path: bytes, hash_length: int) -> tuple[Parsed, os.stat_result] | None:
    try:
        # Read, not mapped: a mapping of a file that somebody cuts short ends the process.
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
