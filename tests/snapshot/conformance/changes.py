"""Checks of noticing: whatever is done to a worktree, the next snapshot holds it."""

import mmap
import os
import shutil
import threading

from kedge.domain.file_states import Absent
from tests.snapshot.conformance.scene import Scene, changed, linked, plain, present, tree_of


def creation_edit_and_deletion_are_told_apart(scene: Scene) -> None:
    """A change has the states before and after, and what did not change is not in it."""
    scene.repository()
    for name in ("kept", "edited", "deleted"):
        scene.write(name)
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.write("edited", b"two\n")
        scene.write("created", b"three\n")
        scene.at("deleted").unlink()
        two = snapshots.track()
        assert changed(snapshots, one, two) == {
            b"created": (Absent(), present(b"three\n")),
            b"deleted": (present(b"one\n"), Absent()),
            b"edited": (present(b"one\n"), present(b"two\n")),
        }
        assert snapshots.changes(two, two) == ()
        assert [each.path for each in snapshots.changes(one.id, two.id)] == [
            b"created",
            b"deleted",
            b"edited",
        ]


def an_unchanged_worktree_has_the_same_snapshot(scene: Scene) -> None:
    """Asking again costs nothing and says the same; so does putting a change back by hand."""
    scene.repository()
    scene.write("file")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        assert snapshots.track() == one
        scene.write("file", b"two")
        assert snapshots.track().id != one.id
        scene.write("file")
        assert snapshots.track().id == one.id


def an_edit_that_hides_is_seen(scene: Scene) -> None:
    """The same size and the same time, many times over: each edit is in the next snapshot."""
    scene.repository()
    file = scene.write("file", b"0000")
    os.utime(file, (1_000_000_000, 1_000_000_000))
    with scene.snapshots() as snapshots:
        snapshots.track()
        for count in range(200):
            content = b"%04d" % count
            file.write_bytes(content)
            os.utime(file, (1_000_000_000, 1_000_000_000))
            assert snapshots.track().id == tree_of({"file": content}), count


def quick_rewrites_are_seen(scene: Scene) -> None:
    """Rewritten right after it was read, within the same tick of the file system's clock."""
    scene.repository()
    file = scene.write("file", b"0000")
    with scene.snapshots() as snapshots:
        for count in range(300):
            content = b"%04d" % count
            with open(file, "r+b") as opened:
                opened.write(content)
            assert snapshots.track().id == tree_of({"file": content}), count


def writes_through_a_mapping_are_seen(scene: Scene) -> None:
    """At the latest when the file is unmapped and closed."""
    scene.repository()
    file = scene.write("file", b"0000")
    with scene.snapshots() as snapshots:
        snapshots.track()
        with open(file, "r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
            mapped[0:2] = b"12"
            mapped.flush()
        assert snapshots.track().id == tree_of({"file": b"1200"})


def renamed_folders_are_followed(scene: Scene) -> None:
    """What is written in a folder after its rename is seen under its new name."""
    scene.repository()
    scene.write("a/b/file")
    with scene.snapshots() as snapshots:
        snapshots.track()
        os.rename(scene.at("a"), scene.at("c"))
        scene.write("c/b/file", b"two")
        assert snapshots.track().id == tree_of({"c/b/file": b"two"})
        os.rename(scene.at("c/b"), scene.at("b"))
        shutil.rmtree(scene.at("c"))
        scene.write("b/file", b"three")
        scene.write("c/b/file", b"another")
        assert snapshots.track().id == tree_of({"b/file": b"three", "c/b/file": b"another"})


def folders_change_places(scene: Scene) -> None:
    """Renamed over each other by way of a third name, also from outside."""
    scene.repository()
    scene.write("one/file", b"1")
    scene.write("two/file", b"2")
    outside = scene.folder / "outside"
    with scene.snapshots() as snapshots:
        snapshots.track()
        os.rename(scene.at("one"), outside)
        os.rename(scene.at("two"), scene.at("one"))
        (outside / "more").write_bytes(b"3")
        (outside / "more").chmod(0o644)
        os.rename(outside, scene.at("two"))
        wanted = {"one/file": b"2", "two/file": b"1", "two/more": b"3"}
        assert snapshots.track().id == tree_of(wanted)


def a_path_changes_its_kind(scene: Scene) -> None:
    """File, folder and link take each other's place, and each time the others are gone."""
    scene.repository()
    path = scene.at("x")
    with scene.snapshots() as snapshots:
        scene.write("x", b"a file")
        assert snapshots.track().id == tree_of({"x": b"a file"})
        path.unlink()
        scene.write("x/y/z")
        assert snapshots.track().id == tree_of({"x/y/z": b"one\n"})
        shutil.rmtree(path)
        scene.link("x", "nowhere")
        assert snapshots.track().id == tree_of({"x": linked(b"nowhere")})
        path.unlink()
        scene.link("x", "elsewhere")
        assert snapshots.track().id == tree_of({"x": linked(b"elsewhere")})
        path.unlink()
        path.mkdir()
        assert snapshots.track().id == tree_of({})


def a_folder_behind_a_link_is_not_entered(scene: Scene) -> None:
    """A covered folder that is replaced by a link to one outside is only that link."""
    scene.repository()
    scene.write("folder/file", b"mine")
    outside = scene.folder / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"not mine")
    with scene.snapshots() as snapshots:
        snapshots.track()
        os.rename(scene.at("folder"), scene.at("moved"))
        scene.link("folder", str(outside))
        wanted = tree_of({"moved/file": b"mine", "folder": linked(os.fsencode(outside))})
        assert snapshots.track().id == wanted
        (outside / "file").write_bytes(b"changed")
        assert snapshots.track().id == wanted


