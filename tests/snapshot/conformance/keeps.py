"""Checks of what outlives a moment: kept snapshots, new starts, captured files, texts of diffs."""

import os
from pathlib import Path

from kedge.domain.errors import ObjectMissing, SnapshotError
from kedge.domain.file_states import Absent, Present, Reason, Uncovered
from kedge.domain.sessions import FileDiff
from kedge.snapshot.values import Protection
from tests.snapshot.conformance.scene import (
    Scene,
    changed,
    is_uncovered,
    linked,
    plain,
    present,
    refused,
    tree_of,
)


def a_kept_snapshot_survives_a_new_start(scene: Scene) -> None:
    """By its id alone it can be compared with and restored, notes and modes included."""
    scene.repository()
    scene.write("file", b"1", 0o600)
    scene.write("a.o", b"ignored")
    scene.write(".gitignore", b"*.o\n")
    with scene.snapshots() as snapshots:
        one = snapshots.track(session="ses_one")
    scene.write("file", b"2", 0o644)
    scene.at(".gitignore").unlink()
    with scene.snapshots() as snapshots:
        two = snapshots.track()
        assert {
            each.path: (each.before, each.after) for each in snapshots.changes(one.id, two.id)
        } == {
            b"file": (present(plain(b"1", 0o600)), present(b"2")),
            b".gitignore": (present(b"*.o\n"), Absent()),
            b"a.o": (Uncovered(Reason.IGNORED), present(b"ignored")),
        }
        snapshots.restore(one.id)
    files = {b"file": b"1", b".gitignore": b"*.o\n", b"a.o": b"ignored"}
    assert scene.on_disk() == files


def a_new_start_sees_what_changed_meanwhile(scene: Scene) -> None:
    """Between two runs anything may happen to the worktree; what is remembered is only a hint."""
    scene.repository()
    files = {f"folder{n % 3}/{n}": b"%04d" % n for n in range(30)}
    for path, content in files.items():
        scene.write(path, content)
    with scene.snapshots() as snapshots:
        assert snapshots.track().id == tree_of(files)
    for count in range(3):
        times = os.stat(scene.at(f"folder{count}/{count}"))
        scene.write(f"folder{count}/{count}", b"new%d" % count)
        os.utime(scene.at(f"folder{count}/{count}"), ns=(times.st_atime_ns, times.st_mtime_ns))
        files[f"folder{count}/{count}"] = b"new%d" % count
        os.rename(scene.at(f"folder{count}/{count + 3}"), scene.at(f"moved{count}"))
        files[f"moved{count}"] = files.pop(f"folder{count}/{count + 3}")
        with scene.snapshots() as snapshots:
            assert snapshots.track().id == tree_of(files)


def two_may_be_open_at_once(scene: Scene) -> None:
    """Two processes on one worktree see the same, and each reads what the other kept."""
    scene.repository()
    scene.write("file", b"1")
    with scene.snapshots() as one, scene.snapshots() as two:
        first = one.track(session="ses_one")
        assert two.track(session="ses_two").id == first.id
        scene.write("file", b"2")
        second = two.track(session="ses_two")
        assert one.track().id == second.id
        assert changed(one, first, second) == changed(two, first, second)
        two.restore(first.id)
        assert one.track().id == first.id


def a_session_keeps_all_its_snapshots(scene: Scene) -> None:
    """Not only the last one."""
    scene.repository()
    taken = []
    with scene.snapshots() as snapshots:
        for count in range(20):
            scene.write("file", b"%d" % count)
            taken.append(snapshots.track(session="ses_one").id)
    with scene.snapshots() as snapshots:
        for count, id in enumerate(taken):
            snapshots.restore(id)
            assert scene.on_disk() == {b"file": b"%d" % count}


def captured_files_are_covered_though_ignored(scene: Scene) -> None:
    """What a tool wrote is known from the moment it says so, and an undo brings it back."""
    scene.repository()
    scene.write(".gitignore", b".env\nbuild/\n")
    scene.write(".env", b"KEY=1\n")
    scene.write("build/other", b"not captured")
    with scene.snapshots() as snapshots:
        states = snapshots.capture([b".env", b"build/file", b"missing"])
        assert states == {
            b".env": present(b"KEY=1\n"),
            b"build/file": Absent(),
            b"missing": Absent(),
        }
        one = snapshots.track()
        scene.write(".env", b"KEY=2\n")
        scene.write("build/file", b"written by a tool")
        two = snapshots.track()
        assert changed(snapshots, one, two)[b".env"] == (present(b"KEY=1\n"), present(b"KEY=2\n"))
        rules = {".gitignore": b".env\nbuild/\n"}
        assert two.id == tree_of({**rules, ".env": b"KEY=2\n", "build/file": b"written by a tool"})
        assert snapshots.read(states[b".env"].blob) == b"KEY=1\n"  # type: ignore[union-attr]


