"""Checks of putting back: exactly what the snapshot holds, and nothing that it does not know of."""

import os
import shutil
import stat

from kedge.domain.errors import SnapshotNotFound
from kedge.domain.file_states import Outcome
from kedge.snapshot.values import Patch, Result
from tests.snapshot.conformance.scene import Scene, plain, refused, tree_of
from tests.snapshot_fuzz.disk import fingerprint


def restore_is_exact(scene: Scene) -> None:
    """Edited files are back, deleted ones too, new ones are gone, modes and links as they were."""
    scene.repository()
    scene.write("edited", b"1")
    scene.write("deleted/deep/file", b"2", 0o600)
    scene.write("script", b"3", 0o755)
    scene.write(b"\xff", b"4")
    scene.link("link", "edited")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        before = scene.on_disk()
        scene.write("edited", b"changed")
        shutil.rmtree(scene.at("deleted"))
        scene.at("script").chmod(0o644)
        scene.at(b"\xff").unlink()
        scene.at("link").unlink()
        scene.link("link", "script")
        scene.write("new/deep/file")
        results = snapshots.restore(one)
        assert scene.on_disk() == before
        assert _mode(scene, "deleted/deep/file") == 0o600
        assert _mode(scene, "script") == 0o755
        assert not scene.at("new").exists()
        assert snapshots.track().id == one.id
        assert _outcomes(results) == {
            b"edited": Outcome.RESTORED,
            b"deleted/deep/file": Outcome.RECREATED,
            b"script": Outcome.RESTORED,
            b"\xff": Outcome.RECREATED,
            b"link": Outcome.RESTORED,
            b"new/deep/file": Outcome.DELETED,
        }


def restore_touches_only_what_differs(scene: Scene) -> None:
    """A file that is as wanted keeps its inode and its times; a second restore does nothing."""
    scene.repository()
    scene.write("same")
    scene.write("other")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        before = os.stat(scene.at("same"))
        scene.write("other", b"two")
        snapshots.restore(one)
        assert os.stat(scene.at("same")).st_ctime_ns == before.st_ctime_ns
        seen = fingerprint(bytes(scene.root))
        assert all(each.outcome is Outcome.UNCHANGED for each in snapshots.restore(one))
        assert fingerprint(bytes(scene.root)) == seen


def restore_turns_kinds_back(scene: Scene) -> None:
    """A folder where a file was, a file where a folder was, a link where either was."""
    scene.repository()
    scene.write("file", b"1")
    scene.write("folder/a/b", b"2")
    scene.write("other/c", b"3")
    scene.link("link", "file")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        before = scene.on_disk()
        scene.at("file").unlink()
        scene.write("file/now/deep")
        shutil.rmtree(scene.at("folder"))
        scene.write("folder", b"a file")
        shutil.rmtree(scene.at("other"))
        scene.link("other", "folder")
        scene.at("link").unlink()
        scene.write("link/x")
        snapshots.restore(one)
        assert scene.on_disk() == before
        assert snapshots.track().id == one.id


def restore_follows_no_link(scene: Scene) -> None:
    """A folder that became a link to one outside: nothing outside is written or deleted."""
    scene.repository()
    scene.write("folder/file", b"mine")
    outside = scene.folder / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"not mine")
    (outside / "more").write_bytes(b"not mine either")
    seen = fingerprint(bytes(outside))
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        shutil.rmtree(scene.at("folder"))
        scene.link("folder", str(outside))
        snapshots.restore(one)
        assert fingerprint(bytes(outside)) == seen
        assert scene.on_disk() == {b"folder/file": b"mine"}


def ignored_files_survive_a_restore(scene: Scene) -> None:
    """Whatever is in them, also in folders that the restore empties otherwise."""
    scene.repository()
    scene.write(".gitignore", b"*.o\nbuild/\n")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.write("new/file")
        scene.write("new/a.o", b"mine")
        scene.write("build/file", b"mine")
        snapshots.restore(one)
        assert scene.on_disk() == {
            b".gitignore": b"*.o\nbuild/\n",
            b"new/a.o": b"mine",
            b"build/file": b"mine",
        }


def a_rule_of_the_sessions_own_deletes_nothing(scene: Scene) -> None:
    """Who edits `.gitignore` and goes back must not lose what was ignored before or is now."""
    scene.repository()
    scene.write(".gitignore", b"data/\n")
    scene.write("data/precious", b"1")
    scene.write("notes.txt", b"2")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.write(".gitignore", b"notes.txt\n")
        scene.write("notes.txt", b"edited while ignored")
        results = _outcomes(snapshots.restore(one))
        assert scene.on_disk() == {
            b".gitignore": b"data/\n",
            b"data/precious": b"1",
            b"notes.txt": b"edited while ignored",
        }
        assert results[b".gitignore"] is Outcome.RESTORED
        assert results[b"data/precious"] is Outcome.SKIPPED
        assert results[b"notes.txt"] is Outcome.SKIPPED


