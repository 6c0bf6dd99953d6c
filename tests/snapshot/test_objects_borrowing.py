"""Borrowing from a user's repository, and becoming independent of it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kedge.domain.errors import ObjectMissing
from kedge.snapshot.objects import adopting
from kedge.snapshot.objects.borrowing import Lenders
from kedge.snapshot.objects.formats import BLOB, EMPTY_TREE, TREE, blob_id, encode_tree
from kedge.snapshot.objects.store import LENT_SECONDS, ObjectStore
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


def keep_borrowed(store: ObjectStore, session: str) -> bytes:
    """Keep a tree whose blobs were never put."""
    tree = store.put(
        TREE, encode_tree([(name, FILE, blob_id(each)) for name, each in CONTENTS.items()])
    )
    store.keep(session, files=tree, notes=EMPTY_TREE, base=store.put(BLOB, b"644 755"))
    store.flush()
    return tree


def ignore(done: int, total: int) -> None:
    """Do not care about progress."""


def test_borrowed_objects_are_read_by_everybody(tmp_path: Path, repository: Path) -> None:
    """A snapshot of borrowed objects is readable here, in other processes and by git."""
    ids = [blob_id(content) for content in CONTENTS.values()]
    with ObjectStore(tmp_path / "s") as store:
        assert store.has_borrowed(ids) == set()
        assert not store.exists(ids[0])
        store.borrow(repository / ".git/objects")
        store.borrow(repository / ".git/objects")
        assert store.has_borrowed([*ids, bytes(20)]) == set(ids)
        assert store.exists(ids[0])
        tree = keep_borrowed(store, "a")
        assert read_files(store, tree) == CONTENTS
        with ObjectStore(tmp_path / "s") as other:
            assert read_files(other, tree) == CONTENTS
            assert other.usage().lenders == (repository / ".git/objects",)
    assert git(tmp_path / "s", "cat-file", "-p", ids[-1].hex()) == "content 49"


@pytest.mark.parametrize("has_git", [True, False])
def test_adopted_snapshots_outlive_the_repository(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch, has_git: bool
) -> None:
    """Once adopted, the user's repository may go; progress is told to the end."""
    monkeypatch.setattr(adopting, "AT_A_TIME", 20)
    told: list[tuple[int, int]] = []
    with ObjectStore(tmp_path / "s") as store:
        store.borrow(repository / ".git/objects")
        tree = keep_borrowed(store, "a")
        with monkeypatch.context() as patch:
            if not has_git:
                patch.setenv("PATH", str(tmp_path))
            adopted = store.adopt([tree], lambda done, total: told.append((done, total)))
        assert (adopted.copied, adopted.missing) == (50, frozenset())
        assert told == [(0, 50), (20, 50), (40, 50), (50, 50)]
        assert store.usage().lenders == ()
        assert not (tmp_path / "s/objects/info/alternates").exists()
        shutil.rmtree(repository)
        assert read_files(store, tree) == CONTENTS
        assert store.adopt([tree], ignore).copied == 0
    check(tmp_path / "s")


def test_what_the_user_deleted_meanwhile_is_named(tmp_path: Path, repository: Path) -> None:
    """Objects that are gone are reported, the rest is copied, and the lender stays listed."""
    with ObjectStore(tmp_path / "s") as store:
        store.borrow(repository / ".git/objects")
        tree = keep_borrowed(store, "a")
        run(repository, "reset", "-q", "--hard", "HEAD~1")
        run(repository, "reflog", "expire", "--expire=now", "--all")
        run(repository, "gc", "-q", "--prune=now")
        adopted = store.adopt([tree], ignore)
        assert adopted.missing
        assert adopted.copied == 50 - len(adopted.missing)
        assert store.usage().lenders != ()
        for name, content in CONTENTS.items():
            if blob_id(content) in adopted.missing:
                with pytest.raises(ObjectMissing):
                    store.read(blob_id(content))
            else:
                assert store.read(blob_id(content)) == (BLOB, content), name
        for content in CONTENTS.values():
            store.put(BLOB, content)
        store.flush()
        assert store.adopt([tree], ignore).missing == frozenset()
    check(tmp_path / "s")


def test_a_damaged_repository_lends_what_it_can(tmp_path: Path, repository: Path) -> None:
    """A corrupt object of the user's is missing, not copied as it is."""
    loose = blob_id(b"content 49").hex()
    path = repository / ".git/objects" / loose[:2] / loose[2:]
    path.chmod(0o600)
    path.write_bytes(b"rubbish")
    with ObjectStore(tmp_path / "s") as store:
        store.borrow(repository / ".git/objects")
        tree = keep_borrowed(store, "a")
        adopted = store.adopt([tree], ignore)
        assert adopted.missing == {blob_id(b"content 49")}


