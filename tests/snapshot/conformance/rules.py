"""Checks of ignore rules: what they leave out is uncovered, not absent, and they may change."""

from kedge.domain.file_states import Absent, Reason, Uncovered
from tests.snapshot.conformance.scene import (
    Scene,
    changed,
    created,
    linked,
    present,
    settle,
    tree_of,
)

IGNORED = Uncovered(Reason.IGNORED)


def ignored_files_are_in_no_tree(scene: Scene) -> None:
    """Nor are folders that are ignored, with all that is in them."""
    scene.repository()
    scene.write(".gitignore", b"*.o\nbuild/\n")
    scene.write("a.o")
    scene.write("build/deep/file")
    scene.write("src/b.o")
    scene.write("src/b.c")
    with scene.snapshots() as snapshots:
        wanted = tree_of({".gitignore": b"*.o\nbuild/\n", "src/b.c": b"one\n"})
        assert snapshots.track().id == wanted
        scene.write("build/more/file")
        scene.write("src/b.o", b"two")
        assert snapshots.track().id == wanted


def a_rule_taken_back_creates_nothing(scene: Scene) -> None:
    """A file that was ignored was uncovered: that it is covered now does not make it new."""
    scene.repository()
    rules = scene.write(".gitignore", b"*.o\nbuild/\n")
    scene.write("a.o")
    scene.write("build/file")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        rules.unlink()
        two = snapshots.track()
        changes = snapshots.changes(one, two)
        assert created(changes) == set()
        assert changed(snapshots, one, two) == {
            b".gitignore": (present(b"*.o\nbuild/\n"), Absent()),
            b"a.o": (IGNORED, present(b"one\n")),
            b"build/file": (IGNORED, present(b"one\n")),
        }


def a_new_rule_deletes_nothing(scene: Scene) -> None:
    """A covered file that is ignored from now on is uncovered, not gone."""
    scene.repository()
    scene.write("a.o")
    scene.write("build/file")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.write(".gitignore", b"*.o\nbuild/\n")
        assert changed(snapshots, one, snapshots.track()) == {
            b".gitignore": (Absent(), present(b"*.o\nbuild/\n")),
            b"a.o": (present(b"one\n"), IGNORED),
            b"build/file": (present(b"one\n"), IGNORED),
        }


def what_appears_in_an_ignored_folder_is_nobodys(scene: Scene) -> None:
    """Made while its folder was ignored and seen when it no longer is, it was never created."""
    scene.repository()
    rules = scene.write(".gitignore", b"build/\n")
    scene.at("build").mkdir()
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.write("build/file")
        rules.write_bytes(b"")
        changes = changed(snapshots, one, snapshots.track())
        assert changes[b"build/file"] == (IGNORED, present(b"one\n"))


def rules_nest_and_negate(scene: Scene) -> None:
    """The deeper file decides, the later line decides, an ignored folder hides what is in it."""
    scene.repository()
    scene.write(".gitignore", b"*.log\n!keep.log\n/only-here\nhidden/\n")
    scene.write("sub/.gitignore", b"!special.log\nkeep.log\n")
    covered = ["keep.log", "sub/special.log", "sub/only-here", "hidden.txt"]
    left_out = ["a.log", "sub/a.log", "sub/keep.log", "only-here", "hidden/keep.log"]
    for path in (*covered, *left_out):
        scene.write(path)
    own = {
        ".gitignore": scene.at(".gitignore").read_bytes(),
        "sub/.gitignore": scene.at("sub/.gitignore").read_bytes(),
    }
    with scene.snapshots() as snapshots:
        assert snapshots.track().id == tree_of({**own, **dict.fromkeys(covered, b"one\n")})


def private_rules_count(scene: Scene) -> None:
    """`info/exclude` is no file of the worktree, but its change is noticed."""
    scene.repository()
    scene.write("a.o")
    scene.write("b.c")
    exclude = scene.at(".git/info/exclude")
    exclude.parent.mkdir(exist_ok=True)
    with scene.snapshots() as snapshots:
        assert snapshots.track().id == tree_of({"a.o": b"one\n", "b.c": b"one\n"})
        exclude.write_bytes(b"*.o\n")
        assert snapshots.track().id == tree_of({"b.c": b"one\n"})
        exclude.write_bytes(b"*.c\n")
        assert snapshots.track().id == tree_of({"a.o": b"one\n"})
        exclude.unlink()
        assert snapshots.track().id == tree_of({"a.o": b"one\n", "b.c": b"one\n"})


