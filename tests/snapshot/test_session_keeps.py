"""What is kept for sessions changed without a worktree."""

import shutil
from pathlib import Path

import pytest

from kedge.domain.errors import ObjectMissing
from kedge.snapshot import Snapshots
from kedge.snapshot.objects import gc
from kedge.snapshot.objects.store import ObjectStore
from kedge.snapshot.session_keeps import inherit_session, release_session


def test_a_session_is_released_though_its_folder_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then nothing holds its snapshots but the fork that inherited them."""
    monkeypatch.setattr(gc, "RELEASED_SECONDS", -1)
    root, data = tmp_path / "root", tmp_path / "data"
    root.mkdir()
    with Snapshots.open(root, data=data, project="p") as snapshots:
        (blob,) = snapshots.put_blobs([b"precious"], session="ses_1")
    shutil.rmtree(root)
    inherit_session(data, "p", "ses_1", "ses_2")
    release_session(data, "p", "ses_1")
    with ObjectStore(data / "snapshots/p") as store:
        store.collect(keep_taken_for=0)
        assert store.read(bytes.fromhex(blob))[1] == b"precious"
    release_session(data, "p", "ses_2")
    with ObjectStore(data / "snapshots/p") as store:
        for _ in range(2):
            # What lost its ref goes with the next collection.
            store.collect(keep_taken_for=0)
        with pytest.raises(ObjectMissing):
            store.read(bytes.fromhex(blob))


def test_a_project_that_never_had_snapshots_gets_no_store(tmp_path: Path) -> None:
    """Nothing to release and nothing to inherit is no error, and leaves nothing behind."""
    release_session(tmp_path / "data", "p", "ses_1")
    inherit_session(tmp_path / "data", "p", "ses_1", "ses_2")
    assert list(tmp_path.iterdir()) == []