def what_grew_over_the_limit_survives(scene: Scene) -> None:
    """A file that is uncovered now is not put back to the size at which it was covered."""
    scene.repository()
    scene.write("log", b"small")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        with open(scene.at("log"), "r+b") as file:
            file.truncate(40 * 1024 * 1024)
        [result] = snapshots.restore(one)
        assert result.outcome is Outcome.SKIPPED
        assert scene.at("log").stat().st_size == 40 * 1024 * 1024


def an_uncovered_file_in_the_way_stays(scene: Scene) -> None:
    """A folder that holds ignored files cannot give way to the file that was there."""
    scene.repository()
    scene.write(".gitignore", b"*.o\n")
    scene.write("x", b"a file")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.at("x").unlink()
        scene.write("x/a.o", b"mine")
        scene.write("x/a.c", b"new")
        results = _outcomes(snapshots.restore(one))
        assert scene.on_disk() == {b".gitignore": b"*.o\n", b"x/a.o": b"mine"}
        assert results == {b"x": Outcome.CONFLICT, b"x/a.c": Outcome.DELETED}


def empty_folders_give_way(scene: Scene) -> None:
    """Where a file has to be, folders without any file in them are in nobody's way."""
    scene.repository()
    scene.write("x", b"a file")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.at("x").unlink()
        scene.at("x/y/z").mkdir(parents=True)
        snapshots.restore(one)
        assert scene.on_disk() == {b"x": b"a file"}


def other_names_keep_their_content(scene: Scene) -> None:
    """A file with a name outside is replaced, not written through: the other name is not ours."""
    scene.repository()
    scene.write("file", b"1")
    outside = scene.folder / "outside"
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.write("file", b"2")
        os.link(scene.at("file"), outside)
        snapshots.restore(one)
        assert scene.on_disk() == {b"file": b"1"}
        assert outside.read_bytes() == b"2"


def what_a_restore_replaces_can_come_back(scene: Scene) -> None:
    """A restore goes both ways: what was there before it was stored first."""
    scene.repository()
    scene.write("file", b"1")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.write("file", b"2")
        scene.write("new", b"3")
        two = snapshots.track()
        snapshots.restore(one)
        assert scene.on_disk() == {b"file": b"1"}
        snapshots.restore(two)
        assert scene.on_disk() == {b"file": b"2", b"new": b"3"}
        assert snapshots.track().id == two.id


def nested_repositories_are_restored(scene: Scene) -> None:
    """Their files are put back, their `.git` is not touched, also if the folder itself is new."""
    scene.repository()
    scene.repository("nested")
    scene.write("nested/file", b"1")
    scene.commit("nested")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.write("nested/file", b"2")
        scene.write("nested/new", b"3")
        seen = fingerprint(bytes(scene.at("nested/.git")))
        snapshots.restore(one)
        assert scene.on_disk() == {b"nested/file": b"1"}
        assert fingerprint(bytes(scene.at("nested/.git"))) == seen
        scene.repository("later")
        scene.write("later/file")
        snapshots.restore(one)
        assert scene.on_disk() == {b"nested/file": b"1"}
        assert scene.at("later/.git/HEAD").exists()


def revert_undoes_only_its_files(scene: Scene) -> None:
    """Each file of the patches goes back to what it was in the first patch that names it."""
    scene.repository()
    for name in ("a", "b", "c"):
        scene.write(name, b"1")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.write("a", b"2")
        scene.write("new", b"2")
        first = snapshots.patch(one.id)
        two = snapshots.track()
        scene.write("a", b"3")
        scene.write("b", b"3")
        second = snapshots.patch(two.id)
        snapshots.track()
        scene.write("c", b"mine")
        assert first == Patch(one.id, (str(scene.at("a")), str(scene.at("new"))))
        results = _outcomes(snapshots.revert([first, second]))
        assert scene.on_disk() == {b"a": b"1", b"b": b"1", b"c": b"mine"}
        assert results == {
            b"a": Outcome.RESTORED,
            b"b": Outcome.RESTORED,
            b"new": Outcome.DELETED,
        }


def unknown_snapshots_are_refused(scene: Scene) -> None:
    """An id that was never handed out changes nothing."""
    scene.repository()
    scene.write("file")
    never = tree_of({"never": plain(b"there")})
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        for id in (never, "0" * 40):
            with refused(SnapshotNotFound):
                snapshots.restore(id)
            with refused(SnapshotNotFound):
                snapshots.changes(one.id, id)
        assert scene.on_disk() == {b"file": b"one\n"}


def _outcomes(results: list[Result]) -> dict[bytes, Outcome]:
    return {each.path: each.outcome for each in results if each.outcome is not Outcome.UNCHANGED}


def _mode(scene: Scene, path: str) -> int:
    return stat.S_IMODE(scene.at(path).stat().st_mode)
