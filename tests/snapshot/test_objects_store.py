"""The object store: what goes in comes out, in this process, in others, and after it was sealed."""

import os
import resource
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kedge.domain.errors import ObjectMissing, SnapshotError, SnapshotStoreFull
from kedge.snapshot.objects import formats, journal
from kedge.snapshot.objects import journals as writing
from kedge.snapshot.objects.formats import BLOB, EMPTY_TREE, TREE, encode_tree
from kedge.snapshot.objects.store import ObjectStore
from tests.snapshot.objects_git import FILE, check, git, keep_files, put_files, read_files


def journals(folder: Path) -> list[Path]:
    """The journals of a store."""
    return sorted((folder / "journals").glob("*.journal"))


def packs(folder: Path) -> list[Path]:
    """The packs of a store."""
    return sorted((folder / "objects/pack").glob("*.pack"))


def test_objects_are_readable_at_every_stage(tmp_path: Path) -> None:
    """An object reads the same from the buffer, from the journal and from the pack."""
    with ObjectStore(tmp_path / "s") as store:
        id = store.put(BLOB, b"content")
        assert store.read(id) == (BLOB, b"content")
        store.flush()
        assert store.read(id) == (BLOB, b"content")
    with ObjectStore(tmp_path / "s") as store:
        assert store.read(id) == (BLOB, b"content")
    assert git(tmp_path / "s", "cat-file", "-p", id.hex()) == "content"
    check(tmp_path / "s")


def test_every_kind_and_size_is_packed(tmp_path: Path) -> None:
    """Empty, small and large objects of all kinds come back from a pack through git."""
    contents = [b"", b"x", b"y" * 15, b"z" * 16, os.urandom(70_000), b"long " * 500_000]
    with ObjectStore(tmp_path / "s") as store:
        tree = keep_files(store, "a", {b"f%d" % n: each for n, each in enumerate(contents)})
        store.keep("b", files=EMPTY_TREE, notes=tree, base=store.put(BLOB, b"600 700"))
    check(tmp_path / "s")
    for content in contents:
        assert git(tmp_path / "s", "cat-file", "-s", formats.blob_id(content).hex()) == (
            f"{len(content)}\n"
        )


def test_missing_objects_are_named(tmp_path: Path) -> None:
    """An object that is nowhere is an error with its id; the empty tree is always there."""
    with ObjectStore(tmp_path / "s") as store:
        with pytest.raises(ObjectMissing, match="0" * 40):
            store.read(bytes(20))
        assert store.read(EMPTY_TREE) == (TREE, b"")


def test_nobody_else_may_look(tmp_path: Path) -> None:
    """Whatever the umask is, folders and files of the store are its owner's only."""
    before = os.umask(0)
    try:
        with ObjectStore(tmp_path / "s") as store:
            keep_files(store, "a", {b"f": b"secret"})
            store.flush()
            open_modes = {path.stat().st_mode for path in (tmp_path / "s").rglob("*")}
    finally:
        os.umask(before)
    modes = open_modes | {path.stat().st_mode for path in (tmp_path / "s").rglob("*")}
    assert {stat.S_IMODE(mode) for mode in modes} == {0o700, 0o600, 0o400}


def test_names_that_git_dislikes_are_no_complaint(tmp_path: Path) -> None:
    """Snapshots hold what people have, so fsck is told not to judge names and contents."""
    with ObjectStore(tmp_path / "s") as store:
        blob = store.put(BLOB, b'[submodule "../x"]\n\turl = -bad\n\tpath = -x\n[broken')
        lines = store.put(BLOB, b"*.x " + b"a" * 5000)
        tree = store.put(
            TREE,
            encode_tree(
                [
                    (b".gitmodules", FILE, blob),
                    (b".gitattributes", FILE, lines),
                    (b".GIT", FILE, blob),
                    (b".gitignore", 0o120000, blob),
                ]
            ),
        )
        store.keep("a", files=tree, notes=EMPTY_TREE, base=blob)
    check(tmp_path / "s")


def test_flush_is_one_write_that_survives(tmp_path: Path) -> None:
    """What was flushed is in the journal; what was only put is not."""
    store = ObjectStore(tmp_path / "s")
    flushed = keep_files(store, "a", {b"f": b"1"})
    store.flush()
    unflushed = put_files(store, {b"f": b"2"})
    with ObjectStore(tmp_path / "s") as other:
        assert read_files(other, flushed) == {b"f": b"1"}
        assert [keep.held.files for keep in other.chain("a")] == [flushed]
        with pytest.raises(ObjectMissing):
            other.read(unflushed)
    store.close()


def test_another_process_reads_on_while_a_journal_is_sealed(tmp_path: Path) -> None:
    """A reader finds an object wherever its writer has just moved it."""
    with ObjectStore(tmp_path / "s") as reader:
        writer = ObjectStore(tmp_path / "s")
        ids = [writer.put(BLOB, b"%d" % n) for n in range(10)]
        writer.flush()
        assert reader.read(ids[0]) == (BLOB, b"0")
        writer.close()
        assert [reader.read(id)[1] for id in ids] == [b"%d" % n for n in range(10)]


