"""Which way of knowing is chosen where."""

from pathlib import Path

import pytest

from kedge.snapshot.files.reader import RACY_WINDOW_NS
from kedge.snapshot.worktree.filesystems import Mounts, racy_window, why_not_inotify

TABLE = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /net rw - nfs4 server:/x rw
24 22 0:6 / /home/a\\040b rw - xfs /dev/sdb rw
25 24 0:7 / /home/a\\040b/cache rw - fuse.sshfs x rw
26 22 0:8 / /mnt rw - ext4 /dev/sdc rw
27 22 0:9 / /mnt rw - overlay overlay rw
"""


@pytest.fixture
def mounts(tmp_path: Path) -> Mounts:
    """A machine with several file systems."""
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    return Mounts(table)


@pytest.mark.parametrize(
    ("root", "kind"),
    [
        (b"/work", "ext4"),
        (b"/net/x", "nfs4"),
        (b"/network", "ext4"),
        (b"/home/a b/x", "xfs"),
        (b"/home/a b/cache/x", "fuse.sshfs"),
        (b"/mnt/x", "overlay"),
    ],
)
def test_the_file_system_of_a_path_is_found(mounts: Mounts, root: bytes, kind: str) -> None:
    """The longest mount point counts, and the last of several at one place."""
    assert mounts.kind(root) == kind


def test_only_local_file_systems_are_watched(mounts: Mounts, tmp_path: Path) -> None:
    """What may change without this kernel seeing it is scanned, and the reason names it."""
    assert why_not_inotify(b"/work", mounts) is None
    assert "nfs4" in str(why_not_inotify(b"/net/x", mounts))
    assert "overlay" in str(why_not_inotify(b"/mnt/x", mounts))
    assert why_not_inotify(b"/home/a b/x", mounts) is None
    assert "mounted inside" in str(why_not_inotify(b"/home", mounts))
    assert "sshfs" in str(why_not_inotify(b"/home/a b", mounts)), "mounted inside of it"
    assert "does not tell" in str(why_not_inotify(b"/work", Mounts(tmp_path / "nowhere")))


def test_coarse_clocks_are_distrusted_for_longer(mounts: Mounts) -> None:
    """A file system whose time stamps are not known to be fine gets two seconds."""
    assert racy_window(b"/work", mounts) == RACY_WINDOW_NS
    assert racy_window(b"/mnt/x", mounts) == RACY_WINDOW_NS
    assert racy_window(b"/net/x", mounts) == 2_000_000_000