def test_a_repository_that_vanishes_lends_nothing(tmp_path: Path, repository: Path) -> None:
    """A lender that was deleted or unmounted is no error until an object is needed."""
    with ObjectStore(tmp_path / "s") as store:
        store.borrow(repository / ".git/objects")
        tree = keep_borrowed(store, "a")
        store.borrow(tmp_path / "never was")
    shutil.rmtree(repository)
    with ObjectStore(tmp_path / "s") as store:
        with pytest.raises(ObjectMissing):
            read_files(store, tree)
        assert len(store.adopt([tree], ignore).missing) == 50


def test_lenders_that_borrow_themselves(tmp_path: Path, repository: Path) -> None:
    """A clone that shares its objects lends what it shares too."""
    subprocess.run(
        ["git", "clone", "-q", "--shared", str(repository), str(tmp_path / "clone")], check=True
    )
    with ObjectStore(tmp_path / "s") as store:
        store.borrow(tmp_path / "clone/.git/objects")
        tree = keep_borrowed(store, "a")
        assert read_files(store, tree) == CONTENTS
        assert store.adopt([tree], ignore).missing == frozenset()
        shutil.rmtree(tmp_path / "clone")
        assert read_files(store, tree) == CONTENTS


@pytest.mark.parametrize("name", [b"\xff\xfe", b'"quoted"', b"#hash", b"new\nline", b"sp ace"])
def test_lenders_with_odd_names(tmp_path: Path, repository: Path, name: bytes) -> None:
    """Whatever the user's folder is called, its objects are found, by git too."""
    folder = repository.rename(tmp_path / os.fsdecode(name))
    with ObjectStore(tmp_path / "s") as store:
        store.borrow(folder / ".git/objects")
        tree = keep_borrowed(store, "a")
        assert read_files(store, tree) == CONTENTS
        git(tmp_path / "s", "cat-file", "-e", blob_id(b"content 3").hex())
        assert store.adopt([tree], ignore).missing == frozenset()


def test_one_process_giving_back_leaves_the_others_lender(tmp_path: Path, repository: Path) -> None:
    """A folder is listed as long as anybody still needs it."""
    with ObjectStore(tmp_path / "s") as one, ObjectStore(tmp_path / "s") as two:
        one.borrow(repository / ".git/objects")
        two.borrow(repository / ".git/objects")
        two.adopt([], ignore)
        tree = keep_borrowed(one, "a")
        assert read_files(two, tree) == CONTENTS


def test_a_dead_borrowers_lender_goes_when_nothing_is_lacking(
    tmp_path: Path, repository: Path
) -> None:
    """A collection removes what nobody needs any more, but never a lender that is needed."""
    with ObjectStore(tmp_path / "s") as store:
        store.borrow(repository / ".git/objects")
        tree = keep_borrowed(store, "a")
    for note in (tmp_path / "s/borrowing").iterdir():
        os.utime(note, (note.stat().st_mtime - LENT_SECONDS - 1,) * 2)
    with ObjectStore(tmp_path / "s") as store:
        assert store.collect(keep_taken_for=0).lacking == 50
        assert store.usage().lenders != ()
        store.adopt([tree], ignore)
        assert store.usage().lenders != ()
        assert store.collect(keep_taken_for=0).lacking == 0
        assert store.usage().lenders == ()
        shutil.rmtree(repository)
        assert read_files(store, tree) == CONTENTS
    check(tmp_path / "s")


def test_a_note_may_go_while_a_collection_looks(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process gives back between the listing of the notes and the look at them."""
    with ObjectStore(tmp_path / "s") as store, ObjectStore(tmp_path / "s") as other:
        other.borrow(repository / ".git/objects")
        listed = Lenders._all_notes

        def and_then_they_go(lenders: Lenders) -> list[Path]:
            notes = listed(lenders)
            for note in notes:
                note.unlink()
            return notes

        with monkeypatch.context() as patched:
            patched.setattr(Lenders, "_all_notes", and_then_they_go)
            assert store.collect(keep_taken_for=0).lacking == 0


def test_adopting_can_be_stopped(tmp_path: Path, repository: Path) -> None:
    """An error from the progress callback ends it; what was copied stays, and it can go on."""

    class StoppedError(Exception):
        """The test had enough."""

    def stop(done: int, total: int) -> None:
        raise StoppedError

    with ObjectStore(tmp_path / "s") as store:
        store.borrow(repository / ".git/objects")
        tree = keep_borrowed(store, "a")
        with pytest.raises(StoppedError):
            store.adopt([tree], stop)
        assert store.usage().lenders != ()
        assert store.adopt([tree], ignore).copied == 50
