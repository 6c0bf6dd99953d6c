"""Checks of git beside kedge: repositories of every shape, read but never written, never run."""

import os
import sys

from kedge.snapshot.values import Head
from tests.snapshot.conformance.scene import (
    Scene,
    changed,
    environment,
    present,
    tree_of,
)
from tests.snapshot_fuzz.disk import fingerprint


def nested_repositories_are_covered(scene: Scene) -> None:
    """With rules of their own; the outer rules end at their roots, and no `.git` is covered."""
    scene.repository()
    scene.write(".gitignore", b"*.o\n")
    scene.repository("nested")
    scene.write("nested/.gitignore", b"*.c\n")
    for path in ("a.o", "a.c", "nested/b.o", "nested/b.c"):
        scene.write(path)
    scene.commit("nested")
    files = {".gitignore": b"*.o\n", "nested/.gitignore": b"*.c\n"}
    files |= {"a.c": b"one\n", "nested/b.o": b"one\n"}
    with scene.snapshots() as snapshots:
        assert snapshots.track().id == tree_of(files)
        scene.write("nested/b.o", b"edited")
        assert snapshots.track().id == tree_of({**files, "nested/b.o": b"edited"})


def a_repository_without_commits_may_be_nested(scene: Scene) -> None:
    """`git add` fails at one for ever; a snapshot does not."""
    scene.repository()
    scene.write("file")
    with scene.snapshots() as snapshots:
        snapshots.track()
        scene.repository("nested")
        scene.write("nested/file", b"two")
        assert snapshots.track().id == tree_of({"file": b"one\n", "nested/file": b"two"})


def rules_follow_a_repository_that_comes_and_goes(scene: Scene) -> None:
    """`git init` in a folder ends the outer rules there, and removing `.git` brings them back."""
    scene.repository()
    scene.write(".gitignore", b"*.o\n")
    scene.write("nested/a.o")
    outer = {".gitignore": b"*.o\n"}
    with scene.snapshots() as snapshots:
        assert snapshots.track().id == tree_of(outer)
        scene.repository("nested")
        assert snapshots.track().id == tree_of({**outer, "nested/a.o": b"one\n"})
        os.rename(scene.at("nested/.git"), scene.folder / "git")
        assert snapshots.track().id == tree_of(outer)
        os.rename(scene.folder / "git", scene.at("nested/.git"))
        assert snapshots.track().id == tree_of({**outer, "nested/a.o": b"one\n"})


def a_repository_in_the_making_is_found(scene: Scene) -> None:
    """`git init` takes a while; how many snapshots fall into it does not matter."""
    scene.repository()
    scene.write(".gitignore", b"*.o\n")
    scene.write("nested/a.o")
    with scene.snapshots() as snapshots:
        snapshots.track()
        scene.at("nested/.git").mkdir()
        for _ in range(4):
            assert snapshots.track().id == tree_of({".gitignore": b"*.o\n"})
        scene.repository("nested")
        wanted = {".gitignore": b"*.o\n", "nested/a.o": b"one\n"}
        assert snapshots.track().id == tree_of(wanted)


def nested_tracking_counts(scene: Scene) -> None:
    """What a nested repository tracks is covered though its own rules ignore it."""
    scene.repository()
    scene.repository("nested")
    scene.write("nested/a.o")
    scene.commit("nested")
    scene.write("nested/.gitignore", b"*.o\n")
    scene.write("nested/b.o")
    with scene.snapshots() as snapshots:
        files = {"nested/a.o": b"one\n", "nested/.gitignore": b"*.o\n"}
        assert snapshots.track().id == tree_of(files)
        scene.git("add", "-f", "b.o", path="nested")
        assert snapshots.track().id == tree_of({**files, "nested/b.o": b"one\n"})


def what_an_outer_repository_tracks_is_covered(scene: Scene) -> None:
    """`git init` in a folder does not uncover what the repository around it tracks there."""
    scene.repository()
    scene.write("build/nested/file")
    scene.write("nested/a.o")
    scene.commit()
    files = {"build/nested/file": b"one\n", "nested/a.o": b"one\n"}
    rules = {".gitignore": b"build/\n", "nested/.gitignore": b"*.o\n"}
    with scene.snapshots() as snapshots:
        assert snapshots.track().id == tree_of(files)
        for path, content in rules.items():
            scene.write(path, content)
        scene.repository("build/nested")
        scene.repository("nested")
        assert snapshots.track().id == tree_of({**files, **rules})
        scene.write("build/nested/file", b"edited")
        files["build/nested/file"] = b"edited"
        assert snapshots.track().id == tree_of({**files, **rules})


