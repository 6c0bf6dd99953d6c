"""Whatever users do to their repository and their files: a snapshot that was kept comes back whole.

The first snapshot of a repository is seeded from the repository's own index and packs, so what the
user does to these right afterwards is the worst.
"""

import math
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from kedge.domain.errors import ObjectMissing, SnapshotNotFound, SnapshotTimeout
from kedge.snapshot import Outcome, Present, Protection
from kedge.snapshot.maintenance import Maintenance
from kedge.snapshot.objects import gc
from kedge.snapshot.objects.formats import BLOB, EMPTY_TREE, TREE, encode_tree, parse_tree
from kedge.snapshot.objects.store import ObjectStore
from tests.snapshot.conformance.scene import Scene
from tests.snapshot.hostile_worktree import Files, files_of, files_on_disk, make_index_newer
from tests.snapshot.test_conformance import opener

# What a user does


def tidies(scene: Scene) -> None:
    """Throws out all that no branch holds."""
    scene.git("reflog", "expire", "--expire=now", "--all")
    scene.git("gc", "-q", "--prune=now", "--aggressive")


def removes_the_repository(scene: Scene) -> None:
    """Goes on without git."""
    shutil.rmtree(scene.at(".git"))


def starts_anew(scene: Scene) -> None:
    """Has another repository in the place of the first one, with other objects."""
    shutil.rmtree(scene.at(".git"))
    scene.repository()
    scene.git("commit", "-q", "--allow-empty", "-m", "anew")


def removes_objects(scene: Scene) -> None:
    """Leaves a repository that knows names but no contents."""
    shutil.rmtree(scene.at(".git/objects"))
    scene.at(".git/objects").mkdir()


def removes_alternates(scene: Scene) -> None:
    """Takes away what the repository itself borrows from."""
    scene.at(".git/objects/info/alternates").unlink()
    shutil.rmtree(scene.folder / "lender")


def damages_objects(scene: Scene) -> None:
    """Has other contents of the same length under the names of loose objects."""
    for path in scene.at(".git/objects").glob("??/*"):
        header, _, content = zlib.decompress(path.read_bytes()).partition(b"\0")
        path.chmod(0o644)
        path.write_bytes(zlib.compress(header + b"\0" + content[::-1]))


def switches_branches(scene: Scene) -> None:
    """Works on something that has nothing in common."""
    scene.git("checkout", "-q", "-f", "other")


def stashes(scene: Scene) -> None:
    """Puts all changes aside, new files too."""
    scene.git("stash", "-q", "-u")


def cleans(scene: Scene) -> None:
    """Throws away all that is not committed."""
    scene.git("reset", "-q", "--hard")
    scene.git("clean", "-fdxq")


def amends(scene: Scene) -> None:
    """Replaces the history, and throws the old one out."""
    scene.write("big", b"smaller\n")
    scene.git("commit", "-q", "-a", "--amend", "-m", "amended")
    tidies(scene)


