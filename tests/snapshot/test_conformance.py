"""Runs the public conformance suite on every way of noticing changes; what it looks at is in
`tests.snapshot.conformance`."""

from pathlib import Path

import pytest

from kedge.snapshot import Snapshots, SnapshotSettings
from tests.snapshot.conformance import (
    SNAPSHOT_CHECKS,
    Opener,
    Scene,
    SnapshotCheck,
    check_name,
    check_snapshots,
)

each_check = pytest.mark.parametrize("check", SNAPSHOT_CHECKS, ids=check_name)


def opener(way: str) -> Opener:
    """Opens kedge's own snapshots in one of its ways."""

    def open_snapshots(root: Path, data: Path, settings: SnapshotSettings) -> Snapshots:
        return Snapshots.open(root, data=data, project="prj", settings=settings, way=way)

    return open_snapshots


@each_check
@pytest.mark.parametrize("way", ["inotify", "scan"])
def test_snapshots_conform(check: SnapshotCheck, way: str, tmp_path: Path) -> None:
    """Snapshots taken in this way show the behaviour that the check is named after."""
    check(Scene(tmp_path, opener(way)))


def test_wrong_snapshots_fail_by_name(tmp_path: Path) -> None:
    """`check_snapshots` runs every check and says which of them failed."""

    def broken(root: Path, data: Path, settings: SnapshotSettings) -> Snapshots:
        raise RuntimeError("no snapshots here")

    with pytest.raises(ExceptionGroup) as caught:
        check_snapshots(broken, tmp_path)
    notes = [note for error in caught.value.exceptions for note in error.__notes__]
    assert notes == [f"in the check {check_name(check)}" for check in SNAPSHOT_CHECKS]
