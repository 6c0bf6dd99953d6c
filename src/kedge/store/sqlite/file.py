"""The database file: where it must not be, where the kernel reports writes to it, and whether it
was replaced.

SQLite goes on writing to a deleted file as if nothing were wrong, and so does every process that
has it open. What is stored there is lost with the last of these processes.
"""

import math
import os
import sys
import time
from pathlib import Path
from typing import TypeAlias

from kedge.domain.errors import NetworkFilesystem, StoreGone

LOOK_EVERY = 0.5
"""Seconds after which a reader checks again that the file is there."""

_Identity: TypeAlias = tuple[int, int]


class OpenFile:
    """A database file that is open, and the log beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = str(path)
        self._log = f"{path}-wal"
        self._file_identity = _identity(self._name)
        self._log_identity = _identity(self._log)
        self._seen = time.monotonic()

    def look(self) -> None:
        """Raise if the file or its log is gone, unless this was checked a moment ago."""
        if time.monotonic() - self._seen >= LOOK_EVERY:
            self.check()

    def check(self) -> None:
        """Raise if the file or its log is gone; until it is back, every check does."""
        self._seen = -math.inf
        self.check_file()
        if _identity(self._log) != self._log_identity:
            raise StoreGone(
                f"{self._log} was deleted while kedge used it, and with it what was stored last;"
                " start kedge again to go on with what is left"
            )
        self._seen = time.monotonic()

    def check_file(self) -> None:
        """Raise if the file is gone: called before each commit, so it has to be quick."""
        found = _identity(self._name)
        if found == self._file_identity:
            return
        if found is None:
            raise StoreGone(
                f"{self._path} is gone: it was deleted, moved or unmounted while kedge used it, and"
                " nothing can be stored; put it back as it was, or start kedge again"
            )
        raise StoreGone(
            f"{self._path} is another file than the one that kedge opened: it was replaced;"
            " nothing is stored until you start kedge again"
        )


def _identity(path: str) -> _Identity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


_NETWORK = {
    "9p", "afs", "afpfs", "ceph", "cifs", "davfs", "fuse.davfs", "fuse.glusterfs", "fuse.rclone",
    "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
    "ocfs2", "prl_fs", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "webdav",
}  # fmt: skip
_TELLING = {
    "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs",
}  # fmt: skip
_MOUNTS = Path("/proc/self/mounts")


def refuse_network(path: Path, mounts: Path = _MOUNTS) -> None:
    """Raise if the folder is on a file system that other machines may change too."""
    kind = filesystem_of(path, mounts)
    if kind in _NETWORK:
        raise NetworkFilesystem(
            f"{path} is on a network file system ({kind}), where SQLite loses data; set"
            " KEDGE_DATA_DIR to a local folder, or use PostgreSQL through KEDGE_DATABASE_URL"
        )


def tells_of_writes(path: Path, mounts: Path = _MOUNTS) -> bool:
    """Whether inotify reports every write to files of the folder that this process has open for
    writing; on an overlay it does, as such files are in the upper layer."""
    return filesystem_of(path, mounts) in _TELLING


def filesystem_of(path: Path, mounts: Path) -> str | None:
    """The type of the file system that holds a path, if the system says so."""
    if not sys.platform.startswith("linux") or not mounts.exists():
        return None
    real, best, kind = path.resolve(), -1, None
    for line in mounts.read_text("utf-8", "surrogateescape").splitlines():
        fields = line.split(" ")
        point = Path(_unescape(fields[1]))
        # Later mounts hide earlier ones at the same place.
        if real.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return kind


def _unescape(field: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, char)
    return field
