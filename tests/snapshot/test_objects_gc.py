"""Collecting: what is held stays whatever happens, and what is not gives its space back."""

import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kedge.domain.errors import ObjectMissing
from kedge.snapshot.objects import gc, git_cli, journals
from kedge.snapshot.objects.formats import BLOB, EMPTY_TREE
from kedge.snapshot.objects.gc import MANY_PACKS, RELEASED_SECONDS
from kedge.snapshot.objects.store import ObjectStore
from tests.snapshot.objects_git import check, git, keep_files, read_files
from tests.snapshot.test_objects_keeps import SetClock, trees_of

WEEK = 7 * 86400.0
FUTURE = 4_000_000_000
"""A time at which every pack that a test makes is old."""


def packs(folder: Path) -> list[Path]:
    """The packs of a store."""
    return sorted((folder / "objects/pack").glob("*.pack"))


def noise(seed: int, size: int = 20_000) -> bytes:
    """Bytes that do not compress."""
    return random.Random(seed).randbytes(size)


def test_released_snapshots_give_their_space_back(tmp_path: Path) -> None:
    """After a release nothing of a session is left, and the others' snapshots are all there."""
    with ObjectStore(tmp_path / "s") as store:
        kept = [keep_files(store, "a", {b"f": noise(n)}) for n in range(5)]
        gone = [keep_files(store, "b", {b"f": noise(n)}) for n in range(5, 15)]
        keep_files(store, "a", {b"f": noise(0)})
    clock = SetClock()
    clock.seconds = FUTURE
    with ObjectStore(tmp_path / "s", clock=clock) as store:
        store.release("b")
        assert store.collect(keep_taken_for=0).freed <= 0
        assert read_files(store, gone[0]) == {b"f": noise(5)}
        clock.seconds += RELEASED_SECONDS + 1
        collected = store.collect(keep_taken_for=0)
        assert collected.skipped == ""
        assert collected.freed > 150_000
        assert [read_files(store, tree) for tree in kept] == [{b"f": noise(n)} for n in range(5)]
        for tree in gone:
            with pytest.raises(ObjectMissing):
                store.read(tree)
        assert store.collect(keep_taken_for=0).freed < 2000
    check(tmp_path / "s")


def test_young_packs_are_not_thinned_out(tmp_path: Path) -> None:
    """What was put a short while ago may yet be kept, so it stays however little holds it."""
    with ObjectStore(tmp_path / "s") as store:
        blob = store.put(BLOB, noise(1))
    with ObjectStore(tmp_path / "s") as store:
        assert store.collect(keep_taken_for=WEEK).freed == 0
        assert store.read(blob) == (BLOB, noise(1))
        assert store.collect(keep_taken_for=0).freed > 0
        with pytest.raises(ObjectMissing):
            store.read(blob)


def test_snapshots_of_no_session_go_when_they_are_old(tmp_path: Path) -> None:
    """A snapshot taken for nobody lasts as long as was asked for, and then its ref goes too."""
    clock = SetClock()
    with ObjectStore(tmp_path / "s", clock=clock) as store:
        tree = keep_files(store, None, {b"f": noise(1)})
    clock.seconds += int(WEEK) - 1
    with ObjectStore(tmp_path / "s", clock=clock) as store:
        assert store.collect(keep_taken_for=WEEK).dropped == ()
        clock.seconds += 2
        for pack in packs(tmp_path / "s"):
            os.utime(pack, (1, 1))
        (dropped,) = store.collect(keep_taken_for=WEEK).dropped
        assert dropped.startswith("refs/kedge/taken/")
        assert read_files(store, tree) == {b"f": noise(1)}
        store.collect(keep_taken_for=WEEK)
        with pytest.raises(ObjectMissing):
            store.read(tree)


