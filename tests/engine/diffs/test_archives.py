"""Object stores that are opened to be read, and closed when nobody does."""

from pathlib import Path

import pytest

from kedge.engine.diffs.archives import MOST_OPEN, Archives
from kedge.errors import EngineClosed, ObjectMissing, SnapshotError
from kedge.snapshot.objects.formats import BLOB
from kedge.snapshot.objects.store import ObjectStore


def stored(data: Path, project: str, content: bytes) -> str:
    """The id of a blob in the store of a project."""
    with ObjectStore(data / "snapshots" / project) as store:
        return store.put(BLOB, content).hex()


def is_open(store: ObjectStore) -> bool:
    """Whether it can be read."""
    try:
        store.read(b"1" * 20)
    except ObjectMissing:
        return True
    except SnapshotError:
        return False
    raise AssertionError


def test_objects_are_found_in_any_of_the_projects(tmp_path: Path) -> None:
    """A blob is read from the project that has it; one that none has is missing."""
    one, two = stored(tmp_path, "one", b"1"), stored(tmp_path, "two", b"2")
    archives = Archives(tmp_path)
    with archives.reading(["one", "two"]) as read:
        assert (read(one), read(two)) == (b"1", b"2")
        with pytest.raises(ObjectMissing, match="3333"):
            read("3" * 40)
    archives.close()


def test_what_is_written_meanwhile_is_seen(tmp_path: Path) -> None:
    """Another store of the same project writes while this one is open."""
    archives = Archives(tmp_path)
    with ObjectStore(tmp_path / "snapshots" / "one") as writer, archives.reading(["one"]) as read:
        id = writer.put(BLOB, b"new")
        writer.flush()
        assert read(id.hex()) == b"new"
    archives.close()


def test_only_so_many_stay_open(tmp_path: Path) -> None:
    """The one that was not used for longest is closed, but never one that is being read."""
    archives = Archives(tmp_path)
    with archives.opened("first") as first:
        stores = []
        for n in range(MOST_OPEN):
            with archives.opened(str(n)) as store:
                stores.append(store)
        assert [is_open(store) for store in stores] == [False, *[True] * (MOST_OPEN - 1)]
        assert is_open(first)
    with archives.opened("first") as again:
        assert again is first
    archives.close()
    assert not any(map(is_open, [first, *stores]))


def test_closing_waits_for_no_reader(tmp_path: Path) -> None:
    """Who reads at the moment goes on; the store is closed behind it, and nobody begins."""
    archives = Archives(tmp_path)
    with archives.opened("one") as store:
        archives.close()
        assert is_open(store)
        with pytest.raises(EngineClosed), archives.opened("one"):
            pass
    assert not is_open(store)