def captured_states_are_what_is_there(scene: Scene) -> None:
    """A link is a link, a folder is no file, and nothing is followed out of the worktree."""
    scene.repository()
    scene.write("folder/file")
    scene.link("link", "/etc/passwd")
    scene.link("away", "/etc")
    with scene.snapshots() as snapshots:
        states = snapshots.capture([b"link", b"folder/file", b"away/passwd"])
        assert states[b"link"] == present(linked(b"/etc/passwd"))
        assert states[b"folder/file"] == present(b"one\n")
        assert states[b"away/passwd"] == Absent() or is_uncovered(states[b"away/passwd"])


def a_blob_is_read_by_its_id(scene: Scene) -> None:
    """Its bytes, whatever they are; an id that nothing has is said to be missing."""
    scene.repository()
    content = bytes(range(256)) * 5000
    scene.write("file", content)
    with scene.snapshots() as snapshots:
        snapshots.track()
        state = present(content)
        assert snapshots.read(state.blob) == content
        with refused(ObjectMissing):
            snapshots.read("1" * 40)


def a_patch_names_what_changed(scene: Scene) -> None:
    """The files by absolute path, sorted, uncovered ones left out; its hash is the snapshot's."""
    scene.repository()
    scene.write("a", b"1")
    scene.write("gone", b"1")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        assert snapshots.patch(one.id).files == ()
        scene.write("a", b"2")
        scene.at("gone").unlink()
        scene.write("folder/new")
        scene.write("a.o")
        scene.write(".gitignore", b"*.o\n")
        patch = snapshots.patch(one.id)
        names = (".gitignore", "a", "folder/new", "gone")
        assert patch.files == tuple(str(scene.at(name)) for name in names)
        assert patch.hash == one.id


def a_diff_is_gits(scene: Scene) -> None:
    """The text that `git diff` prints for the same change."""
    scene.repository()
    scene.write("a.txt", b"".join(b"line %d\n" % n for n in range(20)))
    scene.write("gone", b"x\n")
    scene.write("script", b"s\n")
    scene.commit()
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.write("a.txt", b"".join(b"line %d\n" % n for n in range(20) if n != 9))
        scene.at("gone").unlink()
        scene.write("new file", b"no newline")
        scene.at("script").chmod(0o755)
        scene.git("add", "-A")
        words = ("diff", "--cached", "--no-renames", "--no-color", "--no-ext-diff", "--abbrev=7")
        assert snapshots.diff(one.id).strip() == scene.git(*words)
        assert snapshots.diff(snapshots.track().id) == ""


def a_full_diff_counts_lines(scene: Scene) -> None:
    """For each file what became of it and how many lines came and went, with its text."""
    scene.repository()
    scene.write("edited", b"1\n2\n3\n")
    scene.write("deleted", b"1\n2\n")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.write("edited", b"1\nx\ny\n3\n")
        scene.at("deleted").unlink()
        scene.write("added", b"1\n")
        scene.write("binary", b"\0\1")
        two = snapshots.track()
        diffs = {each.file: _figures(each) for each in snapshots.diff_full(one.id, two.id)}
        assert diffs == {
            "added": ("added", 1, 0),
            "binary": ("added", 0, 0),
            "deleted": ("deleted", 0, 2),
            "edited": ("modified", 2, 1),
        }
        assert snapshots.diff_full(two.id, two.id) == []


def a_quiet_worktree_verifies(scene: Scene) -> None:
    """The comparison with the disk finds nothing, is counted, and changes nothing."""
    scene.repository()
    for count in range(20):
        scene.write(f"folder{count % 4}/{count}")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.write("folder1/new")
        assert snapshots.verify() == []
        status = snapshots.status()
        assert status.protection is Protection.FULL
        assert status.mismatches == 0
        assert status.files == 21
        scene.at("folder1/new").unlink()
        assert snapshots.track().id == one.id


def untracking_is_no_mismatch(scene: Scene) -> None:
    """A folder that was looked into for a tracked file is not when that is tracked no longer."""
    scene.repository()
    scene.write(".gitignore", b"build/\nout/\n")
    for path in ("build/file", "build/other", "out/k/a", "out/k/b/c/d", "out/k/b/e"):
        scene.write(path)
    scene.git("add", "-f", "build/file", "out/k/a", "out/k/b/c/d")
    with scene.snapshots() as snapshots:
        snapshots.track()
        scene.git("rm", "-q", "--cached", "build/file", "out/k/b/c/d")
        wanted = tree_of({".gitignore": b"build/\nout/\n", "out/k/a": b"one\n"})
        assert snapshots.track().id == wanted
        assert snapshots.verify() == []
        assert snapshots.status().mismatches == 0