def test_a_released_sessions_ref_goes_a_day_later(tmp_path: Path) -> None:
    """The ref stays while an older record could bring the session back, then it goes."""
    clock = SetClock()
    with ObjectStore(tmp_path / "s", clock=clock) as one:
        with ObjectStore(tmp_path / "s", clock=clock) as two:
            keep_files(one, "a", {b"f": b"1"})
            one.flush()
            two.release("a")
        with ObjectStore(tmp_path / "s", clock=clock) as two:
            clock.seconds += RELEASED_SECONDS + 1
            assert "refs/kedge/session/a" not in two.collect(keep_taken_for=WEEK).dropped
        one.close()
        with ObjectStore(tmp_path / "s", clock=clock) as two:
            assert trees_of(two, "a") == []
            assert "refs/kedge/session/a" in two.collect(keep_taken_for=WEEK).dropped
            assert two.head("a") is None


def test_a_process_forgets_a_session_that_others_released(tmp_path: Path) -> None:
    """Long after a release a process that once kept for the session begins it anew."""
    clock = SetClock()
    with ObjectStore(tmp_path / "s", clock=clock) as one:
        keep_files(one, "a", {b"f": b"1"})
        keep_files(one, "b", {b"f": b"2"})
        one.collect(keep_taken_for=0)
        with ObjectStore(tmp_path / "s", clock=clock) as two:
            two.release("a")
        clock.seconds = FUTURE
        assert "refs/kedge/session/a" in one.collect(keep_taken_for=0).dropped
        tree = keep_files(one, "a", {b"f": b"3"})
        one.flush()
        assert trees_of(one, "a") == [tree]
        assert one.collect(keep_taken_for=0).lacking == 0
    check(tmp_path / "s")


def test_a_keep_that_follows_what_is_being_released_is_whole(tmp_path: Path) -> None:
    """A keep may be buffered while another process releases and collects what it follows."""
    with ObjectStore(tmp_path / "s") as store:
        before = keep_files(store, "a", {b"f": b"1"})
    with ObjectStore(tmp_path / "s") as one, ObjectStore(tmp_path / "s") as two:
        after = keep_files(one, "a", {b"f": b"2"})
        two.release("a")
        two.collect(keep_taken_for=0)
        two.collect(keep_taken_for=0)
        one.flush()
        assert trees_of(one, "a") == [after, before]
    check(tmp_path / "s")


def test_what_a_living_process_goes_on_using_is_held(tmp_path: Path) -> None:
    """A tree in memory may use its newest snapshot's objects whoever releases and collects."""
    with ObjectStore(tmp_path / "s") as one, ObjectStore(tmp_path / "s") as two:
        for session in ("a", None):
            tree = keep_files(one, session, {b"f": noise(1), b"g": b"x"})
            one.flush()
            one.collect(keep_taken_for=0)
            two.release("a")
            two.flush()
            for _ in range(3):
                two.collect(keep_taken_for=0)
                one.collect(keep_taken_for=0)
            assert read_files(one, tree) == {b"f": noise(1), b"g": b"x"}
        one.keep("c", files=tree, notes=EMPTY_TREE, base=one.put(BLOB, b"644 755"))
        one.release("c")
        one.flush()
        one.collect(keep_taken_for=0)
        two.collect(keep_taken_for=0)
        assert read_files(one, tree) == {b"f": noise(1), b"g": b"x"}
    check(tmp_path / "s")


def test_another_process_keeps_reading_while_packs_are_replaced(tmp_path: Path) -> None:
    """A reader that knows the old packs finds everything in the new ones."""
    with ObjectStore(tmp_path / "s") as reader:
        trees = []
        for n in range(MANY_PACKS + 2):
            with ObjectStore(tmp_path / "s") as writer:
                trees.append(keep_files(writer, "a", {b"f": noise(n)}))
            if n % 3 == 0:
                read_files(reader, trees[-1])
        with ObjectStore(tmp_path / "s") as writer:
            writer.collect(keep_taken_for=0)
        assert len(packs(tmp_path / "s")) < MANY_PACKS
        for n, tree in enumerate(trees):
            assert read_files(reader, tree) == {b"f": noise(n)}
    check(tmp_path / "s")


