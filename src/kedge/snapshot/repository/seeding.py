"""Decides whether an index entry may stand for the file on disk, so that it need not be read.

Stricter than git, which only has to tell that a file may have changed. Whether the blob can still
be had, what size it has, and which attributes apply, is for others to say.
"""

import os
import stat

from kedge.snapshot.objects.formats import EMPTY_BLOB
from kedge.snapshot.repository.index_format import Entry

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

    The size of the blob is for others to compare: that of the entry is the file's. Where they
    are the same no line ends were converted. `may_convert` says that git may have changed the
    bytes of this path in another way, which need not show in the size.
    """
    ctime, ctime_ns, mtime, mtime_ns, _, inode, mode, owner, group, size, blob, flags = entry
    if flags & _UNSURE or not _is_same_kind(mode, found.st_mode, may_convert):
        return False
    if not size and blob != EMPTY_BLOB:
        # How git marks an entry that it could not trust itself when it wrote the index.
        return False
    modified, changed = found.st_mtime_ns, found.st_ctime_ns
    return (
        modified == mtime * _SECOND + mtime_ns
        and changed == ctime * _SECOND + ctime_ns
        # Without nanoseconds two changes within a second look alike.
        and ctime_ns > 0
        # A file may have changed once more in the clock tick in which the index was written.
        and modified < index_modified > changed
        and found.st_size & _WORD == size
        and found.st_ino & _WORD == inode
        and found.st_uid == owner
        and found.st_gid == group
    )


def _is_same_kind(mode: int, found: int, may_convert: bool) -> bool:
    if stat.S_ISREG(found):
        return not may_convert and not (mode ^ found) & _KIND_AND_EXECUTABLE
    # What a link says is never converted.
    return mode == _LINK and stat.S_ISLNK(found)
