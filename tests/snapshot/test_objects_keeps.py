"""Keeps: the chains that hold snapshots, across processes, releases and races."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.domain.errors import SnapshotStoreDamaged
from kedge.snapshot.objects import keeps, refs
from kedge.snapshot.objects.formats import BLOB, EMPTY_TREE, blob_id
from kedge.snapshot.objects.journal import Tip
from kedge.snapshot.objects.keeps import KeptObjects
from kedge.snapshot.objects.store import UNCHANGED_SECONDS, ObjectStore
from tests.snapshot.objects_git import check, git, keep_files, put_files


class SetClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1_700_000_000

    def now(self) -> int:
        return self.seconds * 1000


def trees_of(store: ObjectStore, session: str) -> list[bytes]:
    """The trees held for a session, newest first."""
    return [keep.files for keep in store.chain(session)]


def test_a_keep_says_what_it_was_given(tmp_path: Path) -> None:
    """Trees, base, fields and time of a keep come back, also after it was sealed."""
    clock = SetClock()
    with ObjectStore(tmp_path / "s", clock=clock) as store:
        files, notes = put_files(store, {b"f": b"1"}), put_files(store, {b"big": b"large"})
        base = store.put(BLOB, b"644 755")
        fields = {"head": "refs/heads/ma\udcffin", "odd": ": a: b "}
        commit = store.keep("a", files=files, notes=notes, base=base, fields=fields)
    with ObjectStore(tmp_path / "s") as store:
        (keep,) = store.chain("a")
        assert keep.held == KeptObjects(files=files, notes=notes, base=base, fields=fields)
        assert (keep.commit, keep.depth, keep.seconds) == (commit, 1, clock.seconds)
        assert store.head("a") == commit
        assert store.find(files) == keep
        assert store.find(notes) is None
    shown = git(tmp_path / "s", "log", "--format=%s", "refs/kedge/session/a")
    assert shown == "kedge keep 1\n"


@pytest.mark.parametrize("fields", [{"a": "b\nc"}, {"A": "b"}, {"": "b"}, {"a b": "c"}])
def test_fields_that_would_not_come_back_are_refused(
    tmp_path: Path, fields: dict[str, str]
) -> None:
    """A key or value that a message cannot hold is an error before anything is put."""
    with (
        ObjectStore(tmp_path / "s") as store,
        pytest.raises(ValueError, match="cannot say"),
    ):
        store.keep("a", files=EMPTY_TREE, notes=EMPTY_TREE, base=bytes(20), fields=fields)


@given(st.text(min_size=1, max_size=20))
def test_any_session_name_makes_a_ref(name: str) -> None:
    """Whatever a session is called, its ref is one that git and a file system take."""
    ref = refs.session_ref(name)
    last = ref.removeprefix(refs.SESSION)
    assert last.isascii()
    assert all(char.isalnum() or char in "_-%" for char in last)


@pytest.mark.parametrize("name", ["", "x" * 201])
def test_names_without_a_ref_are_refused(name: str) -> None:
    """No name and an endless name are errors."""
    with pytest.raises(ValueError, match="no name"):
        refs.session_ref(name)


def test_different_names_have_different_refs() -> None:
    """Encoding does not make two sessions one."""
    assert refs.session_ref("a.b") != refs.session_ref("a%2Eb")


def test_the_same_again_is_not_written(tmp_path: Path) -> None:
    """An unchanged snapshot is kept again only after an hour, or if something else is said."""
    clock = SetClock()
    with ObjectStore(tmp_path / "s", clock=clock) as store:
        keep_files(store, "a", {b"f": b"1"})
        first = store.head("a")
        keep_files(store, "a", {b"f": b"1"})
        assert store.head("a") == first
        clock.seconds += UNCHANGED_SECONDS
        keep_files(store, "a", {b"f": b"1"})
        assert store.head("a") != first
        assert len(trees_of(store, "a")) == 2


def test_a_chain_goes_on_in_another_process(tmp_path: Path) -> None:
    """Whoever keeps next follows the newest keep of all, wherever it is written."""
    with ObjectStore(tmp_path / "s") as one, ObjectStore(tmp_path / "s") as two:
        trees = []
        for n in range(6):
            store = (one, two)[n % 2]
            trees.append(keep_files(store, "a", {b"f": b"%d" % n}))
            store.flush()
        assert trees_of(one, "a") == trees_of(two, "a") == trees[::-1]
    check(tmp_path / "s")
    with ObjectStore(tmp_path / "s") as store:
        assert trees_of(store, "a") == trees[::-1]
        assert [keep.depth for keep in store.chain("a")] == [6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("first_to_close", [0, 1])
def test_two_processes_that_part_lose_nothing(tmp_path: Path, first_to_close: int) -> None:
    """Keeps that two processes made after the same one are all held, whoever seals first."""
    stores = [ObjectStore(tmp_path / "s"), ObjectStore(tmp_path / "s")]
    trees = {keep_files(stores[0], "a", {b"f": b"shared"})}
    stores[0].flush()
    for n, store in enumerate(stores):
        for m in range(n + 2):
            trees.add(keep_files(store, "a", {b"f": b"%d %d" % (n, m)}))
    for store in stores:
        store.flush()
    assert set(trees_of(stores[0], "a")) == trees
    stores[first_to_close].close()
    stores[1 - first_to_close].close()
    check(tmp_path / "s")
    with ObjectStore(tmp_path / "s") as store:
        assert set(trees_of(store, "a")) == trees
        trees.add(keep_files(store, "a", {b"f": b"after"}))
        assert store.collect(keep_taken_for=0).skipped == ""
        assert set(trees_of(store, "a")) == trees
    check(tmp_path / "s")


def test_a_buffered_keep_is_not_lost_beside_another_processes(tmp_path: Path) -> None:
    """What follows two keeps of the same depth holds both, whichever of them counts as newer."""
    sessions = [f"ses_{n}" for n in range(8)]
    with ObjectStore(tmp_path / "s") as one, ObjectStore(tmp_path / "s") as two:
        trees = {}
        for session in sessions:
            buffered = keep_files(one, session, {b"f": b"1"})
            other = keep_files(two, session, {b"f": session.encode()})
            two.flush()
            after = keep_files(one, session, {b"f": b"2"})
            trees[session] = {buffered, other, after}
        one.flush()
        for session in sessions:
            assert set(trees_of(one, session)) == set(trees_of(two, session)) == trees[session]
    check(tmp_path / "s")


def test_a_release_ends_a_chain_for_good(tmp_path: Path) -> None:
    """An older record in another process's journal does not bring a released session back."""
    with ObjectStore(tmp_path / "s") as one, ObjectStore(tmp_path / "s") as two:
        keep_files(one, "a", {b"f": b"1"})
        one.flush()
        two.release("a")
        two.release("never kept")
        two.flush()
        assert trees_of(one, "a") == trees_of(two, "a") == []
        two.close()
        one.close()
    with ObjectStore(tmp_path / "s") as store:
        assert trees_of(store, "a") == []
        tree = keep_files(store, "a", {b"f": b"2"})
        store.flush()
        assert trees_of(store, "a") == [tree]
    with ObjectStore(tmp_path / "s") as store:
        assert trees_of(store, "a") == [tree]
    check(tmp_path / "s")