def every_name_of_a_file_changes(scene: Scene) -> None:
    """A file with several names is written through one and changes under all of them."""
    scene.repository()
    scene.write("a", b"1")
    scene.at("folder").mkdir()
    os.link(scene.at("a"), scene.at("folder/b"))
    with scene.snapshots() as snapshots:
        assert snapshots.track().id == tree_of({"a": b"1", "folder/b": b"1"})
        with open(scene.at("a"), "r+b") as file:
            file.write(b"2")
        assert snapshots.track().id == tree_of({"a": b"2", "folder/b": b"2"})
        os.link(scene.at("a"), scene.at("c"))
        with open(scene.at("folder/b"), "r+b") as file:
            file.write(b"3")
        assert snapshots.track().id == tree_of({"a": b"3", "folder/b": b"3", "c": b"3"})


def a_name_that_comes_later_counts(scene: Scene) -> None:
    """A file gets a second name while it is watched, and is then written through that one."""
    scene.repository()
    scene.write("a", b"1")
    with scene.snapshots() as snapshots:
        snapshots.track()
        os.link(scene.at("a"), scene.at("b"))
        snapshots.track()
        with open(scene.at("b"), "r+b") as file:
            file.write(b"2")
        assert snapshots.track().id == tree_of({"a": b"2", "b": b"2"})


def a_name_outside_is_minded(scene: Scene) -> None:
    """A file that had a name outside of the worktree from the start may be written there."""
    scene.repository()
    outside = scene.folder / "outside"
    scene.write("a", b"1")
    os.link(scene.at("a"), outside)
    with scene.snapshots() as snapshots:
        snapshots.track()
        with open(outside, "r+b") as file:
            file.write(b"2")
        assert snapshots.track().id == tree_of({"a": b"2"})


def verify_finds_what_no_watch_can_see(scene: Scene) -> None:
    """Written through a name outside that came later: the full read finds it, and heals."""
    scene.repository()
    scene.write("a", b"1")
    outside = scene.folder / "outside"
    with scene.snapshots() as snapshots:
        snapshots.track()
        os.link(scene.at("a"), outside)
        with open(outside, "r+b") as file:
            file.write(b"2")
        snapshots.verify()
        assert snapshots.track().id == tree_of({"a": b"2"})


def names_differ_by_case(scene: Scene) -> None:
    """A rename that changes only the case is a change."""
    scene.repository()
    scene.write("readme")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        os.rename(scene.at("readme"), scene.at("README"))
        changes = changed(snapshots, one, snapshots.track())
        assert changes[b"readme"][1] == Absent()
        assert changes[b"README"][1] == present(b"one\n")


def thousands_of_changes_at_once_are_seen(scene: Scene) -> None:
    """More than a queue of the system holds; what is lost in it is found by looking."""
    scene.repository()
    scene.write("quiet/file", b"1")
    with scene.snapshots() as snapshots:
        snapshots.track()
        files = {f"many/{count // 100}/{count}": b"%d" % count for count in range(6_000)}
        for path, content in files.items():
            scene.write(path, content)
        scene.write("quiet/file", b"2")
        assert snapshots.track().id == tree_of({**files, "quiet/file": b"2"})
        shutil.rmtree(scene.at("many"))
        assert snapshots.track().id == tree_of({"quiet/file": b"2"})


def what_vanishes_while_it_is_read_fails_nothing(scene: Scene) -> None:
    """Files that come and go beside a snapshot are in it or not; the others are."""
    scene.repository()
    scene.write("steady")
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            for name in ("a", "b", "folder/c"):
                scene.write(name, b"here")
                scene.at(name).unlink()
            shutil.rmtree(scene.at("folder"))

    other = threading.Thread(target=come_and_go)
    with scene.snapshots() as snapshots:
        other.start()
        try:
            taken = [snapshots.track() for _ in range(200)]
        finally:
            stop.set()
            other.join()
        quiet = snapshots.track()
        assert quiet.id == tree_of({"steady": b"one\n"})
        for each in taken:
            assert b"steady" not in changed(snapshots, each, quiet)


def a_file_that_never_rests_keeps_its_last_state(scene: Scene) -> None:
    """What changed while it was read is listed as unstable; the snapshot holds a state it had."""
    scene.repository()
    # Reading this much takes so long that a read is soon disturbed as often as it is tried.
    first, last = b"0" * 30_000_000, b"1" + b"0" * 29_999_999
    file = scene.write("busy", first)
    stop = threading.Event()

    def write() -> None:
        with open(file, "r+b", buffering=0) as opened:
            while not stop.is_set():
                opened.seek(0)
                opened.write(b"1")

    writer = threading.Thread(target=write)
    with scene.snapshots() as snapshots:
        busy = snapshots.track()
        writer.start()
        try:
            while not busy.unstable:
                busy = snapshots.track()
        finally:
            stop.set()
            writer.join()
        assert busy.unstable == (b"busy",)
        # One snapshot may read it twice, the first time undisturbed: then it holds that.
        assert busy.id in {tree_of({"busy": first}), tree_of({"busy": last})}
        quiet = snapshots.track()
        assert quiet.unstable == ()
        assert quiet.id == tree_of({"busy": last})


def a_change_of_mode_alone_is_seen(scene: Scene) -> None:
    """Also when it is taken back."""
    scene.repository()
    file = scene.write("file")
    scene.write("other")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        file.chmod(0o755)
        two = snapshots.track()
        wanted = (present(b"one\n"), present(plain(b"one\n", 0o755)))
        assert changed(snapshots, one, two) == {b"file": wanted}
        file.chmod(0o644)
        assert snapshots.track().id == one.id