def test_small_packs_are_joined_and_stay_young(tmp_path: Path) -> None:
    """Many small packs become one that keeps all they had, with deltas between the versions."""
    text = b"".join(b"line %d of a file that changes little\n" % n for n in range(500))
    for n in range(MANY_PACKS + 1):
        with ObjectStore(tmp_path / "s") as store:
            keep_files(store, "a", {b"f": text + b"%d" % n})
            loose = store.put(BLOB, b"in no snapshot")
    before = sum(pack.stat().st_size for pack in packs(tmp_path / "s"))
    with ObjectStore(tmp_path / "s") as store:
        collected = store.collect(keep_taken_for=WEEK)
        (pack,) = packs(tmp_path / "s")
        assert collected.freed > before // 2
        assert store.read(loose) == (BLOB, b"in no snapshot")
        assert pack.stat().st_mode & 0o777 == 0o400
    check(tmp_path / "s")


def test_only_one_process_collects(tmp_path: Path) -> None:
    """A second collection says that another is running, and does nothing."""
    with ObjectStore(tmp_path / "s") as store, gc.lock(store.layout) as is_alone:
        assert is_alone
        assert store.collect(keep_taken_for=0).skipped.startswith("another process is collecting")


def test_without_git_nothing_is_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no git, packs with something in them stay as they are, and this is said."""
    with ObjectStore(tmp_path / "s") as store:
        tree = keep_files(store, "a", {b"f": b"1"})
        keep_files(store, None, {b"f": noise(1)})
    monkeypatch.setenv("PATH", str(tmp_path))
    with ObjectStore(tmp_path / "s") as store:
        store.collect(keep_taken_for=0)
        assert "git is not installed" in store.collect(keep_taken_for=0).skipped
        assert read_files(store, tree) == {b"f": b"1"}


def test_without_space_nothing_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection that has no room for a batch leaves the packs, and says so."""
    with ObjectStore(tmp_path / "s") as store:
        tree = keep_files(store, "a", {b"f": b"1"})
        keep_files(store, None, {b"f": noise(1)})
    monkeypatch.setattr(gc, "SPARE_BYTES", shutil.disk_usage(tmp_path).total * 2)
    with ObjectStore(tmp_path / "s") as store:
        store.collect(keep_taken_for=0)
        assert "no space" in store.collect(keep_taken_for=0).skipped
        assert read_files(store, tree) == {b"f": b"1"}


def test_garbage_that_comes_into_use_again_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refs are read again before packs go: a keep made meanwhile saves what it holds."""
    with ObjectStore(tmp_path / "s") as store:
        keep_files(store, "a", {b"f": b"1"})
        tree = keep_files(store, None, {b"f": noise(1)})
    repack = git_cli.repack
    with ObjectStore(tmp_path / "s") as other, ObjectStore(tmp_path / "s") as store:
        store.collect(keep_taken_for=0)

        def keep_then_repack(*arguments: object) -> Path:
            base = other.put(BLOB, b"644 755")
            other.keep("late", files=tree, notes=EMPTY_TREE, base=base)
            other.flush()
            return repack(*arguments)  # type: ignore[arg-type]  # whatever it is given

        monkeypatch.setattr(git_cli, "repack", keep_then_repack)
        assert "came into use again" in store.collect(keep_taken_for=0).skipped
        assert read_files(store, tree) == {b"f": noise(1)}
    check(tmp_path / "s")


def test_a_missing_tree_stops_the_collection(tmp_path: Path) -> None:
    """Where a held tree cannot be read, nobody knows what hangs on it: nothing is deleted."""
    with ObjectStore(tmp_path / "s") as store:
        base = store.put(BLOB, b"644 755")
        store.keep("a", files=b"\x11" * 20, notes=EMPTY_TREE, base=base)
        keep_files(store, None, {b"f": noise(1)})
    before = packs(tmp_path / "s")
    with ObjectStore(tmp_path / "s") as store, pytest.raises(ObjectMissing, match="11" * 20):
        store.collect(keep_taken_for=0)
    assert set(before) <= set(packs(tmp_path / "s"))


def test_usage_says_what_keeps_the_space(tmp_path: Path) -> None:
    """Within the budget there are just sizes; over it, also who holds how much."""
    with ObjectStore(tmp_path / "s", budget=1 << 30) as store:
        for n in range(3):
            keep_files(store, "a", {b"f": noise(n)})
        keep_files(store, "b", {b"f": noise(1)})
        store.flush()
        usage = store.usage()
        assert usage.journals >= 60_000
        assert (usage.over_budget, usage.reasons) == (0, ())
    with ObjectStore(tmp_path / "s", budget=1000) as store:
        usage = store.usage()
        assert usage.packs >= 60_000
        assert usage.over_budget == usage.packs - 1000
        assert usage.reasons[0] == "refs/kedge/session/a holds 3 snapshots"


def test_batches_bound_the_space_that_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packs are rewritten a few at a time when they are large together."""
    monkeypatch.setattr(gc, "BATCH_BYTES", 50_000)
    monkeypatch.setattr(journals, "SEAL_OBJECTS", 1)
    clock = SetClock()
    clock.seconds = FUTURE
    with ObjectStore(tmp_path / "s", clock=clock) as store:
        for n in range(6):
            keep_files(store, "a", {b"f": noise(n)})
            keep_files(store, "b", {b"f": noise(100 + n)})
            store.flush()
        store.settle()
        store.release("b")
        clock.seconds += RELEASED_SECONDS + 1
        store.collect(keep_taken_for=0)
        assert store.collect(keep_taken_for=0).freed > 100_000
        sizes = [pack.stat().st_size for pack in packs(tmp_path / "s")]
        assert max(sizes) < 60_000
        assert [read_files(store, tree) for tree in trees_of(store, "a")] == [
            {b"f": noise(n)} for n in reversed(range(6))
        ]
    check(tmp_path / "s")