def test_a_keep_beside_a_release_is_held(tmp_path: Path) -> None:
    """When one process keeps while another releases, the snapshot wins, also if more follow."""
    with ObjectStore(tmp_path / "s") as one, ObjectStore(tmp_path / "s") as two:
        keep_files(one, "a", {b"f": b"1"})
        one.flush()
        beside = keep_files(two, "a", {b"f": b"beside"})
        one.release("a")
        one.flush()
        after = keep_files(one, "a", {b"f": b"after"})
        one.flush()
        two.flush()
        assert {beside, after} <= set(trees_of(one, "a"))
    with ObjectStore(tmp_path / "s") as store:
        assert {beside, after} <= set(trees_of(store, "a"))


def test_held_blobs_stay_without_being_a_snapshot(tmp_path: Path) -> None:
    """Blobs in no tree are held by a session until its release, and are no keep of it."""
    with ObjectStore(tmp_path / "s") as store:
        tree = keep_files(store, "a", {b"f": b"1"})
        store.hold("a", [store.put(BLOB, b"before"), store.put(BLOB, b"before")])
        store.hold("a", [])
        assert trees_of(store, "a") == [tree]
    with ObjectStore(tmp_path / "s") as store:
        store.collect(keep_taken_for=0)
        assert store.read(blob_id(b"before")) == (BLOB, b"before")
    check(tmp_path / "s")


def test_a_fork_holds_what_its_origin_held(tmp_path: Path) -> None:
    """All of it, beside its own, and also when the origin is released; later keeps are not its."""
    with ObjectStore(tmp_path / "s") as store:
        shared = [keep_files(store, "origin", {b"f": b"%d" % count}) for count in range(3)]
        blob = store.put(BLOB, b"captured")
        store.hold("origin", [blob])
        own = keep_files(store, "fork", {b"f": b"own"})
        store.inherit("origin", "fork")
        later = keep_files(store, "origin", {b"f": b"later"})
        after = keep_files(store, "fork", {b"f": b"after"})
        store.release("origin")
    with ObjectStore(tmp_path / "s") as store:
        store.collect(keep_taken_for=0)
        assert trees_of(store, "origin") == []
        assert set(trees_of(store, "fork")) == {*shared, own, after}
        assert later not in trees_of(store, "fork")
        assert store.read(blob) == (BLOB, b"captured")
        store.release("fork")
        assert trees_of(store, "fork") == []
    check(tmp_path / "s")


