"""What a killed process of kedge 0.1 left: snapshots whose objects it had only borrowed."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kedge.domain.errors import ObjectMissing, SnapshotTimeout
from kedge.snapshot.objects.alternates import Borrowed
from kedge.snapshot.objects.formats import BLOB, EMPTY_TREE, TREE, blob_id, encode_tree
from kedge.snapshot.objects.packs import Packs
from kedge.snapshot.objects.store import ObjectStore
from tests.snapshot.objects_git import FILE, check, git, read_files

CONTENTS = {b"f%d" % n: b"content %d" % n for n in range(50)}


def run(folder: Path, *arguments: str) -> None:
    """Run git in a user's repository."""
    who = ["-c", "user.name=x", "-c", "user.email=x@localhost"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A user's repository, half packed."""
    folder = tmp_path / "user"
    folder.mkdir()
    run(folder, "init", "-q")
    for number, (name, content) in enumerate(CONTENTS.items()):
        (folder / os.fsdecode(name)).write_bytes(content)
        if number == len(CONTENTS) // 2:
            run(folder, "add", "-A")
            run(folder, "commit", "-q", "-m", "half")
            run(folder, "repack", "-adq")
    run(folder, "add", "-A")
    run(folder, "commit", "-q", "-m", "whole")
    return folder


def leave(store: Path, objects: Path) -> tuple[bytes, Path]:
    """Keep a tree whose blobs were never put, as 0.1 did; gives the tree, and the note of it."""
    with ObjectStore(store) as opened:
        entries = [(name, FILE, blob_id(each)) for name, each in CONTENTS.items()]
        tree = opened.put(TREE, encode_tree(entries))
        opened.keep("a", files=tree, notes=EMPTY_TREE, base=opened.put(BLOB, b"644 755"))
    note = store / "borrowing" / f"{objects.stat().st_ino:016x}-0"
    note.parent.mkdir(exist_ok=True)
    note.write_bytes(bytes(objects))
    (store / "objects/info/alternates").write_bytes(bytes(objects) + b"\n")
    return tree, note


def test_they_are_read_by_everybody(tmp_path: Path, repository: Path) -> None:
    """Until they are copied such snapshots can be read, here and by git."""
    tree, _ = leave(tmp_path / "s", repository / ".git/objects")
    with ObjectStore(tmp_path / "s") as store:
        assert store.owes()
        assert read_files(store, tree) == CONTENTS
        assert store.exists(blob_id(b"content 3"))
        assert not store.has(blob_id(b"content 3"))
        assert not store.exists(bytes(20))
    assert git(tmp_path / "s", "cat-file", "-p", blob_id(b"content 49").hex()) == "content 49"


def test_copied_snapshots_outlive_the_repository(tmp_path: Path, repository: Path) -> None:
    """Once copied nothing of the user's is needed, and nothing says that it is."""
    tree, _ = leave(tmp_path / "s", repository / ".git/objects")
    with ObjectStore(tmp_path / "s") as store:
        assert store.settle_debts() == set()
        assert not store.owes()
        assert not (tmp_path / "s/objects/info/alternates").exists()
        shutil.rmtree(repository)
        assert read_files(store, tree) == CONTENTS
    check(tmp_path / "s")


def test_what_the_user_deleted_meanwhile_is_named(tmp_path: Path, repository: Path) -> None:
    """Objects that are gone are reported, the rest is copied, and the folder stays listed."""
    tree, note = leave(tmp_path / "s", repository / ".git/objects")
    run(repository, "reset", "-q", "--hard", "HEAD~1")
    run(repository, "reflog", "expire", "--expire=now", "--all")
    run(repository, "gc", "-q", "--prune=now")
    with ObjectStore(tmp_path / "s") as store:
        lost = store.settle_debts()
        assert lost
        assert note.exists()
        for content in CONTENTS.values():
            assert store.has(blob_id(content)) == (blob_id(content) not in lost)
        for content in CONTENTS.values():
            store.put(BLOB, content)
        store.flush()
        assert store.settle_debts() == set()
        assert read_files(store, tree) == CONTENTS
    check(tmp_path / "s")


def test_a_damaged_object_is_not_copied(tmp_path: Path, repository: Path) -> None:
    """A corrupt object of the user's is lost, not copied as it is."""
    leave(tmp_path / "s", repository / ".git/objects")
    loose = blob_id(b"content 49").hex()
    path = repository / ".git/objects" / loose[:2] / loose[2:]
    path.chmod(0o600)
    path.write_bytes(b"rubbish")
    with ObjectStore(tmp_path / "s") as store:
        assert store.settle_debts() == {blob_id(b"content 49")}


def test_a_repository_that_vanished_has_nothing(tmp_path: Path, repository: Path) -> None:
    """A folder that was deleted or unmounted is no error until an object is needed."""
    tree, _ = leave(tmp_path / "s", repository / ".git/objects")
    shutil.rmtree(repository)
    with ObjectStore(tmp_path / "s") as store:
        with pytest.raises(ObjectMissing):
            read_files(store, tree)
        assert len(store.settle_debts()) == 50


def test_what_the_repository_borrows_itself_is_copied(tmp_path: Path, repository: Path) -> None:
    """A clone that shares its objects is no obstacle."""
    subprocess.run(
        ["git", "clone", "-q", "--shared", str(repository), str(tmp_path / "clone")], check=True
    )
    tree, _ = leave(tmp_path / "s", tmp_path / "clone/.git/objects")
    with ObjectStore(tmp_path / "s") as store:
        assert store.settle_debts() == set()
        shutil.rmtree(tmp_path / "clone")
        assert read_files(store, tree) == CONTENTS


def test_a_living_process_is_left_to_pay_itself(tmp_path: Path, repository: Path) -> None:
    """A process of 0.1 that still runs keeps its note, and the folder stays an alternate."""
    tree, note = leave(tmp_path / "s", repository / ".git/objects")
    other = note.with_name("another-0")
    other.write_bytes(b'"odd\nname"')
    with note.open() as held, ObjectStore(tmp_path / "s") as store:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert store.owes()
        assert store.settle_debts() == set()
        assert note.exists()
        assert not other.exists()
        assert not store.owes()
        assert read_files(store, tree) == CONTENTS
    assert git(tmp_path / "s", "cat-file", "-t", blob_id(b"content 3").hex()) == "blob\n"
    with ObjectStore(tmp_path / "s") as store:
        assert store.owes()


def test_folders_are_looked_up_once_for_all_objects(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To copy many objects neither packs nor notes are opened again for each."""
    leave(tmp_path / "s", repository / ".git/objects")
    looks = list[object]()
    for kind, name in ((Packs, "reopen"), (Borrowed, "_folders")):
        original = getattr(kind, name)

        def counted(self: object, look: Callable[[object], object] = original) -> object:
            looks.append(look)
            return look(self)

        monkeypatch.setattr(kind, name, counted)
    with ObjectStore(tmp_path / "s") as store:
        assert store.settle_debts() == set()
        assert 0 < len(looks) < 5


def test_copying_ends_when_there_is_no_time(tmp_path: Path, repository: Path) -> None:
    """Nothing is forgotten then, and the next try copies the rest."""
    tree, note = leave(tmp_path / "s", repository / ".git/objects")
    with ObjectStore(tmp_path / "s") as store:
        with pytest.raises(SnapshotTimeout):
            store.settle_debts(deadline=0)
        assert note.exists()
        assert store.settle_debts() == set()
        shutil.rmtree(repository)
        assert read_files(store, tree) == CONTENTS
