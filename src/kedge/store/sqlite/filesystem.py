"""Where a SQLite database must not live: file systems whose locks or shared memory cannot be relied
on."""

import sys
from pathlib import Path

from kedge.domain.errors import NetworkFilesystem

_NETWORK = {
    "9p", "afs", "afpfs", "ceph", "cifs", "davfs", "fuse.davfs", "fuse.glusterfs", "fuse.rclone",
    "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
    "ocfs2", "prl_fs", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "webdav",
}  # fmt: skip


def refuse_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> None:
    """Raise if the folder is on a file system that other machines may change too."""
    kind = filesystem_of(path, mounts)
    if kind in _NETWORK:
        raise NetworkFilesystem(
            f"{path} is on a network file system ({kind}), where SQLite loses data; set"
            " KEDGE_DATA_DIR to a local folder, or use PostgreSQL through KEDGE_DATABASE_URL"
        )


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