Blow = Callable[[Scene], None]
KEEPING_FILES: list[Blow] = [
    tidies, removes_the_repository, starts_anew, removes_objects, removes_alternates,
    damages_objects,
]  # fmt: skip
KEEPING_OBJECTS: list[Blow] = [switches_branches, stashes, cleans]
each_blow = pytest.mark.parametrize(
    "blow", [*KEEPING_FILES, *KEEPING_OBJECTS, amends], ids=lambda blow: blow.__name__
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pulls the plug here, so nothing has to be on the disk."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A repository with objects borrowed, packed, loose, and staged only; its index is trusted."""
    scene = Scene(tmp_path, opener("inotify"))
    scene.repository()
    scene.git("commit", "-q", "--allow-empty", "-m", "empty")
    scene.git("checkout", "-q", "-b", "other")
    scene.write("folder", b"a file on the other branch\n")
    scene.commit()
    scene.git("checkout", "-q", "main")
    scene.write("borrowed", b"in the objects of another repository\n")
    scene.write("big", b"line\n" * 5000)
    scene.commit()
    _lend(scene)
    scene.write("folder/deep/packed", b"packed\n", 0o755)
    scene.link("link", "folder/deep")
    scene.commit()
    scene.git("repack", "-q", "-l", "-d")
    scene.write("loose", b"loose\n")
    scene.commit()
    scene.write("staged", b"in no commit\n")
    scene.git("add", "staged")
    scene.write("untracked", b"in no repository\n", 0o600)
    make_index_newer(scene)
    return scene


def _lend(scene: Scene) -> None:
    scene.git("repack", "-q", "-a", "-d")
    lender, objects = scene.folder / "lender", scene.at(".git/objects")
    lender.mkdir()
    (objects / "pack").rename(lender / "pack")
    (objects / "pack").mkdir()
    (objects / "info/alternates").write_text(f"{lender}\n")


def edit(scene: Scene) -> None:
    """Change, delete and add files."""
    scene.write("big", b"short\n")
    scene.write("folder/new", b"new\n")
    scene.at("loose").unlink()


def spoil(scene: Scene) -> None:
    """Leave nothing in the worktree as it was."""
    scene.clear()
    scene.write("link/to", b"another\n")
    scene.write("big", b"another\n")


def assert_comes_back(scene: Scene, kept: dict[str, Files]) -> None:
    """Every snapshot is put back whole by a process that knows nothing."""
    for id, files in kept.items():
        with scene.snapshots() as snapshots:
            assert files_of(snapshots, id) == files
            spoil(scene)
            snapshots.restore(id)
            assert files_on_disk(scene.root) == files
            assert snapshots.track().id == id


def store_of(scene: Scene) -> ObjectStore:
    """The store that the scene's snapshots are in."""
    return ObjectStore(scene.folder / "data/snapshots/prj")


# What must come of it


@each_blow
def test_kept_snapshots_outlive_the_repository(blow: Blow, scene: Scene) -> None:
    """What was kept by a process that ended in order needs nothing of the user's any more."""
    kept = {}
    with scene.snapshots() as snapshots:
        kept[snapshots.track(session="ses_one").id] = files_on_disk(scene.root)
        assert snapshots.status().seeded > 0
        edit(scene)
        kept[snapshots.track(session="ses_one").id] = files_on_disk(scene.root)
    blow(scene)
    assert_comes_back(scene, kept)


@each_blow
def test_the_first_command_may_do_anything(blow: Blow, scene: Scene) -> None:
    """When the first snapshot is acknowledged, neither the repository nor a file is needed."""
    with scene.snapshots() as snapshots:
        one, files = snapshots.track(session="ses_one"), files_on_disk(scene.root)
        assert snapshots.status().protection is Protection.FULL
        blow(scene)
        spoil(scene)
        snapshots.restore(one.id)
        assert files_on_disk(scene.root) == files
    assert_comes_back(scene, {one.id: files})


@each_blow
def test_a_blow_between_two_snapshots(blow: Blow, scene: Scene) -> None:
    """The second snapshot goes on using what the first one has, whatever happened in between."""
    with scene.snapshots() as snapshots:
        kept = {snapshots.track(session="ses_one").id: files_on_disk(scene.root)}
        scene.write("more", b"more\n")
        kept[snapshots.track(session="ses_one").id] = files_on_disk(scene.root)
        blow(scene)
        kept[snapshots.track(session="ses_one").id] = files_on_disk(scene.root)
    assert_comes_back(scene, kept)


# What kedge 0.1 left


def borrowed(scene: Scene) -> tuple[str, Files]:
    """Keep the committed files as 0.1 did before it was killed: their trees, not their blobs."""
    scene.write("untracked", b"in the last commit\n")
    scene.commit()
    files = files_on_disk(scene.root)
    with store_of(scene) as store:
        for line in scene.git("ls-tree", "-rtd", "HEAD").splitlines():
            store.put(TREE, _tree(scene, line.split()[2]))
        tree = store.put(TREE, _tree(scene, "HEAD:"))
        base = store.put(BLOB, b"644 755")
        store.keep("ses_one", files=tree, notes=EMPTY_TREE, base=base)
        note = store.layout.borrowing / "0123456789abcdef-0"
    note.parent.mkdir()
    note.write_bytes(bytes(scene.at(".git/objects")))
    return tree.hex(), files


def _tree(scene: Scene, name: str) -> bytes:
    entries = []
    for line in scene.git("ls-tree", name).splitlines():
        mode, _, id, path = line.split()
        entries.append((path.encode(), int(mode, 8), bytes.fromhex(id)))
    return encode_tree(entries)


def test_the_next_process_copies_for_a_dead_one(scene: Scene) -> None:
    """What a killed process had only borrowed is copied as soon as there is another one."""
    one, files = borrowed(scene)
    edit(scene)
    scene.commit()
    with scene.snapshots() as snapshots:
        snapshots.track(session="ses_two")
    removes_the_repository(scene)
    assert_comes_back(scene, {one: files})


def test_a_first_snapshot_waits_until_earlier_ones_are_safe(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command after it may delete the repository before anything ran in the background."""
    monkeypatch.setattr(Maintenance, "_start", lambda _: None)
    one, files = borrowed(scene)
    edit(scene)
    scene.commit()
    with scene.snapshots() as snapshots:
        snapshots.track(session="ses_two")
        assert snapshots.status().protection is Protection.FULL
        removes_the_repository(scene)
        assert not snapshots._store.owes()
    assert_comes_back(scene, {one: files})


def test_debts_that_take_too_long_are_settled_in_the_background(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot that has no time to copy them is none; the next one finds them settled."""
    settle, deadlines = ObjectStore.settle_debts, list[float]()

    def slowly(self: ObjectStore, deadline: float = math.inf) -> set[bytes]:
        deadlines.append(deadline)
        return settle(self, deadline if deadline == math.inf else 0)

    monkeypatch.setattr(ObjectStore, "settle_debts", slowly)
    monkeypatch.setattr(Maintenance, "_start", lambda _: None)
    one, files = borrowed(scene)
    with scene.snapshots() as snapshots:
        with pytest.raises(SnapshotTimeout):
            snapshots.track(session="ses_two")
        assert snapshots.status().protection is Protection.DEGRADED
        snapshots._upkeep._copy_borrowed()
        snapshots._upkeep._rescan()
        assert snapshots.status().protection is Protection.PENDING
        snapshots.track(session="ses_two")
        assert snapshots.status().protection is Protection.FULL
        assert len(deadlines) == 2
    removes_the_repository(scene)
    assert_comes_back(scene, {one: files})


def test_debts_found_later_are_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a process that died meanwhile is copied for, not all is protected."""
    monkeypatch.setattr(Maintenance, "_start", lambda _: None)
    settle, seen = ObjectStore.settle_debts, list[Protection]()
    with scene.snapshots() as snapshots:
        snapshots.track()
        borrowed(scene)

        def watched(self: ObjectStore, deadline: float = math.inf) -> set[bytes]:
            seen.append(snapshots.status().protection)
            return settle(self, deadline)

        monkeypatch.setattr(ObjectStore, "settle_debts", watched)
        snapshots._upkeep._copy_borrowed()
        assert seen == [Protection.PENDING]
        assert snapshots.status().protection is Protection.FULL


def test_a_dead_process_is_copied_for_by_any_worktree(scene: Scene) -> None:
    """Another worktree of the project does it as well, before the first one is thrown away."""
    one, files = borrowed(scene)
    other = scene.folder / "other"
    scene.git("worktree", "add", "-q", str(other), "other")
    with scene.snapshots(other) as snapshots:
        snapshots.track(session="ses_two")
    shutil.rmtree(scene.root)
    scene.plain()
    assert_comes_back(scene, {one: files})


def test_what_the_repository_has_lost_is_read_from_the_files(scene: Scene) -> None:
    """If the repository does not have it any more, the worktree may."""
    one, files = borrowed(scene)
    removes_objects(scene)
    with scene.snapshots() as snapshots:
        snapshots.track(session="ses_two")
        snapshots._upkeep.stop()
        assert snapshots.status().trouble == ""
    assert_comes_back(scene, {one: files})


def test_what_is_lost_for_good_is_said(scene: Scene) -> None:
    """If neither the repository nor the disk has a file any more, nothing is made up for it."""
    one, files = borrowed(scene)
    removes_objects(scene)
    scene.write("loose", b"changed before it could be copied\n")
    with scene.snapshots() as snapshots:
        snapshots.track(session="ses_two")
        snapshots._upkeep.stop()
        snapshots._upkeep.trouble = "something else"
        assert "1 object" in snapshots.status().trouble
        assert snapshots.status().protection is Protection.FULL
    disk = files_on_disk(scene.root)
    with scene.snapshots() as snapshots:
        (result,) = snapshots.restore(one)
        assert result.outcome is Outcome.SKIPPED
        assert "lacks the object" in result.reason
        assert files_on_disk(scene.root) == disk
        held = {
            name: snapshots.read(id.hex())
            for name, mode, id in parse_tree(snapshots.read(one))
            if mode != 0o40000 and name != b"loose"
        }
        assert held == {name: files[name][1] for name in held}
        assert snapshots.track().id != one


def test_a_linked_worktree_outlives_the_main_one(scene: Scene) -> None:
    """Snapshots of a worktree do not depend on the repository that it is linked to."""
    linked = scene.folder / "linked"
    scene.git("worktree", "add", "-q", str(linked), "-b", "linked")
    with scene.snapshots() as main, scene.snapshots(linked) as snapshots:
        main.track(session="ses_one")
        one, files = snapshots.track(session="ses_two"), files_on_disk(linked)
    shutil.rmtree(scene.root)
    (linked / "big").write_bytes(b"changed\n")
    with scene.snapshots(linked) as snapshots:
        snapshots.restore(one.id)
    assert files_on_disk(linked) == files


# Letting go


def test_only_what_is_released_goes(scene: Scene) -> None:
    """A collection takes what was released, and of the rest nothing."""
    with scene.snapshots() as snapshots:
        scene.write("untracked", b"only in the first\n")
        first = snapshots.track(session="ses_one")
        scene.write("untracked", b"in the second and third\n")
        second, files = snapshots.track(session="ses_two"), files_on_disk(scene.root)
        states = snapshots.capture([b"untracked"], session="ses_two")
        edit(scene)
        third, more = snapshots.track(session="ses_two"), files_on_disk(scene.root)
        snapshots.release("ses_one")
    _collect(scene)
    with scene.snapshots() as snapshots:
        with pytest.raises(SnapshotNotFound):
            snapshots.restore(first.id)
        with pytest.raises(ObjectMissing):
            snapshots.read(first.id)
        captured = states[b"untracked"]
        assert isinstance(captured, Present)
        assert snapshots.read(captured.blob) == b"in the second and third\n"
    removes_the_repository(scene)
    assert_comes_back(scene, {second.id: files, third.id: more})


def _collect(scene: Scene) -> None:
    """Collect all that may ever be, however little it is and however lately it was released."""
    with pytest.MonkeyPatch.context() as patch, store_of(scene) as store:
        patch.setattr(gc, "DEAD_SHARE", 0.0)
        patch.setattr(gc, "RELEASED_SECONDS", 0)
        store.collect(keep_taken_for=0)


def test_others_may_collect_while_snapshots_are_taken(scene: Scene) -> None:
    """A collection by another process takes nothing that the tree in memory goes on using."""
    kept = {}
    with scene.snapshots() as snapshots:
        snapshots.track()
        for number in range(4):
            _collect(scene)
            scene.write("more", b"%d\n" % number)
            session = "ses_one" if number % 2 else None
            taken = snapshots.track(session=session)
            if session is not None:
                kept[taken.id] = files_on_disk(scene.root)
    _collect(scene)
    assert_comes_back(scene, kept)


def test_a_captured_file_outlives_everything(scene: Scene) -> None:
    """The content of a file that no snapshot ever held is there as long as its session."""
    scene.write(".git/info/exclude", b"secret\n")
    scene.write("secret", b"the only copy\n")
    with scene.snapshots() as snapshots:
        state = snapshots.capture([b"secret"], session="ses_one")[b"secret"]
        scene.at("secret").unlink()
        snapshots.track()
    _collect(scene)
    assert isinstance(state, Present)
    with store_of(scene) as store:
        assert store.read(bytes.fromhex(state.blob)) == (BLOB, b"the only copy\n")
        store.release("ses_one")
        store.flush()
    _collect(scene)
    with store_of(scene) as store, pytest.raises(ObjectMissing):
        store.read(bytes.fromhex(state.blob))


def test_what_is_remembered_is_never_of_what_is_gone(scene: Scene) -> None:
    """A next process does not count on files whose contents were collected since."""
    with scene.snapshots() as snapshots:
        one, files = snapshots.track(session="ses_one"), files_on_disk(scene.root)
    with store_of(scene) as store:
        for holder in ("ses_one", snapshots._opened.holder):
            assert store.head(holder) is not None
            store.release(holder)
        store.flush()
    _collect(scene)
    with scene.snapshots() as snapshots:
        with pytest.raises(SnapshotNotFound):
            snapshots.restore(one.id)
        assert snapshots.track(session="ses_two").id == one.id
    removes_the_repository(scene)
    assert_comes_back(scene, {one.id: files})
