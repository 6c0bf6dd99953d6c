"""What a journal holds after its writer died: all that was flushed, and nothing that is half."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.domain.errors import ObjectMissing
from kedge.snapshot.objects import journal as records
from kedge.snapshot.objects.formats import BLOB, blob_id
from kedge.snapshot.objects.journal import MAGIC, Journal, Tip
from kedge.snapshot.objects.store import ObjectStore
from tests.snapshot.objects_git import check, keep_files, put_files, read_files


def abandoned(folder: Path, *, flushes: int) -> tuple[Path, list[bytes], list[int]]:
    """A store whose writer is gone; its journal, the trees kept, and where each flush ended."""
    store = ObjectStore(folder)
    trees, ends = [], []
    for n in range(flushes):
        trees.append(keep_files(store, "a", {b"f": b"content %d" % n}))
        store.flush()
        (path,) = (folder / "journals").iterdir()
        ends.append(written(path))
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    store.close()
    shutil.rmtree(folder)
    copy.rename(folder)
    (path,) = (folder / "journals").iterdir()
    return path, trees, ends


def written(path: Path) -> int:
    """Where the last record of a journal ends."""
    with path.open("rb") as file:
        journal = Journal(path, file.fileno())
        journal.verify()
        return journal.end


def kept(folder: Path) -> list[bytes]:
    """The trees that a store has for the session, oldest first, each wholly readable."""
    with ObjectStore(folder) as store:
        trees = [keep.files for keep in store.chain("a")][::-1]
        assert [read_files(store, tree) for tree in trees] == [
            {b"f": b"content %d" % n} for n in range(len(trees))
        ]
    check(folder)
    return trees


def test_a_dead_writers_journal_is_sealed(tmp_path: Path) -> None:
    """Whoever opens the store next finds all that was flushed, and git finds it too."""
    _, trees, _ = abandoned(tmp_path / "s", flushes=3)
    assert kept(tmp_path / "s") == trees


def taken_in(path: Path, content: bytes) -> tuple[int, dict[str, Tip], str]:
    """What recovery makes of a journal with this content."""
    path.write_bytes(content)
    with path.open("rb") as file:
        journal = Journal(path, file.fileno())
        journal.verify()
        return journal.end, journal.refs, journal.why_damaged()


def test_cut_anywhere_in_the_last_flush(tmp_path: Path) -> None:
    """Wherever the last write was cut off, the flushes before it count and it does not."""
    path, _, ends = abandoned(tmp_path / "s", flushes=2)
    content = path.read_bytes()[: ends[1] + 500]
    _, first, _ = taken_in(path, content[: ends[0]])
    _, both, _ = taken_in(path, content)
    assert first != both
    for cut in range(ends[0], ends[1]):
        for rest in (b"", bytes(1000)):
            torn = content[:cut] + rest
            if torn[: ends[1]] == content[: ends[1]]:
                continue  # The last bytes were zeros: all of it is there.
            end, refs, why_damaged = taken_in(path, torn)
            assert ends[0] <= end <= cut
            assert (refs, why_damaged) == (first, "")


def test_any_wrong_byte_in_the_last_flush(tmp_path: Path) -> None:
    """Pages that a crash lost or mixed up make the last flush void, not wrong."""
    path, _, ends = abandoned(tmp_path / "s", flushes=2)
    content = path.read_bytes()[: ends[1] + 500]
    _, first, _ = taken_in(path, content[: ends[0]])
    for at in range(ends[0], ends[1]):
        for wrong in {0, 0xFF, content[at] ^ 1} - {content[at]}:
            mixed = content[:at] + bytes([wrong]) + content[at + 1 :]
            end, refs, why_damaged = taken_in(path, mixed)
            assert ends[0] <= end <= at
            assert (refs, why_damaged) == (first, "")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.99])
def test_a_torn_journal_is_sealed_without_its_tail(tmp_path: Path, share: float) -> None:
    """A store whose last write was torn opens with the snapshots before it."""
    path, trees, ends = abandoned(tmp_path / "s", flushes=2)
    cut = ends[0] + int((ends[1] - ends[0]) * share)
    path.write_bytes(path.read_bytes()[:cut] + bytes(500))
    assert kept(tmp_path / "s") == trees[:1]


def test_damage_further_up_is_said_and_nothing_is_cut_off(tmp_path: Path) -> None:
    """A byte that went wrong after it was synced is no torn tail: the rest stays readable."""
    path, trees, _ = abandoned(tmp_path / "s", flushes=3)
    content = bytearray(path.read_bytes())
    content[content.index(b"content 1")] ^= 0x55
    path.write_bytes(content)
    with ObjectStore(tmp_path / "s") as store:
        (problem,) = store.problems()
        assert "damaged at byte" in problem
        assert [keep.files for keep in store.chain("a")] == trees[::-1]
        assert read_files(store, trees[2]) == {b"f": b"content 2"}
        with pytest.raises(Exception, match=blob_id(b"content 1").hex()):
            read_files(store, trees[1])
        later = keep_files(store, "a", {b"f": b"later"})
        store.flush()
        assert store.collect(keep_taken_for=0).lacking == 0
    assert bytes(content) == path.read_bytes()
    with ObjectStore(tmp_path / "s") as store:
        assert next(store.chain("a")).files == later


@settings(max_examples=10)
@given(tail=st.binary(max_size=200))
def test_any_rubbish_after_the_end(tmp_path_factory: pytest.TempPathFactory, tail: bytes) -> None:
    """Whatever stands behind the last whole record is not taken for one."""
    folder = tmp_path_factory.mktemp("rubbish")
    path, trees, ends = abandoned(folder / "s", flushes=1)
    path.write_bytes(path.read_bytes()[: ends[0]] + tail)
    assert kept(folder / "s") == trees


@pytest.mark.parametrize("content", [b"", MAGIC[:5], MAGIC, bytes(4096), b"rubbish" * 100])
def test_a_journal_that_was_barely_begun(tmp_path: Path, content: bytes) -> None:
    """A journal without a record is removed."""
    with ObjectStore(tmp_path / "s"):
        pass
    (tmp_path / "s/journals/1-x.journal").write_bytes(content)
    assert kept(tmp_path / "s") == []


def test_sealing_again_is_harmless(tmp_path: Path) -> None:
    """A crash after the pack and the refs but before the journal went changes nothing."""
    path, trees, _ = abandoned(tmp_path / "s", flushes=2)
    content = path.read_bytes()
    assert kept(tmp_path / "s") == trees
    packs = sorted((tmp_path / "s/objects/pack").iterdir())
    path.write_bytes(content)
    assert kept(tmp_path / "s") == trees
    assert sorted((tmp_path / "s/objects/pack").iterdir()) == packs


def test_unfinished_packs_do_not_matter(tmp_path: Path) -> None:
    """What a crash while sealing left is overwritten, or removed when it is old."""
    path, trees, _ = abandoned(tmp_path / "s", flushes=1)
    folder = tmp_path / "s/objects/pack"
    (folder / f"tmp_kedge_{path.stem}_pack").write_bytes(b"half")
    (folder / f"tmp_kedge_{path.stem}_idx").write_bytes(b"half")
    assert kept(tmp_path / "s") == trees


def test_a_living_writers_journal_is_left_alone(tmp_path: Path) -> None:
    """Opening and closing a store does not seal what another process is writing."""
    with ObjectStore(tmp_path / "s") as writer:
        tree = keep_files(writer, "a", {b"f": b"content 0"})
        writer.flush()
        with ObjectStore(tmp_path / "s") as other:
            assert [keep.files for keep in other.chain("a")] == [tree]
        assert len(list((tmp_path / "s/journals").iterdir())) == 1
        assert put_files(writer, {b"f": b"content 0"}) == tree
    assert kept(tmp_path / "s") == [tree]


def test_a_journal_in_a_snapshot_is_just_a_file(tmp_path: Path) -> None:
    """Records inside a blob are content, also where a torn tail is looked at."""
    path, _, _ = abandoned(tmp_path / "inner", flushes=3)
    with ObjectStore(tmp_path / "s") as store:
        first = keep_files(store, "a", {b"f": b"content 0"})
        store.flush()
        journal = next((tmp_path / "s/journals").iterdir())
        end = written(journal)
        blob = store.put(BLOB, path.read_bytes()[:4000])
        store.flush()
        shutil.copytree(tmp_path / "s", tmp_path / "torn")
    torn = tmp_path / "torn/journals" / journal.name
    content = bytearray(torn.read_bytes())
    content[end + 1] ^= 1
    torn.write_bytes(content)
    with ObjectStore(tmp_path / "torn") as store:
        assert store.problems() == []
        assert [keep.files for keep in store.chain("a")] == [first]
        with pytest.raises(ObjectMissing):
            store.read(blob)


def test_refs_are_checked_by_themselves() -> None:
    """A ref record is taken only where it was written and as it was written."""
    record = records.encode_ref("refs/x", Tip(bytes(20), 7), synced=3, at=5)

    def read_from(content: bytes) -> list[object]:
        return list(records.scan(lambda length, at: content[at : at + length], 5, len(content)))

    (found,) = read_from(bytes(5) + record + bytes(100))
    assert found == records.RefRecord("refs/x", Tip(bytes(20), 7), 3, 5 + len(record))
    assert read_from(bytes(5) + record[:-1] + b"\xff" + bytes(100)) == []
    assert list(records.scan(lambda n, at: record[at : at + n], 0, len(record))) == []
