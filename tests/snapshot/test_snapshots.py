"""The face of snapshots: states of protection, what runs in the background, what the next process
knows, and the asynchronous face."""

import asyncio
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.domain.errors import (
    DirectoryNotFound,
    InvalidInput,
    SnapshotError,
    SnapshotNotFound,
    SnapshotRefused,
    SnapshotTimeout,
)
from kedge.snapshot import (
    Outcome,
    Patch,
    Present,
    Protection,
    Snapshots,
    SnapshotSettings,
    State,
)
from kedge.snapshot.aio import AsyncSnapshots
from kedge.snapshot.maintenance import Maintenance
from kedge.snapshot.objects import git_cli
from kedge.snapshot.objects.git_cli import PackingFailed
from kedge.snapshot.objects.store import ObjectStore
from kedge.snapshot.worktree import seed
from kedge.snapshot.worktree.state import WorktreeState
from tests.snapshot.hung_filesystem import hanging


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A worktree with two files."""
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("one\n")
    (root / "sub/b.txt").write_text("two\n")
    return root


def opened(root: Path, way: str | None = None, **settings: float) -> Snapshots:
    """The snapshots of a root, their data beside it."""
    chosen = SnapshotSettings(**settings)  # type: ignore[arg-type]  # the test knows their types
    return Snapshots.open(root, data=root.parent / "data", project="prj", settings=chosen, way=way)


def git(root: Path, *words: str) -> None:
    """Run git as the user would."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(root.parent)}
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "-C", str(root), *identity, *words], check=True, env=environment)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Lets no refresh end before the event is set, unless it has no deadline."""
    gate = threading.Event()
    refresh = WorktreeState.refresh

    def slowly(self: WorktreeState, deadline: float = float("inf")) -> None:
        if deadline == float("inf"):
            gate.wait()
        refresh(self, deadline if deadline == float("inf") else 0)

    monkeypatch.setattr(WorktreeState, "refresh", slowly)
    yield gate
    gate.set()


def test_the_budget_is_paid_once(root: Path, slow: threading.Event) -> None:
    """After a time-out the worktree is degraded, which costs nothing more, until a scan ended."""
    with opened(root, budget=5) as snapshots:
        with pytest.raises(SnapshotTimeout):
            snapshots.track()
        status = snapshots.status()
        assert status.protection is Protection.DEGRADED
        assert "5 s" in status.reason
        with pytest.raises(SnapshotTimeout, match="only files that tools write"):
            snapshots.track()
        states = snapshots.capture([b"a.txt"])
        assert snapshots.read(states[b"a.txt"].blob) == b"one\n"  # type: ignore[union-attr]
        slow.set()
        with snapshots._guard.patient_turn():
            pass
        snapshots._upkeep._rescan()
        assert snapshots.status().protection is Protection.PENDING


def test_the_home_folder_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home folder, what holds it and `/` have no snapshots, but the session can go on."""
    monkeypatch.setenv("HOME", str(root))
    for refused in (root, root.parent, Path("/")):
        with Snapshots.open(refused, data=root.parent / "data", project="prj") as snapshots:
            assert snapshots.status().protection is Protection.REFUSED
            with pytest.raises(SnapshotRefused, match="work in a folder"):
                snapshots.track()
    with opened(root / "sub") as snapshots:
        snapshots.track()


def test_too_many_files_are_a_state(root: Path) -> None:
    """A worktree over the limit is refused, and says so from then on."""
    with opened(root, files=1) as snapshots:
        with pytest.raises(SnapshotRefused, match="more than 1 files"):
            snapshots.track()
        assert snapshots.status().protection is Protection.REFUSED
        with pytest.raises(SnapshotRefused):
            snapshots.track()


def test_declared_paths_alone_can_be_asked_for(root: Path) -> None:
    """Then nothing is scanned, and captures still work."""
    with opened(root, way="declared") as snapshots:
        assert snapshots.status().way == "declared"
        with pytest.raises(SnapshotRefused, match="declared"):
            snapshots.track()
        snapshots.capture([b"sub/b.txt"])
        assert snapshots.status().files == 0


