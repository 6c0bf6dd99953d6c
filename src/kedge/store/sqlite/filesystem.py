"""What file systems mean for a SQLite database: where it must not live, because locks or shared
memory cannot be relied on, and where the kernel tells of writes to it."""

import sys
from pathlib import Path

from kedge.domain.errors import NetworkFilesystem

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
    """Whether inotify tells of every write to files of the folder that this process has open for
    writing; on an overlay it does, as such files are above it."""
    return filesystem_of(path, mounts) in _TELLING


def filesystem_of(path: Path, mounts: Path) -> str | None:
    """The type of the file system that holds a path, where the machine tells."""
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