def a_home_is_refused(scene: Scene) -> None:
    """Neither `/` nor the home directory is taken a snapshot of; the status says why."""
    for root in (Path("/"), Path.home()):
        with scene.snapshots(root) as snapshots:
            with refused(SnapshotError):
                snapshots.track()
            assert snapshots.status().protection is Protection.REFUSED
            assert snapshots.status().reason


def _figures(diff: FileDiff) -> tuple[str | None, int, int]:
    return diff.status, diff.additions, diff.deletions


def contents_that_were_put_are_held(scene: Scene) -> None:
    """What is in no file can be stored, and is there for the next process."""
    scene.plain()
    contents = [b"", b"merged", b"\0binary", b"merged"]
    with scene.snapshots() as snapshots:
        blobs = snapshots.put_blobs(contents, session="ses_one")
        assert blobs == [present(content).blob for content in contents]
        assert snapshots.put_blobs([]) == []
    with scene.snapshots() as snapshots:
        assert [snapshots.read(blob) for blob in blobs] == contents


def a_snapshot_tells_the_state_of_a_path(scene: Scene) -> None:
    """Present with its bits, absent where nothing was, uncovered where nobody looked."""
    scene.repository()
    scene.write(".gitignore", b"ignored/\n")
    scene.write("ignored/file")
    scene.write("folder/private", b"key", 0o600)
    with scene.snapshots() as snapshots:
        taken = snapshots.track()
        scene.clear()
        assert snapshots.state(taken.id, b"folder/private") == present(plain(b"key", 0o600))
        for path in (b"folder", b"folder/other", b"folder/private/below", b"missing/file"):
            assert snapshots.state(taken, path) == Absent()
        assert is_uncovered(snapshots.state(taken, b"ignored/file"))


def changes_are_shown_as_snapshots_are(scene: Scene) -> None:
    """The texts of changes between two snapshots are those of the snapshots, whatever changed."""
    scene.repository()
    scene.write("edited", b"1\n")
    scene.write("script", b"2\n")
    scene.write("private", b"3\n")
    scene.write("swapped", b"4\n")
    scene.write("deleted/binary", b"\0")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.write("edited", b"1\n2\n")
        scene.at("script").chmod(0o755)
        scene.at("private").chmod(0o600)
        scene.at("swapped").unlink()
        scene.link("swapped", "edited")
        scene.at("deleted/binary").unlink()
        scene.write(b"new\xff", b"5")
        two = snapshots.track()
        changes = snapshots.changes(one, two)
        diffs = snapshots.diffs_of(reversed(changes))
        assert diffs == snapshots.diff_full(one, two)
        assert snapshots.git_diff_of(reversed(changes)) == snapshots.diff(one)
        (script,) = (diff for diff in diffs if diff.file == "script")
        assert (script.additions, script.deletions, script.status) == (0, 0, "modified")
        assert script.patch is not None
        assert script.patch.endswith("+++ script\t\n")
        assert not any(diff.patch for diff in snapshots.diffs_of(changes, room=1))


def a_fork_keeps_what_its_origin_kept(scene: Scene) -> None:
    """Its snapshots and captured files are there when the origin is gone for good."""
    scene.repository()
    scene.write("file", b"1")
    with scene.snapshots() as snapshots:
        taken = snapshots.track(session="ses_origin")
        snapshots.inherit("ses_origin", "ses_fork")
        snapshots.release("ses_origin")
        scene.write("file", b"2")
        snapshots.track(session="ses_fork")
    with scene.snapshots() as snapshots:
        snapshots.restore(taken.id)
        assert scene.on_disk() == {b"file": b"1"}


def what_is_identified_is_not_kept(scene: Scene) -> None:
    """A path can be told apart from others without its content being stored or covered."""
    scene.repository()
    scene.write(".gitignore", b"secret\n")
    scene.write("secret", b"a password")
    with scene.snapshots() as snapshots:
        first = snapshots.track()
        found = snapshots.identify([b"secret", b"nothing", b".gitignore/below"])
        secret = found[b"secret"]
        assert secret == present(b"a password")
        assert found[b"nothing"] == found[b".gitignore/below"] == Absent()
        assert isinstance(secret, Present)
        with refused(ObjectMissing):
            snapshots.read(secret.blob)
        scene.write("secret", b"another")
        assert snapshots.track().id == first.id
        assert snapshots.identify([b"secret"]) == {b"secret": present(b"another")}