def test_wrong_arguments_are_told(root: Path) -> None:
    """A folder that is not there, an unknown way and an unknown snapshot are typed errors."""
    with pytest.raises(DirectoryNotFound):
        opened(root / "nowhere")
    with pytest.raises(InvalidInput, match="inotify, scan, declared"):
        opened(root, way="magic")
    with opened(root) as snapshots:
        for unknown in ("0" * 40, "not an id", ""):
            with pytest.raises(SnapshotNotFound):
                snapshots.restore(unknown)


def test_the_next_process_reads_nothing_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one process knew of unchanged files, the next one need not read."""
    # As if the files had rested for long enough to be trusted.
    monkeypatch.setattr("kedge.snapshot.resources.racy_window", lambda *_: 0)
    with opened(root, way="scan") as snapshots:
        first = snapshots.track()
        assert snapshots._worktree.covered.reads == 2
    with opened(root, way="scan") as snapshots:
        assert snapshots.track() == first
        assert snapshots._worktree.covered.reads == 0
        (root / "a.txt").write_text("changed\n")
        assert snapshots.track() != first


def test_a_damaged_memory_is_no_memory(root: Path) -> None:
    """Whatever stands in the memory file, the snapshot is right."""
    with opened(root) as snapshots:
        first = snapshots.track()
        memory = snapshots._opened.memory
    for content in (b"", b"\x00" * 100, memory.read_bytes()[:-5]):
        memory.write_bytes(content)
        with opened(root) as snapshots:
            assert snapshots.track().id == first.id


def test_the_head_is_told(root: Path) -> None:
    """A snapshot says where the user's own repository stood, also when it is found by its id."""
    git(root, "init", "-q", "-b", "trunk")
    with opened(root) as snapshots:
        unborn = snapshots.track().head
        assert unborn is not None
        assert (unborn.ref, unborn.commit) == ("refs/heads/trunk", None)
        git(root, "add", "-A")
        git(root, "commit", "-qm", "x")
        born = snapshots.track()
    with opened(root) as snapshots:
        assert snapshots._find(born.id).head == born.head
        assert born.head is not None
        assert born.head.commit is not None


def test_a_revert_takes_the_first_patch_of_a_file(root: Path) -> None:
    """Each file goes back to where the first patch that names it began; others stay."""
    with opened(root) as snapshots:
        one = snapshots.track()
        (root / "a.txt").write_text("changed\n")
        (root / "new.txt").write_text("new\n")
        first = snapshots.patch(one)
        two = snapshots.track()
        (root / "a.txt").write_text("changed again\n")
        (root / "sub/b.txt").write_text("mine\n")
        outside = str(root.parent / "outside")
        second = Patch(two.id, (str(root / "a.txt"), outside))
        results = {result.path: result.outcome for result in snapshots.revert([first, second])}
    assert results == {
        b"a.txt": Outcome.RESTORED,
        b"new.txt": Outcome.DELETED,
        os.fsencode(outside): Outcome.SKIPPED,
    }
    assert (root / "a.txt").read_text() == "one\n"
    assert (root / "sub/b.txt").read_text() == "mine\n"
    assert not (root / "new.txt").exists()


def test_a_session_that_is_released_keeps_nothing(root: Path) -> None:
    """What only a released session kept is gone after a collection; what others keep is not."""
    with opened(root) as snapshots:
        snapshots.track(session="ses_1")
        (root / "a.txt").write_text("for two\n")
        two = snapshots.track(session="ses_2")
        snapshots.release("ses_1")
    with opened(root) as snapshots:
        snapshots._store.collect(keep_taken_for=0)
        assert snapshots.changes(two.id, two.id) == ()
        snapshots.restore(two.id)


async def test_the_loop_goes_on_while_snapshots_are_taken(root: Path) -> None:
    """The asynchronous face answers the same, and never blocks the event loop."""
    async with await AsyncSnapshots.open(root, data=root.parent / "d", project="p") as snapshots:
        one = await snapshots.track(session="ses_1")
        (root / "a.txt").write_text("changed\n")
        two = await snapshots.track()
        (change,) = await snapshots.changes(one, two)
        assert change.path == b"a.txt"
        assert (await snapshots.patch(one)).files == (str(root / "a.txt"),)
        assert "+changed" in await snapshots.diff(one)
        assert [diff.file for diff in await snapshots.diff_full(one, two)] == ["a.txt"]
        states = await snapshots.capture([b"a.txt"])
        assert await snapshots.read(states[b"a.txt"].blob) == b"changed\n"  # type: ignore[union-attr]
        assert [result.outcome for result in await snapshots.restore(one)] == [Outcome.RESTORED]
        assert [result.outcome for result in await snapshots.revert([])] == []
        assert await snapshots.verify() == []
        await snapshots.release("ses_1")
        assert snapshots.status().protection is Protection.FULL