def test_a_full_journal_is_sealed_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal over the limit becomes a pack, and a new one begins with the newest keep."""
    monkeypatch.setattr(writing, "SEAL_OBJECTS", 20)
    with ObjectStore(tmp_path / "s") as store:
        first = journals(tmp_path / "s")
        trees = []
        for n in range(30):
            trees.append(keep_files(store, "a", {b"f": b"%d" % n}))
            store.flush()
            assert read_files(store, trees[n // 2]) == {b"f": b"%d" % (n // 2)}
        store.settle()
        assert store.problems() == []
        assert len(packs(tmp_path / "s")) > 2
        assert len(journals(tmp_path / "s")) == 1
        assert journals(tmp_path / "s") != first
        assert [keep.held.files for keep in store.chain("a")] == trees[::-1]
    check(tmp_path / "s")


def test_large_buffers_are_written_early(tmp_path: Path) -> None:
    """Objects beyond the buffer's size leave memory before the flush, and are read back."""
    with ObjectStore(tmp_path / "s") as store:
        contents = [bytes([n]) * (3 << 20) for n in range(4)]
        ids = [store.put(BLOB, content) for content in contents]
        assert journals(tmp_path / "s")[0].stat().st_size > 6 << 20
        assert [store.read(id)[1] for id in ids] == contents
        store.flush()
    check(tmp_path / "s")


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Let the system refuse to write more, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A flush that finds the disk full says so, and the next one writes what was put."""
    with ObjectStore(tmp_path / "s") as store:
        first = keep_files(store, "a", {b"f": b"1"})
        store.flush()
        large = os.urandom(3 << 20)
        second = keep_files(store, "a", {b"f": large})
        with files_no_larger_than(2 << 20):
            for _ in range(2):
                with pytest.raises(SnapshotStoreFull):
                    store.flush()
            assert read_files(store, second) == {b"f": large}
        store.flush()
        with ObjectStore(tmp_path / "s") as other:
            assert [keep.held.files for keep in other.chain("a")] == [second, first]
            assert read_files(other, second) == {b"f": large}
    check(tmp_path / "s")


def put_all(store: ObjectStore, contents: list[bytes]) -> None:
    """Put blobs until one is refused."""
    for content in contents:
        store.put(BLOB, content)


def test_a_full_disk_in_the_middle_of_a_snapshot_loses_nothing(tmp_path: Path) -> None:
    """Objects that were written early are made safe before a later flush says that all is."""
    with ObjectStore(tmp_path / "s") as store:
        early = [store.put(BLOB, bytes([n]) * (3 << 20)) for n in range(3)]
        more = [bytes([n]) * (3 << 20) for n in range(3, 9)]
        with files_no_larger_than(7 << 20), pytest.raises(SnapshotStoreFull):
            put_all(store, more)
        last = store.put(BLOB, b"last")
        store.flush()
        with ObjectStore(tmp_path / "s") as other:
            assert [len(other.read(id)[1]) for id in (*early, last)] == [3 << 20] * 3 + [4]
    check(tmp_path / "s")


def test_a_failed_sync_is_not_believed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a sync failed, everything that it should have saved is written to another journal."""
    with ObjectStore(tmp_path / "s") as store:
        keep_files(store, "a", {b"f": b"1"})
        store.flush()
        (before,) = journals(tmp_path / "s")
        tree = keep_files(store, "a", {b"f": b"2"})

        def fail(fd: int) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(journal, "sync", fail)
            with pytest.raises(SnapshotError, match="Input/output error"):
                store.flush()
        store.flush()
        held = [path for path in journals(tmp_path / "s") if path != before]
        assert formats.blob_id(b"2") in held[0].read_bytes()
        with ObjectStore(tmp_path / "s") as other:
            assert read_files(other, tree) == {b"f": b"2"}
    check(tmp_path / "s")


def test_threads_share_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many threads put, keep, flush and read at once while journals are sealed."""
    monkeypatch.setattr(writing, "SEAL_OBJECTS", 50)
    failures: list[BaseException] = []

    def work(store: ObjectStore, number: int) -> None:
        try:
            for n in range(40):
                tree = keep_files(store, f"ses_{number}", {b"f": b"%d %d" % (number, n)})
                store.flush()
                assert read_files(store, tree) == {b"f": b"%d %d" % (number, n)}
        except BaseException as error:
            failures.append(error)
            raise

    with ObjectStore(tmp_path / "s") as store:
        threads = [threading.Thread(target=work, args=(store, number)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert [len(list(store.chain(f"ses_{number}"))) for number in range(4)] == [40] * 4
    check(tmp_path / "s")


def test_a_forked_child_has_a_journal_of_its_own(tmp_path: Path) -> None:
    """A child writes what it had buffered and more, without touching its parent's journal."""
    store = ObjectStore(tmp_path / "s")
    before = keep_files(store, "a", {b"f": b"before"})
    store.flush()
    (parents,) = journals(tmp_path / "s")
    child = os.fork()
    if not child:
        code = 1
        try:
            keep_files(store, "b", {b"f": b"child"})
            store.flush()
            assert parents.exists()
            assert len(journals(tmp_path / "s")) == 2
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    after = keep_files(store, "a", {b"f": b"after"})
    store.close()
    with ObjectStore(tmp_path / "s") as other:
        other.settle()
        assert [keep.held.files for keep in other.chain("a")] == [after, before]
        assert [read_files(other, keep.held.files) for keep in other.chain("b")] == [
            {b"f": b"child"}
        ]
    check(tmp_path / "s")


def test_a_closed_store_refuses(tmp_path: Path) -> None:
    """After the end there is an error, not a journal that nobody seals; closing twice is fine."""
    store = ObjectStore(tmp_path / "s")
    store.close()
    store.close()
    with pytest.raises(SnapshotError, match="closed"):
        store.put(BLOB, b"late")
    with pytest.raises(SnapshotError, match="closed"):
        store.read(bytes(20))


def test_a_store_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    """A path where no folder can be is an error for the operator."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SnapshotError, match="opening"):
        ObjectStore(tmp_path / "file" / "s")
