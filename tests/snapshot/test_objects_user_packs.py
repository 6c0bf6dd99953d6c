"""Copying blobs from a user's packs: what is copied is ours and whole, what is not is named."""

import errno
import math
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kedge.domain.errors import ObjectMissing, SnapshotError
from kedge.snapshot.objects import gc, git_cli, user_packs
from kedge.snapshot.objects.formats import BLOB, EMPTY_TREE, TREE, blob_id, encode_tree
from kedge.snapshot.objects.store import ObjectStore
from kedge.snapshot.objects.user_packs import BlobCopy
from tests.snapshot.objects_git import FILE, check, git, keep_files, read_files
from tests.snapshot.test_objects_alternates import CONTENTS, run

BLOBS = {blob_id(content): len(content) for content in CONTENTS.values()}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A user's repository, all packed."""
    return make_repository(tmp_path / "user")


def make_repository(folder: Path) -> Path:
    """A user's repository, all packed."""
    folder.mkdir()
    run(folder, "init", "-q")
    for name, content in CONTENTS.items():
        (folder / os.fsdecode(name)).write_bytes(content)
    run(folder, "add", "-A")
    run(folder, "commit", "-q", "-m", "all")
    run(folder, "gc", "-q")
    return folder


@contextmanager
def copying(store: ObjectStore, repository: Path) -> Iterator[BlobCopy]:
    """A copy from a repository, for the block."""
    copy = store.copy_from(bytes(repository / ".git/objects"), expected=len(BLOBS))
    assert copy is not None
    try:
        yield copy
    finally:
        copy.close()


def copied_from(store: ObjectStore, repository: Path) -> set[bytes]:
    """Have all blobs copied from a repository; those that were not."""
    with copying(store, repository) as copy:
        copy.add(BLOBS, BLOBS.values())
        return copy.finish(math.inf)


def pack_of(repository: Path) -> Path:
    """The one pack of a repository."""
    (pack,) = (repository / ".git/objects/pack").glob("*.pack")
    return pack


def keep_all(store: ObjectStore) -> bytes:
    """Keep a tree of all the contents without putting any of them."""
    entries = [(name, FILE, blob_id(each)) for name, each in CONTENTS.items()]
    tree = store.put(TREE, encode_tree(entries))
    store.keep("a", files=tree, notes=EMPTY_TREE, base=store.put(BLOB, b"644 755"))
    store.flush()
    return tree


def test_what_was_copied_is_ours(tmp_path: Path, repository: Path) -> None:
    """The copies outlive the repository, are in files of their own, and leave nothing behind."""
    with ObjectStore(tmp_path / "s") as store:
        assert copied_from(store, repository) == set()
        theirs = {path.stat().st_ino for path in pack_of(repository).parent.iterdir()}
        for path in (tmp_path / "s/objects/pack").iterdir():
            assert path.stat().st_ino not in theirs
            assert path.stat().st_nlink == 1
            assert stat.S_IMODE(path.stat().st_mode) == 0o400
        shutil.rmtree(repository)
        tree = keep_all(store)
        assert read_files(store, tree) == CONTENTS
        assert all(store.has(blob) for blob in BLOBS)
    assert list((tmp_path / "s/workshops").iterdir()) == []
    check(tmp_path / "s")


def test_the_users_files_are_left_as_they_are(tmp_path: Path, repository: Path) -> None:
    """Neither mode nor times nor the number of names of anything in the repository changes."""

    def seen() -> dict[Path, tuple[int, ...]]:
        paths = sorted((repository / ".git").rglob("*"))
        found = {path: path.lstat() for path in paths}
        return {path: (at.st_mode, at.st_nlink, at.st_ctime_ns) for path, at in found.items()}

    before = seen()
    with ObjectStore(tmp_path / "s") as store:
        assert copied_from(store, repository) == set()
    assert seen() == before


