"""Being the only kedge in a worktree: who waits for whom, and that nobody keeps it for good."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kedge.domain.errors import InvariantBroken, RootBusy, SnapshotError, SnapshotRefused
from kedge.domain.file_states import Absent, FileStep
from kedge.snapshot import Outcome, Present, Protection, Snapshots, SnapshotSettings
from kedge.snapshot.aio import AsyncSnapshots
from kedge.snapshot.exclusive import Order, Patience
from tests.snapshot.hung_filesystem import hanging

HOLD = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A worktree with one file."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_text("one\n")
    return root


def opened(root: Path, **settings: float) -> Snapshots:
    """The snapshots of a root, their data beside it."""
    chosen = SnapshotSettings(**settings)  # type: ignore[arg-type]  # the test knows their types
    return Snapshots.open(root, data=root.parent / "data", project="prj", settings=chosen)


@pytest.fixture
async def snapshots(root: Path) -> AsyncIterator[AsyncSnapshots]:
    """The asynchronous snapshots of the root."""
    async with await AsyncSnapshots.open(root, data=root.parent / "d", project="p") as snapshots:
        yield snapshots


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a worktree for long."""
    monkeypatch.setattr("kedge.snapshot.exclusive.PATIENCE", 0.05)


@pytest.fixture
def holder(root: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """Another process that has the worktree."""
    words = [sys.executable, "-c", HOLD, str(root)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def is_free(root: Path) -> bool:
    """Whether nobody has the worktree."""
    fd = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def test_only_one_has_a_worktree(root: Path, impatient: None) -> None:
    """Who enters while another kedge is in hears of it; who leaves lets the next one in."""
    with opened(root) as one, opened(root) as two:
        with one.ordered() as ordered:
            taken = ordered.track(session="ses_1")
            with pytest.raises(RootBusy), two.ordered():
                pass
            with pytest.raises(RootBusy):
                two.restore(taken)
            assert two.track().id == taken.id
        with two.ordered() as ordered:
            assert ordered.track().id == taken.id
    assert is_free(root)


def test_another_process_keeps_us_out_until_it_dies(
    root: Path, impatient: None, holder: "subprocess.Popen[bytes]"
) -> None:
    """The lock is the kernel's: it holds between processes and ends with its owner."""
    with opened(root) as snapshots:
        with pytest.raises(RootBusy), snapshots.ordered():
            pass
        holder.kill()
        holder.wait()
        with snapshots.ordered() as ordered:
            ordered.track()


async def test_a_task_waits_until_another_process_is_done(
    snapshots: AsyncSnapshots, holder: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it waits for another process, the event loop goes on."""
    refused, attempt = asyncio.Event(), Order.attempt
    loop = asyncio.get_running_loop()

    def telling(self: Order) -> object:
        held = attempt(self)
        if held is None:
            loop.call_soon_threadsafe(refused.set)
        return held

    monkeypatch.setattr(Order, "attempt", telling)

    async def track() -> str:
        async with snapshots.ordered() as ordered:
            return (await ordered.track()).id

    waiting = asyncio.create_task(track())
    await refused.wait()
    holder.kill()
    assert len(await waiting) == 40


async def test_tasks_take_turns_in_order_of_arrival(snapshots: AsyncSnapshots) -> None:
    """Tasks of one process never overlap, and nobody is overtaken."""
    inside: list[int] = []

    async def enter(number: int) -> None:
        async with snapshots.ordered() as ordered:
            inside.append(number)
            await ordered.track(session=f"ses_{number}")
            await asyncio.sleep(0)
            assert inside[-1] == number

    await asyncio.gather(*(enter(number) for number in range(12)))
    assert inside == list(range(12))


async def test_many_waiting_tasks_do_not_hold_up_the_one_inside(
    root: Path, snapshots: AsyncSnapshots
) -> None:
    """However many wait, whoever is inside still finds a thread to work in."""
    async with await AsyncSnapshots.open(root, data=root.parent / "e", project="p") as other:
        async with snapshots.ordered() as ordered:
            waiting = [asyncio.create_task(_track(one)) for one in (snapshots, other) * 20]
            await asyncio.sleep(0)
            await ordered.track()
            await ordered.look([b"a"])
            assert await ordered.apply([], tag="t") == []
        await asyncio.gather(*waiting)


async def _track(snapshots: AsyncSnapshots) -> None:
    async with snapshots.ordered() as ordered:
        await ordered.track()


async def test_a_task_does_not_wait_for_ever(
    root: Path, snapshots: AsyncSnapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting in the same process ends with the same error as waiting for another one."""
    async with snapshots.ordered():
        with monkeypatch.context() as patch:
            patch.setattr("kedge.snapshot.exclusive.PATIENCE", 0.01)
            with pytest.raises(RootBusy):
                await _track(snapshots)
    async with snapshots.ordered():
        pass
    assert is_free(root)


async def test_a_cancelled_waiter_leaves_no_lock(
    root: Path, snapshots: AsyncSnapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that is obtained after its waiter was cancelled is given back at once."""
    begun, go_on, given_back = threading.Event(), threading.Event(), threading.Event()
    attempt = Order.attempt

    def slowly(self: Order) -> object:
        begun.set()
        go_on.wait()
        held = attempt(self)
        assert held is not None
        release = held.release

        def tell() -> None:
            release()
            given_back.set()

        held.release = tell  # type: ignore[method-assign]
        return held

    monkeypatch.setattr(Order, "attempt", slowly)
    waiter = asyncio.create_task(_track(snapshots))
    await asyncio.to_thread(begun.wait)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    go_on.set()
    await asyncio.to_thread(given_back.wait)
    assert is_free(root)
    await _track(snapshots)


async def test_what_a_cancelled_task_began_keeps_the_worktree(
    root: Path, snapshots: AsyncSnapshots
) -> None:
    """Steps that are being applied are carried out, and nobody else is let in before."""
    begun, go_on = threading.Event(), threading.Event()
    (state,) = (await snapshots.look([b"a"])).values()
    assert isinstance(state, Present)
    steps = [
        FileStep(number=number, path=b"%d" % number, expect=Absent(), want=state)
        for number in (0, 1)
    ]

    def wait(result: object) -> None:
        begun.set()
        go_on.wait()

    async def apply() -> None:
        async with snapshots.ordered() as ordered:
            await ordered.apply(steps, tag="t", on_result=wait)

    task = asyncio.create_task(apply())
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_free(root)
    go_on.set()
    async with snapshots.ordered() as ordered:
        assert set(await ordered.look([b"0", b"1"])) == {b"0", b"1"}
        results = await ordered.apply(steps, tag="t")
    assert {result.outcome for result in results} == {Outcome.UNCHANGED}


async def test_a_snapshot_that_hangs_does_not_keep_the_worktree(
    root: Path, prompt: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given up, it has no number, so nobody has to wait for it; declared files can be undone."""
    async with hanging(root, monkeypatch) as snapshots:
        with pytest.raises(SnapshotError):
            await _track(snapshots)
        assert snapshots.status().protection is Protection.DEGRADED
        async with snapshots.ordered() as ordered:
            (state,) = (await ordered.look([b"a"])).values()
            step = FileStep(number=0, path=b"a", expect=state, want=Absent())  # type: ignore[arg-type]
            (result,) = await ordered.apply([step], tag="t")
            assert result.outcome is Outcome.DELETED


def test_a_folder_without_snapshots_has_an_order_too(root: Path) -> None:
    """What tools wrote there can be undone, though no snapshot is ever taken of it."""
    data = root.parent / "data"
    with (
        Snapshots.open(root, data=data, project="prj", way="declared") as snapshots,
        snapshots.ordered() as ordered,
    ):
        with pytest.raises(SnapshotRefused, match="declared"):
            ordered.track()
        (state,) = ordered.look([b"a"]).values()
        step = FileStep(number=0, path=b"a", expect=state, want=Absent())  # type: ignore[arg-type]
        (result,) = ordered.apply([step], tag="t")
        assert result.outcome is Outcome.DELETED


def test_a_worktree_that_was_let_go_is_not_used(root: Path) -> None:
    """After its block nobody can go on as if the worktree were still theirs."""
    with opened(root) as snapshots:
        with snapshots.ordered() as ordered:
            pass
        with pytest.raises(InvariantBroken):
            ordered.apply([], tag="t")


def test_a_root_that_was_replaced_has_no_order(root: Path) -> None:
    """Another folder in its place was not locked: what is seen there is no part of the order."""
    with opened(root) as snapshots:
        with snapshots.ordered() as ordered:
            root.rename(root.with_name("elsewhere"))
            root.mkdir()
            with pytest.raises(SnapshotError, match="replaced"):
                ordered.track()
        with snapshots.ordered() as ordered:
            assert ordered.track().id
        root.rmdir()
        with pytest.raises(SnapshotRefused, match="cannot be opened any more"), snapshots.ordered():
            pass


def test_closing_waits_for_whoever_applies(root: Path) -> None:
    """Steps that are being applied when the snapshots are closed are all carried out."""
    begun, go_on = threading.Event(), threading.Event()
    snapshots = opened(root)
    outcomes: list[Outcome] = []

    def wait(result: object) -> None:
        begun.set()
        go_on.wait()

    def apply() -> None:
        with snapshots.ordered() as ordered:
            (state,) = ordered.look([b"a"]).values()
            steps = [
                FileStep(number=0, path=b"a", expect=state, want=Absent()),  # type: ignore[arg-type]
                FileStep(number=1, path=b"b", expect=Absent(), want=state),  # type: ignore[arg-type]
            ]
            outcomes.extend(
                result.outcome for result in ordered.apply(steps, tag="t", on_result=wait)
            )

    worker = threading.Thread(target=apply)
    worker.start()
    begun.wait()
    closer = threading.Thread(target=snapshots.close)
    closer.start()
    go_on.set()
    worker.join()
    closer.join()
    assert outcomes == [Outcome.RECREATED, Outcome.DELETED]
    with pytest.raises(SnapshotRefused, match="closed"), snapshots.ordered():
        pass


def test_closed_asynchronous_snapshots_are_not_entered(root: Path) -> None:
    """Whoever goes on after closing gets a typed error."""

    async def enter() -> None:
        snapshots = await AsyncSnapshots.open(root, data=root.parent / "d", project="p")
        await snapshots.close()
        async with snapshots.ordered():
            pass

    with pytest.raises(SnapshotRefused, match="closed"):
        asyncio.run(enter())


def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be patient only with whoever looks."""
    monkeypatch.setattr("kedge.snapshot.exclusive.SOON", 0.01)
    monkeypatch.setattr("kedge.snapshot.exclusive.SURE", 0.05)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the system does not tell")
def test_who_has_the_worktree_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, holder: "subprocess.Popen[bytes]"
) -> None:
    """A process that is no kedge is not waited for, and one that is stopped is called so."""
    soon(monkeypatch)
    name = Path(f"/proc/{holder.pid}/comm").read_text().strip()
    with opened(root) as snapshots:
        with pytest.raises(RootBusy) as raised, snapshots.ordered():
            pass
        assert raised.value.holder == f"process {holder.pid} ({name})"
        assert raised.value.holder in str(raised.value)
        holder.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
        with pytest.raises(RootBusy, match="which is stopped"), snapshots.ordered():
            pass


def check_until_busy(patience: Patience) -> None:
    """It is sure of that soon."""
    with pytest.raises(RootBusy):  # noqa: PT012 - until it is
        while True:
            patience.check()


def test_a_moment_without_a_mark_is_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two that only look, and when one has just let go, nobody says that he looks."""
    soon(monkeypatch)
    monkeypatch.setattr("kedge.snapshot.exclusive.SURE", 20.0)
    with opened(root) as one, opened(root) as two:
        held = one.order.wait()
        patience = two.order.patience(time.monotonic() - 1)
        with held.changing():
            patience.check()
            patience.check()
        held.release()
        patience.check()


def test_whoever_only_looks_is_waited_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first snapshot of a large worktree takes its time; whoever changes files is named soon."""
    soon(monkeypatch)
    with opened(root) as one, opened(root) as two:
        held = one.order.wait()
        patience = two.order.patience(time.monotonic() - 1)
        patience.check()
        with held.changing():
            check_until_busy(patience)
        check_until_busy(patience)
        held.release()
        with two.ordered() as ordered:
            ordered.track()


async def test_whoever_waits_behind_others_waits_no_longer_than_they(
    snapshots: AsyncSnapshots,
    monkeypatch: pytest.MonkeyPatch,
    holder: "subprocess.Popen[bytes]",
) -> None:
    """All sessions in a folder that another process has hear of it at the same time."""
    arrivals: list[float] = []
    patience = Order.patience

    def remembered(order: Order, began: float) -> Patience:
        arrivals.append(began)
        return patience(order, began)

    monkeypatch.setattr(Order, "patience", remembered)
    soon(monkeypatch)

    async def enter() -> None:
        async with snapshots.ordered():
            pytest.fail("it was another's")

    tasks = [asyncio.create_task(enter()) for _ in range(5)]
    done = asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)
    came = time.monotonic()
    assert [type(each) for each in await done] == [RootBusy] * 5
    # Each counts from when it came, and none from when the one before it gave up.
    assert len(set(arrivals)) == 5
    assert max(arrivals) <= came


async def test_who_had_to_wait_for_this_process_has_patience_left(
    snapshots: AsyncSnapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What tasks of one process make each other wait is not the other process's fault."""
    began: list[float] = []
    patience = Order.patience

    def remembered(order: Order, since: float) -> Patience:
        began.append(since)
        return patience(order, since)

    monkeypatch.setattr(Order, "patience", remembered)
    attempt = Order.attempt
    tries = iter([False, True])
    waiting: list[asyncio.Task[None]] = []

    async def enter() -> None:
        async with snapshots.ordered():
            pass

    async with snapshots.ordered():
        waiting.append(asyncio.create_task(enter()))
        await asyncio.sleep(0)
        left = time.monotonic()
        monkeypatch.setattr(Order, "attempt", lambda order: attempt(order) if next(tries) else None)
    await waiting[0]
    assert began[-1] >= left


def test_a_stopped_process_that_only_looks_is_not_waited_for(
    root: Path, monkeypatch: pytest.MonkeyPatch, holder: "subprocess.Popen[bytes]"
) -> None:
    """It would look for as long as it is stopped."""
    soon(monkeypatch)
    with opened(root) as snapshots:
        order = snapshots.order
        mark = os.open(order._opened.looking, os.O_RDWR | os.O_CREAT)
        fcntl.flock(mark, fcntl.LOCK_SH)
        patience = order.patience(time.monotonic() - 1)
        patience.check()
        holder.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
        with pytest.raises(RootBusy, match="which is stopped"):  # noqa: PT012 - until it is
            while True:
                patience.check()
        os.close(mark)
