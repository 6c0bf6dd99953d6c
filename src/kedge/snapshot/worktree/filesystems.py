"""Decides by the file system of a worktree how changes can be detected.

inotify is trusted only if every change goes through this machine's kernel.
"""

import sys
from pathlib import Path

from kedge.snapshot.files.reader import RACY_WINDOW_NS

_WATCHABLE = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "ramfs", "tmpfs", "xfs", "zfs"}
_FINE_CLOCKS = _WATCHABLE | {"apfs", "overlay"}
# The lower layers of an overlay may change unseen, but inotify reports changes made in a folder.
_TELLING = _WATCHABLE | {"overlay"}
_COARSE_WINDOW_NS = 2_000_000_000
# Their time stamps are this machine's, though coarser; network file systems use the server's.
_LOCAL = _FINE_CLOCKS | {"exfat", "hfsplus", "msdos", "ntfs", "ntfs3", "vfat"}


class Mounts:
    """The mounted file systems, as the machine lists them; empty if it does not."""

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
            # A later mount hides an earlier one at the same path.
            if len(point) >= best and (path + b"/").startswith(point):
                best, found = len(point), kind
        return found

    def tells_of_names(self, path: bytes) -> bool:
        """Whether inotify reports every name that is created or replaced directly in this
        folder."""
        return self.kind(path) in _TELLING

    def below(self, path: bytes) -> set[str]:
        """The types of the file systems that are mounted inside of a folder."""
        start = path + b"/"
        return {kind for point, kind in self._kinds if point.startswith(start) and point != start}


def why_not_inotify(root: bytes, mounts: Mounts) -> str | None:
    """Why inotify cannot be used for a worktree; None if it can."""
    if not sys.platform.startswith("linux"):
        return f"inotify is not available on {sys.platform}"
    kind = mounts.kind(root)
    if kind is None:
        return "the machine does not tell which file system this is"
    if kind not in _WATCHABLE:
        return f"changes on a file system of type {kind} may not be announced"
    if inside := sorted(mounts.below(root)):
        # It may be of another type, or show a folder at two paths of which only one is watched.
        return f"another file system ({inside[0]}) is mounted inside of the worktree"
    return None


def racy_window(root: bytes, mounts: Mounts) -> int:
    """Nanoseconds after a change during which another one may leave the same time stamps."""
    kinds = {mounts.kind(root)} | mounts.below(root)
    if sys.platform == "darwin" or kinds <= _FINE_CLOCKS:
        return RACY_WINDOW_NS
    return _COARSE_WINDOW_NS


def has_own_clock(path: bytes, mounts: Mounts) -> bool:
    """Whether the time stamps of a file are from this machine's clock."""
    return sys.platform == "darwin" or mounts.kind(path) in _LOCAL