def submodules_are_covered(scene: Scene) -> None:
    """To git a submodule is one commit; to a snapshot it is its files."""
    scene.repository()
    origin = scene.folder / "origin"
    origin.mkdir()
    (origin / "file").write_bytes(b"one\n")
    scene.git("init", "-q", "-b", "main", path=str(origin))
    scene.commit(str(origin))
    protocol = ("-c", "protocol.file.allow=always")
    scene.git(*protocol, "submodule", "--quiet", "add", str(origin), "sub")
    scene.commit()
    modules = scene.at(".gitmodules").read_bytes()
    with scene.snapshots() as snapshots:
        wanted = {".gitmodules": modules, "sub/file": b"one\n"}
        assert snapshots.track().id == tree_of(wanted)
        scene.write("sub/new", b"two")
        assert snapshots.track().id == tree_of({**wanted, "sub/new": b"two"})


def linked_worktrees_are_covered(scene: Scene) -> None:
    """A worktree whose `.git` is a file has its own HEAD and its own index."""
    scene.repository()
    scene.write("file")
    scene.commit()
    other = scene.folder / "other"
    scene.git("worktree", "add", "-q", "-b", "side", str(other))
    (other / ".gitignore").write_bytes(b"*.o\n")
    (other / "a.o").write_bytes(b"forced")
    (other / "a.o").chmod(0o644)
    (other / ".gitignore").chmod(0o644)
    scene.git("add", "-f", "a.o", path=str(other))
    with scene.snapshots(other) as snapshots:
        now = snapshots.track()
        assert now.id == tree_of({"file": b"one\n", ".gitignore": b"*.o\n", "a.o": b"forced"})
        assert now.head is not None
        assert now.head.ref == "refs/heads/side"


def two_worktrees_share_a_store(scene: Scene) -> None:
    """Worktrees of one project can be open at once, and each reads what the other stored."""
    scene.repository()
    scene.write("file")
    scene.commit()
    other = scene.folder / "other"
    scene.git("worktree", "add", "-q", "-b", "side", str(other))
    with scene.snapshots() as one, scene.snapshots(other) as two:
        first = one.track(session="ses_one")
        (other / "file").write_bytes(b"other")
        second = two.track(session="ses_two")
        assert changed(one, first, second) == {b"file": (present(b"one\n"), present(b"other"))}
        assert changed(two, second, first) == {b"file": (present(b"other"), present(b"one\n"))}


def head_is_recorded(scene: Scene) -> None:
    """A branch without commits, a branch with, and a commit without a branch."""
    scene.repository()
    with scene.snapshots() as snapshots:
        assert snapshots.track().head == Head(ref="refs/heads/main", commit=None)
        scene.write("file")
        scene.commit()
        commit = scene.git("rev-parse", "HEAD")
        assert snapshots.track().head == Head(ref="refs/heads/main", commit=commit)
        scene.git("pack-refs", "--all")
        assert snapshots.track().head == Head(ref="refs/heads/main", commit=commit)
        scene.git("checkout", "-q", "--detach")
        assert snapshots.track().head == Head(ref=None, commit=commit)


def the_users_repository_is_untouched(scene: Scene) -> None:
    """Not a byte, mode or time below `.git` changes, whatever is done with snapshots."""
    scene.repository()
    scene.write("file")
    scene.commit()
    scene.write("file", b"edited")
    before = fingerprint(bytes(scene.at(".git")))
    with scene.snapshots() as snapshots:
        one = snapshots.track(session="ses_one")
        scene.write("new")
        snapshots.track()
        snapshots.patch(one.id)
        snapshots.diff(one.id)
        snapshots.restore(one)
        snapshots.verify()
        snapshots.capture([b"file"])
    assert fingerprint(bytes(scene.at(".git"))) == before


