"""Checks of what is covered: every kind of file, name and mode, and what is left out and why."""

import os
import socket
from dataclasses import replace

from kedge.domain.file_states import Absent, Reason, Uncovered
from tests.snapshot.conformance.scene import (
    DEFAULTS,
    EMPTY_TREE,
    Scene,
    changed,
    linked,
    plain,
    present,
    tree_of,
)


def an_empty_worktree_is_the_empty_tree(scene: Scene) -> None:
    """There is a snapshot of nothing too."""
    scene.repository()
    with scene.snapshots() as snapshots:
        assert snapshots.track().id == EMPTY_TREE


def the_id_is_gits_tree(scene: Scene) -> None:
    """A snapshot has the id that git gives to a tree of the same files."""
    scene.repository()
    files = {"a.txt": b"a\n", "d/b.txt": b"b", "d.x": b"", "d/e/c": b"\0\r\n"}
    for path, content in files.items():
        scene.write(path, content)
    scene.commit()
    with scene.snapshots() as snapshots:
        assert snapshots.track().id == tree_of(files) == scene.git("rev-parse", "HEAD^{tree}")


def untracked_files_are_covered(scene: Scene) -> None:
    """Nothing has to be added to git first."""
    scene.repository()
    scene.write("tracked")
    scene.commit()
    scene.write("new/untracked")
    with scene.snapshots() as snapshots:
        assert snapshots.track().id == tree_of({"tracked": b"one\n", "new/untracked": b"one\n"})


def empty_files_are_covered(scene: Scene) -> None:
    """A file without bytes is there, and making one is a creation."""
    scene.repository()
    with scene.snapshots() as snapshots:
        before = snapshots.track()
        scene.write("empty", b"")
        after = snapshots.track()
        assert after.id == tree_of({"empty": b""})
        assert changed(snapshots, before, after) == {b"empty": (Absent(), present(b""))}


def empty_folders_are_in_no_tree(scene: Scene) -> None:
    """As git, a snapshot knows folders only by what is in them."""
    scene.repository()
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.at("a/b/c").mkdir(parents=True)
        assert snapshots.track().id == one.id
        scene.write("a/b/c/file")
        assert snapshots.track().id == tree_of({"a/b/c/file": b"one\n"})
        scene.at("a/b/c/file").unlink()
        assert snapshots.track().id == one.id


def the_executable_bit_is_in_the_tree(scene: Scene) -> None:
    """It changes the id, and nothing else has to."""
    scene.repository()
    script = scene.write("script", b"#!/bin/sh\n")
    with scene.snapshots() as snapshots:
        snapshots.track()
        script.chmod(0o755)
        assert snapshots.track().id == tree_of({"script": plain(b"#!/bin/sh\n", 0o755)})


def permission_bits_are_exact(scene: Scene) -> None:
    """Bits that git's trees do not hold are known all the same, and their change is a change."""
    scene.repository()
    for number in range(5):
        scene.write(f"usual{number}")
    secret = scene.write("secret", b"s", 0o600)
    with scene.snapshots() as snapshots:
        empty = snapshots.track()
        for mode in (0o640, 0o444, 0o600, 0o700, 0o755, 0o750, 0o644, 0o4755):
            secret.chmod(mode)
            now = snapshots.track()
            state = changed(snapshots, empty, now).get(b"secret")
            if mode == 0o600:
                assert state is None
            else:
                assert state == (present(plain(b"s", 0o600)), present(plain(b"s", mode)))


def links_are_covered_as_links(scene: Scene) -> None:
    """A link is its target's name, wherever that leads and whether it leads anywhere."""
    scene.repository()
    scene.write("folder/file")
    outside = scene.folder / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    targets = {
        "to-file": b"folder/file",
        "to-folder": b"folder",
        "to-nothing": b"nowhere",
        "to-itself": b"to-itself",
        "outside": os.fsencode(outside),
        "folder/up": b"..",
        "odd": b"\xff\n",
    }
    for path, target in targets.items():
        scene.link(path, target)
    wanted = {path: linked(target) for path, target in targets.items()}
    with scene.snapshots() as snapshots:
        now = snapshots.track()
        assert now.id == tree_of({"folder/file": b"one\n", **wanted})
        (outside / "secret").write_bytes(b"changed")
        assert snapshots.track().id == now.id


