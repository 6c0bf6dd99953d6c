"""Which way of knowing fits the file system that holds a worktree.

inotify is only believed where every change goes through this machine's kernel.
"""

import os
import sys
from collections.abc import Collection
from pathlib import Path

from kedge.snapshot.files.reader import RACY_WINDOW_NS

_WATCHABLE = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "ramfs", "tmpfs", "xfs", "zfs"}
_FINE_CLOCKS = _WATCHABLE | {"apfs", "overlay"}
# Layers below an overlay may change unseen; who looks at one folder of it sees what is done there.
_TELLING = _WATCHABLE | {"overlay"}
_COARSE_WINDOW_NS = 2_000_000_000
# Their time stamps are this machine's, if rougher; those of network file systems are the server's.
_LOCAL = _FINE_CLOCKS | {"exfat", "hfsplus", "msdos", "ntfs", "ntfs3", "vfat"}


class Mounts:
    """The mounted file systems, as the machine tells; empty where it does not."""

    def __init__(self, table: Path = Path("/proc/self/mountinfo")) -> None:
        self._kinds: list[tuple[bytes, str]] = []
        if not sys.platform.startswith("linux"):
            return
        try:
            lines = table.read_bytes().splitlines()
        except OSError:
            return
        for line in lines:
            fields = line.split(b" ")
            point = fields[4].decode("unicode_escape").encode("latin-1")
            kind = fields[fields.index(b"-") + 1].decode("ascii", "replace")
            self._kinds.append((point.rstrip(b"/") + b"/", kind))

    def kind(self, path: bytes) -> str | None:
        """The type of the file system that holds a path."""
        best, found = -1, None
        for point, kind in self._kinds:
            # A later mount hides an earlier one at the same place.
            if len(point) >= best and (path + b"/").startswith(point):
                best, found = len(point), kind
        return found

    def tells_of_names(self, path: bytes) -> bool:
        """Whether inotify tells of every name that is made or replaced in this very folder."""
        return self.kind(path) in _TELLING

    def below(self, path: bytes) -> set[str]:
        """The types of the file systems that are mounted inside of a folder."""
        start = path + b"/"
        return {kind for point, kind in self._kinds if point.startswith(start) and point != start}


def why_not_inotify(root: bytes, mounts: Mounts) -> str | None:
    """What speaks against inotify for a worktree; None if nothing does."""
    if not sys.platform.startswith("linux"):
        return f"inotify is not available on {sys.platform}"
    kind = mounts.kind(root)
    if kind is None:
        return "the machine does not tell which file system this is"
    if kind not in _WATCHABLE:
        return f"changes on a file system of type {kind} may not be announced"
    if inside := sorted(mounts.below(root)):
        # It may be of a foreign type, or show a folder at two places of which one is watched.
        return f"another file system ({inside[0]}) is mounted inside of the worktree"
    return None


def racy_window(root: bytes, mounts: Mounts) -> int:
    """For how many nanoseconds after a change another one may leave the same time stamps."""
    kinds = {mounts.kind(root)} | mounts.below(root)
    if sys.platform == "darwin" or kinds <= _FINE_CLOCKS:
        return RACY_WINDOW_NS
    return _COARSE_WINDOW_NS


def has_own_clock(path: bytes, mounts: Mounts) -> bool:
    """Whether the time stamps of a file are those of this machine's clock."""
    return sys.platform == "darwin" or mounts.kind(path) in _LOCAL


def why_refused(root: bytes, private: Collection[bytes]) -> str | None:
    """Why no snapshots are taken of a folder at all; None if they are.

    `private` are the folders of git's and kedge's own.
    """
    if root.endswith(b"/.git") or any((root + b"/").startswith(own + b"/") for own in private):
        return "kedge takes no snapshots of the inside of git, nor of its own data"
    if root == b"/":
        return "kedge takes no snapshots of the whole file system; work in a folder of it"
    home = os.path.realpath(os.path.expanduser(b"~"))
    if root == home or (home + b"/").startswith(root + b"/"):
        return (
            f"kedge takes no snapshots of {os.fsdecode(root)}, which is or holds the home folder;"
            " work in a folder of its own"
        )
    return None
