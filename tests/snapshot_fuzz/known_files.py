"""Opens kedge's own snapshots for the fuzzer."""

from pathlib import Path

from kedge.snapshot import Snapshots, SnapshotSettings
from tests.snapshot_fuzz.rounds import LIMIT, Way


def open_limited(root: Path, data: Path, *, way: Way) -> Snapshots:
    """The snapshots of a worktree with the fuzzer's size limit."""
    # A loaded machine is no finding.
    settings = SnapshotSettings(file_size=LIMIT, budget=600)
    return Snapshots.open(root, data=data, project="prj_fuzz", settings=settings, way=way)
