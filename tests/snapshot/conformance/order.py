"""Checks of being alone in a worktree: looking, applying steps, and doing so again."""

import os

from kedge.domain.file_states import Absent, FileStep, Outcome, Present
from kedge.snapshot.files.reader import Blocked, Folder
from tests.snapshot.conformance.scene import Scene, linked, present, tree_of


def what_is_looked_at_is_what_is_there(scene: Scene) -> None:
    """Each kind of thing is told as it is, ignored or not, and nothing is followed."""
    scene.repository()
    scene.write(".gitignore", b"secret\n")
    scene.write("secret", b"key")
    scene.write("folder/deep/file")
    scene.link("link", "folder")
    with scene.snapshots() as snapshots:
        found = snapshots.look([b"secret", b"folder", b"link", b"link/deep", b"missing/file"])
        assert found == {
            b"secret": present(b"key"),
            b"folder": Folder(frozenset({b"folder/deep/file"})),
            b"link": present(linked(b"folder")),
            b"link/deep": Blocked(b"link"),
            b"missing/file": Absent(),
        }
        scene.at("secret").unlink()
        assert snapshots.read(present(b"key").blob) == b"key"


def steps_are_applied_in_the_order_of_snapshots(scene: Scene) -> None:
    """What is applied in a block lies between the snapshots that are taken in it."""
    scene.repository()
    scene.write("file", b"1")
    with scene.snapshots() as snapshots, snapshots.ordered() as ordered:
        before = ordered.track()
        disk = ordered.look([b"file"])[b"file"]
        assert isinstance(disk, Present)
        steps = [
            FileStep(number=0, path=b"file", expect=disk, want=Absent()),
            FileStep(number=1, path=b"file/below", expect=Absent(), want=disk),
        ]
        results = ordered.apply(steps, tag="check")
        assert [result.outcome for result in results] == [Outcome.DELETED, Outcome.RECREATED]
        after = ordered.track()
        assert (before.id, after.id) == (tree_of({"file": b"1"}), tree_of({"file/below": b"1"}))


def steps_that_are_done_stay_done(scene: Scene) -> None:
    """Applied again, nothing is touched; what somebody changed since is theirs."""
    scene.repository()
    with scene.snapshots() as snapshots, snapshots.ordered() as ordered:
        scene.write("source", b"new")
        want = ordered.look([b"source"])[b"source"]
        assert isinstance(want, Present)
        steps = [
            FileStep(number=number, path=path, expect=Absent(), want=want)
            for number, path in enumerate((b"same", b"theirs"))
        ]
        ordered.apply(steps, tag="check")
        inode = os.stat(scene.at("same")).st_ino
        scene.write("theirs", b"a day's work")
        assert ordered.clean_up(steps, tag="check") == []
        results = {result.path: result.outcome for result in ordered.apply(steps, tag="check")}
        assert results == {b"same": Outcome.UNCHANGED, b"theirs": Outcome.CONFLICT}
        assert os.stat(scene.at("same")).st_ino == inode
        assert scene.on_disk()[b"theirs"] == b"a day's work"