async def test_a_hanging_file_system_does_not_hang_the_caller(
    root: Path, prompt: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a system call never returns, the caller hears of it within the budget."""
    async with hanging(root, monkeypatch) as snapshots:
        with pytest.raises(SnapshotTimeout):
            await snapshots.track()
        assert snapshots.status().protection is Protection.DEGRADED


async def test_several_at_once_take_turns(root: Path) -> None:
    """Snapshots that are asked for at the same time are each right."""
    async with await AsyncSnapshots.open(root, data=root.parent / "d", project="p") as snapshots:
        taken = await asyncio.gather(*(snapshots.track(session=f"ses_{n}") for n in range(8)))
        assert len({snapshot.id for snapshot in taken}) == 1


def test_folders_without_a_file_do_not_stand_in_the_way(root: Path) -> None:
    """A restored file takes the place of hollow folders, never of one that holds anything."""
    with opened(root) as snapshots:
        one = snapshots.track()
        for name in ("a.txt", "sub/b.txt"):
            (root / name).unlink()
            (root / name / "deep" / "er").mkdir(parents=True)
        (root / "sub/b.txt/deep/.gitignore").write_text("*\n")
        (root / "sub/b.txt/deep/er/precious").write_text("ignored\n")
        outcomes = {result.path: result.outcome for result in snapshots.restore(one)}
    assert outcomes[b"a.txt"] is Outcome.RECREATED
    assert outcomes[b"sub/b.txt"] is Outcome.CONFLICT
    assert (root / "a.txt").read_text() == "one\n"
    assert (root / "sub/b.txt/deep/er/precious").read_text() == "ignored\n"


def test_closed_snapshots_stay_closed(root: Path) -> None:
    """Closing twice is fine; whoever goes on is told."""
    snapshots = opened(root)
    snapshots.track()
    snapshots.close()
    snapshots.close()
    with pytest.raises(SnapshotRefused, match="closed"):
        snapshots.track()
    with pytest.raises(SnapshotError, match="closed"):
        snapshots.restore("0" * 40)


def test_closing_waits_for_whoever_is_at_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that is being taken when the snapshots are closed is still taken whole."""
    begun, go_on, refresh = threading.Event(), threading.Event(), WorktreeState.refresh

    def slowly(self: WorktreeState, deadline: float = float("inf")) -> None:
        begun.set()
        go_on.wait()
        refresh(self, deadline)

    snapshots = opened(root)
    monkeypatch.setattr(WorktreeState, "refresh", slowly)
    taken: list[str] = []
    taker = threading.Thread(target=lambda: taken.append(snapshots.track().id))
    taker.start()
    begun.wait()
    closer = threading.Thread(target=snapshots.close)
    closer.start()
    go_on.set()
    taker.join()
    closer.join()
    with opened(root) as again:
        assert [again.track().id] == taken


def test_closing_waits_for_a_capture(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a tool says it is about to write is stored, though the snapshots are being closed."""
    begun, go_on, flush = threading.Event(), threading.Event(), ObjectStore.flush

    def slowly(self: ObjectStore) -> None:
        begun.set()
        go_on.wait()
        flush(self)

    snapshots = opened(root)
    monkeypatch.setattr(ObjectStore, "flush", slowly)
    states: dict[bytes, State] = {}
    capturer = threading.Thread(target=lambda: states.update(snapshots.capture([b"a.txt"])))
    capturer.start()
    begun.wait()
    closer = threading.Thread(target=snapshots.close)
    closer.start()
    while not snapshots._guard.is_closing:
        pass
    go_on.set()
    capturer.join()
    closer.join()
    (state,) = states.values()
    assert isinstance(state, Present)
    with opened(root) as again:
        assert again.read(state.blob) == b"one\n"


def test_what_is_uncovered_now_is_not_reverted(root: Path) -> None:
    """A file that the user has begun to ignore is theirs: no revert deletes or overwrites it."""
    with opened(root) as snapshots:
        one = snapshots.track()
        (root / "notes.db").write_text("an agent's\n")
        (root / "a.txt").write_text("an agent's\n")
        patch = snapshots.patch(one)
        (root / ".gitignore").write_text("notes.db\na.txt\n")
        for name in ("notes.db", "a.txt"):
            (root / name).write_text("a week of work\n")
        results = {result.path: result for result in snapshots.revert([patch])}
        assert {result.outcome for result in results.values()} == {Outcome.SKIPPED}
        assert "ignored" in results[b"notes.db"].reason
    for name in ("notes.db", "a.txt"):
        assert (root / name).read_text() == "a week of work\n"


def test_too_many_files_are_refused_only_while_they_are(root: Path) -> None:
    """Once there are fewer, the next look in the background lifts the refusal."""
    for number in range(5):
        (root / f"many{number}").write_text("x")
    with opened(root, files=4) as snapshots:
        with pytest.raises(SnapshotRefused):
            snapshots.track()
        snapshots._upkeep._attempt(snapshots._upkeep._rescan)
        assert snapshots.status().protection is Protection.REFUSED
        (root / ".gitignore").write_text("many*\n")
        snapshots._upkeep._attempt(snapshots._upkeep._rescan)
        assert snapshots.status().protection is Protection.PENDING
        snapshots.track()
        assert snapshots.status().files == 3


def test_a_forked_child_does_not_take_what_is_its_parents(root: Path) -> None:
    """The child is told to open its own; the parent still notices everything."""
    with opened(root) as snapshots:
        one = snapshots.track()
        (root / "a.txt").write_text("changed\n")
        child = os.fork()
        if not child:
            try:
                snapshots.track()
            except SnapshotRefused:
                snapshots.close()
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        (change,) = snapshots.changes(one, snapshots.track())
        assert change.path == b"a.txt"


def test_a_root_that_was_replaced_is_captured_anew(root: Path) -> None:
    """A capture answers for the folder that stands at the path now."""
    with opened(root) as snapshots:
        snapshots.track()
        root.rename(root.with_name("elsewhere"))
        root.mkdir()
        (root / "a.txt").write_text("of another folder\n")
        (state,) = snapshots.capture([b"a.txt"]).values()
        assert snapshots.read(state.blob) == b"of another folder\n"  # type: ignore[union-attr]


async def test_closed_asynchronous_snapshots_say_so(root: Path) -> None:
    """Closing twice is fine; whoever goes on gets a typed error."""
    snapshots = await AsyncSnapshots.open(root, data=root.parent / "d", project="p")
    await snapshots.track()
    await snapshots.close()
    await snapshots.close()
    for call in (snapshots.track(), snapshots.capture([b"a.txt"]), snapshots.verify()):
        with pytest.raises(SnapshotRefused, match="closed"):
            await call


def test_nothing_is_protected_before_the_first_snapshot(root: Path) -> None:
    """The status says `protected` only when there is a snapshot to go back to."""
    with opened(root) as snapshots:
        assert snapshots.status().protection is Protection.PENDING
        assert snapshots.status().reason
        snapshots.capture([b"a"])
        assert snapshots.status().protection is Protection.PENDING
        snapshots.track()
        assert snapshots.status().protection is Protection.FULL
        assert snapshots.status().reason == ""


@pytest.fixture
def repository(root: Path) -> Path:
    """The worktree as a repository whose objects are packed and whose index can be trusted."""
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "all")
    git(root, "gc", "-q")
    clock, last = root.parent / "clock", (root / ".git/index").stat().st_mtime_ns
    clock.touch()
    while clock.stat().st_mtime_ns <= last:
        os.utime(clock)
    git(root, "update-index", "--refresh", "--force-write-index")
    return root


def test_closing_ends_a_first_snapshot_that_never_was(
    repository: Path, slow: threading.Event
) -> None:
    """What a snapshot that timed out was copying keeps no collection waiting after the end."""
    with opened(repository, budget=5) as snapshots:
        with pytest.raises(SnapshotTimeout):
            snapshots.track()
        with ObjectStore(snapshots._store.layout.root) as store:
            assert "copying" in store.collect(keep_taken_for=0).skipped
        slow.set()
    with ObjectStore(snapshots._store.layout.root) as store:
        assert store.collect(keep_taken_for=0).skipped == ""


def test_a_seed_is_finished_by_the_snapshot_after_a_time_out(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time-out while the seed is read leaves the next snapshot whole, without the repository."""
    refresh, failures = WorktreeState.refresh, iter([SnapshotTimeout("no time")])

    def once(self: WorktreeState, deadline: float = float("inf")) -> None:
        refresh(self, deadline)
        for failure in failures:
            self._doubt = True
            raise failure

    monkeypatch.setattr(WorktreeState, "refresh", once)
    with opened(repository) as snapshots:
        with pytest.raises(SnapshotTimeout):
            snapshots.track()
        snapshots._upkeep._rescan()
        assert snapshots._store.collect(keep_taken_for=0).skipped == ""
        one = snapshots.track()
        assert snapshots.status().seeded == 2
        shutil.rmtree(repository / ".git")
        (repository / "a.txt").write_text("lost?\n")
        snapshots.restore(one)
        assert (repository / "a.txt").read_text() == "one\n"
        assert snapshots._store.collect(keep_taken_for=0).skipped == ""


@pytest.mark.parametrize("setting", ["FEWEST_FILES", "LARGEST_BLOB"])
def test_what_is_read_as_quickly_is_read(
    repository: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """Git is not started for a few files, nor does it copy large ones."""
    monkeypatch.setattr(seed, setting, {"FEWEST_FILES": 3, "LARGEST_BLOB": 3}[setting])
    with opened(repository) as snapshots:
        one = snapshots.track()
        assert snapshots.status().seeded == 0
        shutil.rmtree(repository)
        repository.mkdir()
        snapshots.restore(one)
        assert (repository / "sub/b.txt").read_text() == "two\n"


def test_the_scan_after_a_time_out_leaves_nothing_to_read(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be copied is read in the background; collections go on before a snapshot."""
    refresh, failures = WorktreeState.refresh, iter([SnapshotTimeout("no time")])

    def once(self: WorktreeState, deadline: float = float("inf")) -> None:
        refresh(self, deadline)
        for failure in failures:
            self._doubt = True
            raise failure

    def not_packed(*_: object) -> str:
        raise PackingFailed("it is a test")

    monkeypatch.setattr("kedge.snapshot.resources.racy_window", lambda *_: 0)
    monkeypatch.setattr(WorktreeState, "refresh", once)
    monkeypatch.setattr(git_cli, "pack_objects", not_packed)
    monkeypatch.setattr(Maintenance, "_start", lambda _: None)
    with opened(repository) as snapshots:
        with pytest.raises(SnapshotTimeout):
            snapshots.track()
        snapshots._upkeep._rescan()
        assert snapshots.status().protection is Protection.PENDING
        assert list(snapshots._store.layout.workshops.iterdir()) == []
        assert snapshots._store.collect(keep_taken_for=0).skipped == ""
        reads = snapshots._worktree.covered.reads
        one = snapshots.track()
        assert snapshots._worktree.covered.reads == reads == 2
        (repository / "a.txt").write_text("lost?\n")
        snapshots.restore(one)
        assert (repository / "a.txt").read_text() == "one\n"


def test_a_copy_that_fails_is_not_tried_for_ever(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error that nobody expected the next snapshot reads the files."""

    def broken(*_: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(git_cli, "pack_objects", broken)
    with opened(repository) as snapshots:
        with pytest.raises(ZeroDivisionError):
            snapshots.track()
        one = snapshots.track()
        assert snapshots.status().seeded == 0
        shutil.rmtree(repository / ".git")
        (repository / "a.txt").write_text("lost?\n")
        snapshots.restore(one)
        assert (repository / "a.txt").read_text() == "one\n"


def test_data_may_be_at_a_relative_path(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is found there by git too, and after the process went to another folder."""
    monkeypatch.chdir(repository.parent)
    with Snapshots.open("root", data="data", project="prj") as snapshots:
        monkeypatch.chdir("/")
        snapshots.track()
        assert snapshots.status().seeded == 2
    assert list((repository.parent / "data/snapshots/prj/roots").iterdir())