def odd_names_are_covered(scene: Scene) -> None:
    """Names are bytes: not UTF-8, with newlines, spaces, quotes, as long as they get, or git's."""
    scene.repository()
    names = [b"\xff\xfe", b"new\nline", b"trail ", b" lead", b"-dash", b":colon", b"*", b"[a]"]
    names += [b"quo\"te'", b"back\\slash", b"\x01\x7f", b"n" * 255, b"caf\xc3\xa9", b"cafe\xcc\x81"]
    names += [b"~", b"a", b"A", b"a.b", b"CON", b"git~1", b".gitx", b"..."]
    with scene.snapshots() as snapshots:
        snapshots.track()
        for name in names:
            scene.write(name, name)
            scene.write(b"folder/" + name + b"/file", name)
        files = {os.fsdecode(b"folder/" + name + b"/file"): name for name in names}
        files |= {os.fsdecode(name): name for name in names}
        assert snapshots.track().id == tree_of(files)


def names_that_git_would_refuse_are_covered(scene: Scene) -> None:
    """What git keeps out of its trees for its own safety is a file like any other."""
    scene.repository()
    files = {".gitmodules/file": b"1", "a/.gitmodules": b"2", ".GIT": b"3", "b/.Git/config": b"4"}
    with scene.snapshots() as snapshots:
        snapshots.track()
        for path, content in files.items():
            scene.write(path, content)
        scene.link("c/.gitmodules", "/etc")
        scene.link("d/.gitattributes", "../x")
        wanted = {"c/.gitmodules": linked(b"/etc"), "d/.gitattributes": linked(b"../x")}
        assert snapshots.track().id == tree_of({**files, **wanted})


def deep_folders_are_covered(scene: Scene) -> None:
    """Folders in folders, as deep as a path can name."""
    scene.repository()
    path = "d/" * 900 + "file"
    with scene.snapshots() as snapshots:
        snapshots.track()
        scene.write(path)
        assert snapshots.track().id == tree_of({path: b"one\n"})


def files_over_the_limit_are_uncovered(scene: Scene) -> None:
    """One byte decides, in both directions; growing over the limit is no deletion."""
    scene.repository()
    file = scene.write("file", b"x" * 1000)
    with scene.snapshots(settings=replace(DEFAULTS, file_size=1000)) as snapshots:
        small = snapshots.track()
        assert small.id == tree_of({"file": b"x" * 1000})
        file.write_bytes(b"x" * 1001)
        large = snapshots.track()
        assert large.id == EMPTY_TREE
        [change] = snapshots.changes(small, large)
        assert (change.before, change.after) == (present(b"x" * 1000), Uncovered(Reason.LARGE))
        file.write_bytes(b"y")
        again = snapshots.track()
        assert changed(snapshots, large, again) == {
            b"file": (Uncovered(Reason.LARGE), present(b"y"))
        }


def special_files_are_uncovered(scene: Scene) -> None:
    """A pipe is never opened, which would wait for ever; a socket is no file either."""
    scene.repository()
    scene.write("file")
    with scene.snapshots() as snapshots:
        snapshots.track()
        os.mkfifo(scene.at("pipe"))
        with socket.socket(socket.AF_UNIX) as listener:
            here = os.getcwd()
            os.chdir(scene.root)
            try:
                listener.bind("socket")
            finally:
                os.chdir(here)
        before = snapshots.track()
        assert before.id == tree_of({"file": b"one\n"})
        scene.at("pipe").unlink()
        scene.write("pipe", b"a file now")
        after = changed(snapshots, before, snapshots.track())
        assert after == {b"pipe": (Uncovered(Reason.SPECIAL), present(b"a file now"))}


def kedges_own_files_are_never_covered(scene: Scene) -> None:
    """What an interrupted restore may leave behind is in no snapshot."""
    scene.repository()
    scene.write("file")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.write(".kedge-plan-1~")
        scene.write("folder/.kedge-plan-2-old~")
        scene.write(".kedge-folder~/file")
        two = snapshots.track()
        assert two.id == one.id == tree_of({"file": b"one\n"})
        assert snapshots.changes(one, two) == ()


def folders_without_git_are_covered(scene: Scene) -> None:
    """There need not be any repository, and none is made; `.gitignore` counts all the same."""
    scene.plain()
    scene.write("file")
    scene.write("build/out.o")
    scene.write(".gitignore", b"*.o\n")
    with scene.snapshots() as snapshots:
        now = snapshots.track()
        assert now.id == tree_of({"file": b"one\n", ".gitignore": b"*.o\n"})
        assert now.head is None
        assert not scene.at(".git").exists()