def git_variables_are_ignored(scene: Scene) -> None:
    """A caller that runs inside a hook has `GIT_*` variables, which are about something else."""
    scene.repository()
    scene.write(".gitignore", b"*.o\n")
    scene.write("a.o")
    scene.git("add", "-f", "a.o")
    wrong = str(scene.folder / "wrong")
    names = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"]
    names += ["GIT_COMMON_DIR", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CEILING_DIRECTORIES"]
    with environment(**dict.fromkeys(names, wrong)), scene.snapshots() as snapshots:
        files = {".gitignore": b"*.o\n", "a.o": b"one\n"}
        assert snapshots.track(session="ses_one").id == tree_of(files)
    assert not os.path.exists(wrong)


def bytes_are_never_converted(scene: Scene) -> None:
    """Line ends, keywords and encodings stay as they are on disk, committed or not."""
    scene.repository()
    scene.git("config", "core.autocrlf", "true")
    rules = b"*.txt text eol=crlf\n*.id ident\n*.enc working-tree-encoding=UTF-16\n"
    files = {
        ".gitattributes": rules,
        "crlf.txt": b"1\r\n2\r\n",
        "lf.txt": b"1\n2\n",
        "auto": b"1\r\n2\r\n",
        "a.id": b"$Id$\n",
        "a.enc": "x\n".encode("utf-16"),
    }
    for path, content in files.items():
        scene.write(path, content)
    scene.git("-c", "core.safecrlf=false", "add", "-A")
    scene.git("commit", "-q", "-m", "converted")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        assert one.id == tree_of(files)
        scene.clear()
        snapshots.restore(one)
        assert scene.on_disk() == {os.fsencode(path): each for path, each in files.items()}


def nothing_of_the_users_is_run(scene: Scene) -> None:
    """Filters, hooks, watchers and pagers that a repository configures stay as they are: unused."""
    scene.repository()
    canary = scene.folder / "canary"
    command = f"{sys.executable} -c \"open({str(canary)!r}, 'w')\""
    hook = scene.write(".git/hooks/post-index-change", b"#!/bin/sh\n" + command.encode(), 0o755)
    for name in ("post-checkout", "reference-transaction", "fsmonitor-watchman", "pre-commit"):
        scene.write(f".git/hooks/{name}", hook.read_bytes(), 0o755)
    scene.write(".gitattributes", b"* filter=evil diff=evil\n")
    scene.write("file")
    settings = ("filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "core.pager")
    for name in (
        *settings,
        "diff.evil.textconv",
        "diff.external",
        "core.fsmonitor",
        "alias.config",
    ):
        scene.git("config", name, f"!{command}" if name.startswith("alias") else command)
    with scene.snapshots() as snapshots:
        one = snapshots.track(session="ses_one")
        scene.write("file", b"two\n")
        snapshots.diff(one.id)
        snapshots.restore(one)
        scene.write(".gitignore", b"*.o\n")
        snapshots.track()
    assert not canary.exists()


def every_kind_of_index_is_understood(scene: Scene) -> None:
    """Tracked-but-ignored files are found in each form that git writes its index in."""
    scene.repository()
    scene.write("src/a.o")
    scene.write("src/b.c")
    scene.commit()
    scene.write(".gitignore", b"*.o\n")
    files = {".gitignore": b"*.o\n", "src/a.o": b"one\n", "src/b.c": b"one\n"}
    with scene.snapshots() as snapshots:
        assert snapshots.track().id == tree_of(files)
        for words in (
            ("--index-version", "4"),
            ("--split-index",),
            ("--no-split-index", "--index-version", "2"),
            ("--assume-unchanged", "src/a.o"),
            ("--skip-worktree", "src/b.c"),
        ):
            scene.git("update-index", *words)
            scene.write("src/b.c", words[0].encode())
            files["src/b.c"] = words[0].encode()
            assert snapshots.track().id == tree_of(files), words
    with scene.snapshots() as snapshots:
        assert snapshots.track().id == tree_of(files)


def repositories_with_longer_ids_are_covered(scene: Scene) -> None:
    """The user's SHA-256 repository has other ids than snapshots, and rules like any other."""
    scene.root.mkdir()
    scene.git("init", "-q", "--object-format=sha256")
    scene.write(".gitignore", b"*.o\n")
    scene.write("a.o")
    scene.write("b.c")
    scene.git("add", "-f", ".")
    scene.write("c.o")
    files = {".gitignore": b"*.o\n", "a.o": b"one\n", "b.c": b"one\n"}
    with scene.snapshots() as snapshots:
        assert snapshots.track().id == tree_of(files)


def a_first_snapshot_does_not_trust_the_index(scene: Scene) -> None:
    """Edited since it was added, marked as unchanged or not, a file is its bytes on disk."""
    scene.repository()
    for name in ("assumed", "skipped", "edited", "same"):
        scene.write(name, b"1111")
    scene.commit()
    scene.git("update-index", "--assume-unchanged", "assumed")
    scene.git("update-index", "--skip-worktree", "skipped")
    for name in ("assumed", "skipped", "edited"):
        times = os.stat(scene.at(name))
        scene.write(name, b"2222")
        os.utime(scene.at(name), ns=(times.st_atime_ns, times.st_mtime_ns))
    edited = dict.fromkeys(("assumed", "skipped", "edited"), b"2222")
    with scene.snapshots() as snapshots:
        assert snapshots.track().id == tree_of({**edited, "same": b"1111"})


def the_users_gc_breaks_no_snapshot(scene: Scene) -> None:
    """What a snapshot took from the user's repository it still has when that has dropped it."""
    scene.repository()
    scene.write("file", b"precious\n")
    scene.commit()
    with scene.snapshots() as snapshots:
        one = snapshots.track(session="ses_one")
    scene.git("checkout", "-q", "--orphan", "other")
    scene.git("rm", "-q", "-r", "-f", ".")
    scene.git("branch", "-q", "-D", "main")
    scene.git("reflog", "expire", "--expire=now", "--all")
    scene.git("gc", "-q", "--prune=now")
    with scene.snapshots() as snapshots:
        snapshots.restore(one)
    assert scene.on_disk() == {b"file": b"precious\n"}