def test_nothing_is_inherited_from_who_holds_nothing(tmp_path: Path) -> None:
    """Neither from a session that never kept anything nor from one that was released."""
    with ObjectStore(tmp_path / "s") as store:
        store.inherit("origin", "fork")
        assert store.head("fork") is None
        keep_files(store, "origin", {b"f": b"1"})
        store.release("origin")
        store.inherit("origin", "fork")
        assert store.head("fork") is None


def test_what_an_origin_released_before_is_not_released_for_the_fork(tmp_path: Path) -> None:
    """A process that keeps for the fork, not knowing of the inheritance, loses nothing by it."""
    with ObjectStore(tmp_path / "s") as one, ObjectStore(tmp_path / "s") as two:
        for content in (b"1", b"2"):
            keep_files(one, "origin", {b"f": content})
        one.release("origin")
        kept = keep_files(one, "origin", {b"f": b"3"})
        one.flush()
        beside = keep_files(two, "fork", {b"f": b"beside"})
        one.inherit("origin", "fork")
        one.flush()
        two.flush()
        assert set(trees_of(one, "fork")) == {kept, beside}
    with ObjectStore(tmp_path / "s") as store:
        assert set(trees_of(store, "fork")) == {kept, beside}
    check(tmp_path / "s")


def test_snapshots_of_no_session_are_found(tmp_path: Path) -> None:
    """A snapshot taken for nobody is found by its tree, in this process and in the next."""
    with ObjectStore(tmp_path / "s") as store:
        trees = [keep_files(store, None, {b"f": b"%d" % n}) for n in range(3)]
    with ObjectStore(tmp_path / "s") as store:
        found = [store.find(tree) for tree in trees]
        assert [keep.files for keep in found if keep is not None] == trees
        new = keep_files(store, None, {b"f": b"new"})
        store.flush()
        with ObjectStore(tmp_path / "s") as other:
            keep = other.find(new)
            assert keep is not None
            assert keep.files == new


def test_refs_that_somebody_packed_are_still_refs(tmp_path: Path) -> None:
    """A person's `git gc` in the store moves refs to another file; nothing is lost by it."""
    with ObjectStore(tmp_path / "s") as store:
        trees = [keep_files(store, "a", {b"f": b"%d" % n}) for n in range(3)]
    git(tmp_path / "s", "gc", "--quiet", "--prune=now")
    assert not (tmp_path / "s/refs/kedge/session/a").exists()
    with ObjectStore(tmp_path / "s") as store:
        trees.append(keep_files(store, "a", {b"f": b"more"}))
        store.collect(keep_taken_for=0)
        assert trees_of(store, "a") == trees[::-1]
    check(tmp_path / "s")


def test_foreign_commits_are_damage(tmp_path: Path) -> None:
    """A ref that somebody moved to a commit of their own is reported."""
    with ObjectStore(tmp_path / "s") as store:
        keep_files(store, "a", {b"f": b"1"})
    commit = git(
        tmp_path / "s",
        *("-c", "user.name=x", "-c", "user.email=x@localhost"),
        *("commit-tree", "-m", "x", EMPTY_TREE.hex()),
    ).strip()
    (tmp_path / "s/refs/kedge/session/a").write_text(commit + "\n")
    with ObjectStore(tmp_path / "s") as store, pytest.raises(SnapshotStoreDamaged):
        store.head("a")


@given(st.integers(0, 2**32))
def test_what_supersedes_what(seed: int) -> None:
    """A commit supersedes exactly those that it reaches or that were released below it."""
    chance = random.Random(seed)
    objects: dict[bytes, tuple[bytes, bytes]] = {}
    below: dict[Tip, set[Tip]] = {}
    tips: list[Tip] = []
    for n in range(12):
        before = chance.choice([None, *tips]) if not tips or n > 9 else chance.choice(tips)
        held = KeptObjects(files=bytes([n]) * 20, notes=EMPTY_TREE, base=bytes(20))
        keep, new = keeps.new_keep(held, [] if before is None else [before], n)
        objects |= {id: (kind, bytes(content)) for kind, id, content in new}
        below[keep.tip] = set() if before is None else below[before] | {before}
        tips.append(keep.tip)
    for newer in tips:
        for older in tips:
            if older != newer and older.depth <= newer.depth:
                expected = older in below[newer]
                assert keeps.supersedes(objects.__getitem__, newer, older) == expected