def the_users_rules_count(scene: Scene) -> None:
    """`core.excludesFile` counts, also when it is set or written later."""
    scene.repository()
    scene.write("a.o")
    scene.write("b.c")
    rules = scene.folder / "rules"
    with scene.snapshots() as snapshots:
        snapshots.track()
        scene.git("config", "core.excludesFile", str(rules))
        assert snapshots.track().id == tree_of({"a.o": b"one\n", "b.c": b"one\n"})
        rules.write_bytes(b"*.o\n")
        assert snapshots.track().id == tree_of({"b.c": b"one\n"})


def a_linked_rule_file_is_not_followed(scene: Scene) -> None:
    """As git does it: a `.gitignore` that is a link has no rules."""
    scene.repository()
    scene.write("rules", b"*.o\n")
    scene.link(".gitignore", "rules")
    scene.write("a.o")
    with scene.snapshots() as snapshots:
        now = snapshots.track()
        assert now.id == tree_of(
            {"rules": b"*.o\n", ".gitignore": linked(b"rules"), "a.o": b"one\n"}
        )


def tracked_files_are_covered_though_ignored(scene: Scene) -> None:
    """Tracked means covered, also in a folder that is ignored, where nothing else is."""
    scene.repository()
    scene.write("a.o")
    scene.write("build/kept")
    scene.commit()
    rules = b"*.o\nbuild/\n"
    scene.write(".gitignore", rules)
    scene.write("build/other")
    scene.write("b.o")
    with scene.snapshots() as snapshots:
        files = {".gitignore": rules, "a.o": b"one\n", "build/kept": b"one\n"}
        assert snapshots.track().id == tree_of(files)
        scene.write("build/kept", b"edited")
        scene.write("a.o", b"edited too")
        files |= {"build/kept": b"edited", "a.o": b"edited too"}
        assert snapshots.track().id == tree_of(files)


def tracking_and_untracking_is_noticed(scene: Scene) -> None:
    """`git add -f` covers an ignored file, `git rm --cached` uncovers it: neither is a change."""
    scene.repository()
    scene.write(".gitignore", b"*.o\nbuild/\n")
    scene.write("a.o")
    scene.write("build/file")
    with scene.snapshots() as snapshots:
        one = snapshots.track()
        scene.git("add", "-f", "a.o", "build/file")
        two = snapshots.track()
        covered = {
            b"a.o": (IGNORED, present(b"one\n")),
            b"build/file": (IGNORED, present(b"one\n")),
        }
        assert changed(snapshots, one, two) == covered
        scene.git("rm", "-q", "--cached", "a.o", "build/file")
        three = snapshots.track()
        assert changed(snapshots, two, three) == {
            path: (after, before) for path, (before, after) in covered.items()
        }


def an_index_change_is_not_lost_among_others(scene: Scene) -> None:
    """Ignored files that change at the same time are no reason to miss what is tracked now."""
    scene.repository()
    scene.write(".gitignore", b"*.o\nbuild/\n")
    for path in ("a.o", "b.o", "build/file"):
        scene.write(path)
    with scene.snapshots() as snapshots:
        snapshots.track()
        scene.git("add", "-f", "a.o", "build/file")
        scene.write("b.o", b"two")
        scene.write("folder/c.o")
        files = {".gitignore": b"*.o\nbuild/\n", "a.o": b"one\n", "build/file": b"one\n"}
        assert snapshots.track().id == tree_of(files)


def rules_that_appear_count_below(scene: Scene) -> None:
    """A `.gitignore` that comes or goes decides in folders that did not change themselves."""
    scene.repository()
    scene.write("deep/er/a.o")
    with scene.snapshots() as snapshots:
        settle(snapshots)
        rules = scene.write(".gitignore", b"*.o\n")
        assert snapshots.track().id == tree_of({".gitignore": b"*.o\n"})
        settle(snapshots)
        rules.unlink()
        assert snapshots.track().id == tree_of({"deep/er/a.o": b"one\n"})


def an_ignored_folder_may_become_a_file(scene: Scene) -> None:
    """The rule `x/` is about folders: the file of the same name is covered."""
    scene.repository()
    scene.write(".gitignore", b"x/\n")
    scene.write("x/file")
    with scene.snapshots() as snapshots:
        snapshots.track()
        scene.at("x/file").unlink()
        scene.at("x").rmdir()
        scene.write("x", b"a file")
        assert snapshots.track().id == tree_of({".gitignore": b"x/\n", "x": b"a file"})