def test_a_write_through_the_users_pack_does_no_harm(tmp_path: Path, repository: Path) -> None:
    """What a command writes into the file of the user's pack, it does not write into ours."""
    with ObjectStore(tmp_path / "s") as store:
        copied_from(store, repository)
        pack = pack_of(repository)
        pack.chmod(0o600)
        os.truncate(pack, 20)
        assert read_files(store, keep_all(store)) == CONTENTS
    check(tmp_path / "s")


def test_other_processes_see_what_was_copied(tmp_path: Path, repository: Path) -> None:
    """A process that looked for a blob before finds it once it is copied."""
    blob = blob_id(b"content 3")
    with ObjectStore(tmp_path / "s") as other, ObjectStore(tmp_path / "s") as store:
        assert not other.has(blob)
        with pytest.raises(ObjectMissing):
            other.read(blob)
        copied_from(store, repository)
        assert other.has(blob)
        assert other.read(blob) == (BLOB, b"content 3")


def test_only_what_was_asked_for_is_copied(tmp_path: Path, repository: Path) -> None:
    """Neither commits nor trees nor other blobs get into the store with it."""
    wanted = dict(list(BLOBS.items())[:7])
    with ObjectStore(tmp_path / "s") as store, copying(store, repository) as copy:
        copy.add(wanted, wanted.values())
        copy.add(wanted, wanted.values())
        assert copy.finish(math.inf) == set()
    listed = git(tmp_path / "s", "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    assert {bytes.fromhex(line) for line in listed.split()} == wanted.keys()


def test_many_come_in_several_packs(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copying begins before all is asked for."""
    monkeypatch.setattr(user_packs, "SMALLEST_CHUNK", 20)
    with ObjectStore(tmp_path / "s") as store, copying(store, repository) as copy:
        for blob, size in BLOBS.items():
            copy.add([blob], [size])
        assert copy.finish(math.inf) == set()
        assert copy.finish(math.inf) == set()
    assert len(list((tmp_path / "s/objects/pack").glob("*.pack"))) == 3


def test_deltas_are_copied_without_their_bases(tmp_path: Path, repository: Path) -> None:
    """A blob that the user's pack has as the difference to an older one comes whole."""
    lines = [f"line {number}\n".encode() for number in range(200)]
    versions = []
    for number in range(5):
        lines[number] = b"changed\n"
        versions.append(b"".join(lines))
        (repository / "f0").write_bytes(versions[-1])
        run(repository, "commit", "-aqm", "changed")
    run(repository, "repack", "-adfq", "--depth=50")
    shown = subprocess.run(
        ["git", "verify-pack", "-v", pack_of(repository)], capture_output=True, check=True
    )
    deltas = [
        version
        for version in versions
        for line in shown.stdout.decode().splitlines()
        if line.startswith(blob_id(version).hex()) and len(line.split()) > 5
    ]
    assert deltas
    with ObjectStore(tmp_path / "s") as store, copying(store, repository) as copy:
        copy.add([blob_id(deltas[0])], [len(deltas[0])])
        assert copy.finish(math.inf) == set()
        assert store.read(blob_id(deltas[0])) == (BLOB, deltas[0])


def test_packs_of_alternates_are_copied_from(tmp_path: Path, repository: Path) -> None:
    """A clone that shares its objects gives what it shares, however odd the names are."""
    odd = repository.rename(tmp_path / "odd \udcff:#name")
    clone = tmp_path / "clone"
    run(tmp_path, "clone", "-q", "--shared", str(odd), str(clone))
    with ObjectStore(tmp_path / "s") as store:
        assert copied_from(store, clone) == set()


def test_what_is_not_in_packs_is_named(tmp_path: Path, repository: Path) -> None:
    """Loose, missing and other objects, and blobs of another size, are not copied."""
    (repository / "f0").write_bytes(b"loose")
    run(repository, "add", "f0")
    listed = subprocess.run(
        ["git", "rev-parse", "HEAD", "HEAD:"], cwd=repository, capture_output=True, check=True
    )
    commit, tree = map(bytes.fromhex, listed.stdout.decode().split())
    first, *rest = BLOBS
    with ObjectStore(tmp_path / "s") as store, copying(store, repository) as copy:
        copy.add([blob_id(b"loose"), bytes(20), commit, tree, first], [5, 5, 200, 1500, 1000])
        copy.add(rest, [BLOBS[blob] for blob in rest])
        lacking = copy.finish(math.inf)
        assert lacking == {blob_id(b"loose"), bytes(20), commit, tree, first}
        assert all(store.has(blob) for blob in rest)


def _entries(repository: Path) -> dict[bytes, int]:
    """Where the objects are in the one pack of a repository."""
    with pack_of(repository).with_suffix(".idx").open("rb") as index:
        shown = subprocess.run(["git", "show-index"], stdin=index, capture_output=True, check=True)
    lines = (line.split() for line in shown.stdout.decode().splitlines())
    return {bytes.fromhex(id): int(offset) for offset, id, _ in lines}


def _damage(repository: Path) -> bytes:
    """Flip bits of one blob."""
    pack, blob = pack_of(repository), next(iter(BLOBS))
    content = bytearray(pack.read_bytes())
    content[_entries(repository)[blob] + 5] ^= 0xFF
    pack.chmod(0o600)
    pack.write_bytes(content)
    return blob


def _lie(repository: Path) -> bytes:
    """Have the index say that one blob is where another one of its size is."""
    index = pack_of(repository).with_suffix(".idx")
    content = bytearray(index.read_bytes())
    ids = sorted(_entries(repository))
    one, two = [blob for blob, size in BLOBS.items() if size == len(b"content 10")][:2]
    # The checksums of all objects follow the ids, and their places follow the checksums.
    for start in (8 + 1024 + len(ids) * 20, 8 + 1024 + len(ids) * 24):
        at, other = (start + ids.index(blob) * 4 for blob in (one, two))
        content[at : at + 4] = content[other : other + 4]
    index.chmod(0o600)
    index.write_bytes(content)
    return one


@pytest.mark.parametrize("harm", [_damage, _lie], ids=["damage", "lie"])
def test_nothing_is_believed(
    tmp_path: Path, repository: Path, harm: Callable[[Path], bytes]
) -> None:
    """A damaged pack, or one with an index that lies, gives no object under a wrong name."""
    harmed = harm(repository)
    with ObjectStore(tmp_path / "s") as store:
        assert harmed in copied_from(store, repository)
        assert not store.has(harmed)
    check(tmp_path / "s")


def test_a_repository_that_vanishes_gives_nothing(tmp_path: Path, repository: Path) -> None:
    """A repository that is deleted in the middle of it is no error."""
    with ObjectStore(tmp_path / "s") as store, copying(store, repository) as copy:
        shutil.rmtree(repository)
        copy.add(BLOBS, BLOBS.values())
        assert copy.finish(math.inf) == BLOBS.keys()


def test_a_bug_is_not_hidden(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be explained by the repository or the disk is raised."""

    def broken(*_: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(git_cli, "pack_objects", broken)
    with ObjectStore(tmp_path / "s") as store, pytest.raises(ZeroDivisionError):
        copied_from(store, repository)


def test_time_is_limited(tmp_path: Path, repository: Path) -> None:
    """Git is stopped when nobody wants to wait any longer, and leaves nothing behind."""
    pack = pack_of(repository).with_suffix(".idx")
    pack.unlink()
    os.mkfifo(pack)
    with ObjectStore(tmp_path / "s") as store, copying(store, repository) as copy:
        copy.add(BLOBS, BLOBS.values())
        assert copy.finish(0.0) == BLOBS.keys()
        process = copy._process
        assert process is None or process.returncode is not None
    assert list((tmp_path / "s/workshops").iterdir()) == []


def test_closing_ends_what_was_never_finished(tmp_path: Path, repository: Path) -> None:
    """Whoever closes early leaves no process and no file."""
    with ObjectStore(tmp_path / "s") as store, copying(store, repository) as copy:
        copy.add(BLOBS, BLOBS.values())
        copy._begin()
    assert copy._process is None or copy._process.returncode is not None
    assert list((tmp_path / "s/workshops").iterdir()) == []


def test_no_collection_takes_what_was_copied(tmp_path: Path, repository: Path) -> None:
    """Until something holds the copies no collection begins; and none is begun beside one."""
    with ObjectStore(tmp_path / "s") as store, ObjectStore(tmp_path / "s") as other:
        with copying(store, repository) as copy:
            copy.add(BLOBS, BLOBS.values())
            assert copy.finish(math.inf) == set()
            assert "copying" in other.collect(keep_taken_for=0).skipped
            assert "copying" in store.collect(keep_taken_for=0).skipped
            tree = keep_all(store)
        assert other.collect(keep_taken_for=0).skipped == ""
        assert read_files(store, tree) == CONTENTS
        with gc.lock(store.layout) as is_alone:
            assert is_alone
            assert store.copy_from(bytes(repository / ".git/objects"), expected=1) is None
    check(tmp_path / "s")


def test_what_the_store_has_is_not_copied_again(tmp_path: Path, repository: Path) -> None:
    """Another worktree of the project, or a process after a crash, finds it there."""
    with ObjectStore(tmp_path / "s") as store:
        assert copied_from(store, repository) == set()
        packs = set((tmp_path / "s/objects/pack").iterdir())
        shutil.rmtree(repository)
        repository.mkdir()
        assert copied_from(store, repository) == set()
        assert set((tmp_path / "s/objects/pack").iterdir()) == packs


def test_without_git_nothing_is_copied(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the caller has to read the files."""
    with ObjectStore(tmp_path / "s") as store:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert store.copy_from(bytes(repository / ".git/objects"), expected=1) is None


def test_copies_that_cannot_begin_let_collections_go_on(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure at the beginning is told, and leaves no lock."""
    with ObjectStore(tmp_path / "s") as store:
        (tmp_path / "s/workshops").write_bytes(b"in the way")
        with pytest.raises(SnapshotError):
            store.copy_from(bytes(repository / ".git/objects"), expected=1)
        assert store.collect(keep_taken_for=0).skipped == ""


def test_old_leftovers_go_and_young_ones_stay(tmp_path: Path) -> None:
    """What a killed process was copying is removed a day later."""
    with ObjectStore(tmp_path / "s"):
        for name, age in (("old", 25 * 3600), ("young", 3600)):
            folder = tmp_path / "s/workshops" / name
            (folder / "objects/pack").mkdir(parents=True)
            then = folder.stat().st_mtime - age
            os.utime(folder, (then, then))
    with ObjectStore(tmp_path / "s") as store:
        keep_files(store, "a", {b"a": b"a"})
        assert [path.name for path in (tmp_path / "s/workshops").iterdir()] == ["young"]


def test_a_workshop_that_goes_meanwhile_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may remove workshops while this one looks for old ones."""
    workshops, removed = tmp_path / "s/workshops", list[Path]()
    for name in ("one", "two"):
        (workshops / name).mkdir(parents=True)
        os.utime(workshops / name, (0, 0))
    rmtree = shutil.rmtree

    def others_too(folder: Path, *, ignore_errors: bool) -> None:
        removed.append(folder)
        for each in list(workshops.iterdir()):
            rmtree(each, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", others_too)
    with ObjectStore(tmp_path / "s"):
        assert len(removed) == 1


def test_a_failed_copy_leaves_no_files(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk its room is needed at once, for what is read from the files instead."""
    packed = list[bool]()

    def full(_: object, pack: Path, __: object) -> Path:
        packed.append(pack.exists())
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(git_cli, "index_pack", full)
    with ObjectStore(tmp_path / "s") as store, copying(store, repository) as copy:
        copy.add(BLOBS, BLOBS.values())
        assert copy.finish(math.inf) == BLOBS.keys()
        assert packed == [True]
        assert list((copy._objects / "pack").iterdir()) == []


def test_a_store_at_a_relative_path_copies_too(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git runs elsewhere, and finds the store all the same."""
    monkeypatch.chdir(tmp_path)
    with ObjectStore(Path("s")) as store:
        assert copied_from(store, repository) == set()