def test_old_leftovers_go_and_young_ones_stay(tmp_path: Path) -> None:
    """Unfinished files of long ago are removed; today's may be somebody's."""
    with ObjectStore(tmp_path / "s"):
        pass
    names = ["journals/tmp_kedge_1", "objects/pack/tmp_pack_x", "objects/pack/pack-1.pack"]
    names += ["objects/pack/tmp_idx_x", "refs/kedge/session/a.lock", "objects/pack/pack-1.keep"]
    for name in names:
        (tmp_path / "s" / name).write_bytes(b"")
    with ObjectStore(tmp_path / "s"):
        assert all((tmp_path / "s" / name).exists() for name in names)
    for name in names:
        os.utime(tmp_path / "s" / name, (1, 1))
    with ObjectStore(tmp_path / "s"):
        assert not any((tmp_path / "s" / name).exists() for name in names)
    git(tmp_path / "s", "fsck")


_BACKGROUND = """
import os, sys
from pathlib import Path
import pygit2
from kedge.snapshot.objects import gc
from kedge.snapshot.objects.store import ObjectStore
from tests.snapshot.objects_git import keep_files

os.nice(int(sys.argv[2]))
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
gc.MANY_PACKS = 1
for number in range(4):
    with ObjectStore(Path(sys.argv[1])) as store:
        keep_files(store, "a", {b"file": b"%d" % number})
with ObjectStore(Path(sys.argv[1])) as store:
    print(store.collect(keep_taken_for=0).skipped, len(list(store.layout.packs.glob("*.pack"))))
"""


@pytest.mark.parametrize("niceness", [0, 15])
def test_packs_are_joined_at_any_niceness(niceness: int) -> None:
    """A process that is already more than polite, and may not be less, packs as it is."""
    with tempfile.TemporaryDirectory() as folder:
        if os.getuid() == 0:
            os.chown(folder, 65534, 65534)
        done = subprocess.run(
            [sys.executable, "-c", _BACKGROUND, f"{folder}/s", str(niceness)],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.stdout, done.stderr) == (" 1\n", "")


def test_packs_are_joined_where_no_priority_can_be_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sandbox that forbids to change priorities does not keep packs from being joined."""

    def forbidden(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", forbidden)
    monkeypatch.setattr(gc, "MANY_PACKS", 1)
    for number in range(4):
        with ObjectStore(tmp_path / "s") as store:
            keep_files(store, "a", {b"file": b"%d" % number})
    with ObjectStore(tmp_path / "s") as store:
        assert store.collect(keep_taken_for=0).skipped == ""
    assert len(packs(tmp_path / "s")) == 1
