"""What goes wrong while an interrupted revert is carried through: no plan is closed for what may
pass, none keeps another from its turn, and no receipt says more than is known."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from kedge._failpoints import armed
from kedge.domain.errors import LeaseLost, RootBusy, SnapshotError, SnapshotStoreFull
from kedge.domain.events import SessionStatusChanged
from kedge.domain.messages import AssistantMessage
from kedge.domain.receipts import RevertScope
from kedge.domain.sessions import Busy, Idle
from kedge.engine.engine import Engine
from kedge.engine.revert import prepare, recover
from kedge.engine.session import Session
from kedge.snapshot.aio import AsyncOrdered
from kedge.store.queries.plans import StoredPlan, pending_plans, plan_steps, unfinished_plans
from kedge.store.queries.retention import purge_session
from tests.engine.engine_factory import EngineFactory, stored_log
from tests.engine.revert.scene import Crash, crash, names, put, told, turn
from tests.snapshot.test_exclusive import HOLD


@contextmanager
def held(folder: Path) -> Iterator[int]:
    """Another process that has the folder's lock; gives its id."""
    words = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for another process that has the folder."""
    monkeypatch.setattr("kedge.snapshot.exclusive.SOON", 0.0)


async def interrupted(
    engine: Engine, folder: Path, point: str = "after-apply", scope: RevertScope = "all"
) -> Session:
    """A session of which a revert got as far as a point: it had made a file and changed another."""
    put(folder / "old", "before\n")
    session = await engine.sessions.create(directory=folder)
    prompt = await turn(session, (folder / "old", "after\n"), (folder / "new", "after\n"))
    with armed(point, crash), pytest.raises(Crash):
        await session.revert(prompt, scope=scope)
    return session


async def only_plan(engine: Engine, session: Session) -> StoredPlan:
    """The plan of a session, which must be finished."""
    assert await engine.store.read(unfinished_plans) == []
    (plan,) = await engine.store.read(partial(pending_plans, session.id))
    return plan


async def outcomes(engine: Engine, plan: StoredPlan) -> dict[bytes, str | None]:
    """What is stored of each step."""
    steps = await engine.store.read(partial(plan_steps, plan.id))
    return {step.path: step.outcome for step in steps}


@pytest.mark.usefixtures("impatient")
async def test_the_folder_is_another_processes(place: EngineFactory, folder: Path) -> None:
    """The plan waits, whoever tries; its session is not idle, and whoever wants something of it
    hears which process has the folder."""
    async with place.open() as engine:
        session = await interrupted(engine, folder, "plan-stored")
        seen = len(await stored_log(engine))
        with held(folder) as pid:
            for _ in range(2):
                await engine.recovery.recover()
            (plan,) = await engine.store.read(unfinished_plans)
            assert plan.state == "planned"
            assert await session.status() == Busy()
            assert await engine.statuses() == {session.id: Busy()}
            for work in (turn(session), session.unrevert()):
                with pytest.raises(RootBusy, match=f"process {pid}"):
                    await work
            said = [each.type for each in (await stored_log(engine))[seen:]]
            assert SessionStatusChanged.type not in said
        assert (folder / "old").read_text() == "after\n"
        await engine.recovery.recover()
        assert told((await only_plan(engine, session)).data.receipt) == {
            "new": "deleted",
            "old": "restored",
        }
        assert await session.status() == Idle()
        assert await engine.statuses() == {}


@pytest.mark.usefixtures("impatient")
async def test_a_step_does_not_begin_in_a_folder_that_another_process_has(
    engine: Engine, folder: Path
) -> None:
    """What it would do could not be told from what that one does; the answer says who it is."""
    session = await engine.sessions.create()
    with held(folder) as pid:
        with pytest.raises(RootBusy, match=f"process {pid}"):
            await turn(session)
        (_, answer) = (await session.messages()).messages
        assert isinstance(answer.info, AssistantMessage)
        assert answer.info.error is not None
        assert f"process {pid}" in str(answer.info.error.data)
    assert await session.status() == Idle()
    await turn(session, (folder / "a", "1"))


@pytest.mark.usefixtures("impatient")
async def test_a_call_ends_in_a_folder_that_another_process_has(
    engine: Engine, folder: Path
) -> None:
    """It is not lost that it ran, nor why nothing more is known; the next call does not begin."""
    session = await engine.sessions.create()
    async with session.turn("Go on") as begun, begun.step() as step:
        with ExitStack() as stack:
            async with step.tool("bash", {}, effects="unknown") as call:
                pid = stack.enter_context(held(folder))
                call.title = "make"
            with pytest.raises(RootBusy, match=f"process {pid}"):
                async with step.tool("bash", {}, effects="unknown"):
                    pytest.fail("it began")
    receipt = await session.revert(begun.message.id)
    assert any(f"process {pid}" in note and "make" in note for note in receipt.notes)


@pytest.mark.parametrize("error", [SnapshotStoreFull(), OSError(errno.EMFILE, "too many files")])
async def test_what_passes_closes_no_plan(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A full disk, or a process with too few descriptors: it is carried through later."""
    session = await interrupted(engine, folder, "plan-stored")

    async def refuse(worktree: str, project: str) -> NoReturn:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(engine, "snapshots_of", refuse)
        await engine.recovery.recover()
    assert len(await engine.store.read(unfinished_plans)) == 1
    await engine.recovery.recover()
    assert told((await only_plan(engine, session)).data.receipt) == {
        "new": "deleted",
        "old": "restored",
    }


def fails(*arguments: object, **named: object) -> NoReturn:
    """What cannot be repaired."""
    raise SnapshotError("the disk is broken")


@pytest.mark.parametrize("point", ["plan-stored", "after-apply"])
async def test_a_revert_of_files_fails_when_its_folder_is_found(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """What was done before the crash is told as done, all else as skipped with the reason; nothing
    is told as unchanged."""
    session = await interrupted(engine, folder, point, "files")
    with monkeypatch.context() as patched:
        patched.setattr(AsyncOrdered, "clean_up", fails)
        await engine.recovery.recover()
    plan = await only_plan(engine, session)
    was_done = point == "after-apply"
    expected = {"new": "deleted", "old": "restored"}
    assert told(plan.data.receipt) == (expected if was_done else dict.fromkeys(expected, "skipped"))
    reasons = {entry.reason for entry in plan.data.receipt.files}
    assert reasons == ({None} if was_done else {"the disk is broken"})
    stored = await outcomes(engine, plan)
    assert set(stored.values()) == {"done" if was_done else "skipped"}
    await session.unrevert()
    assert (folder / "old").read_text() == "after\n"
    assert names(folder) == ["new", "old"]


async def test_a_revert_of_files_that_cannot_be_looked_at_is_not_ruled_out(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been done: the receipt does not say that it was, and an unrevert finds out."""
    session = await interrupted(engine, folder, "after-apply", "files")
    with monkeypatch.context() as patched:
        patched.setattr(AsyncOrdered, "clean_up", fails)
        patched.setattr(AsyncOrdered, "look", fails)
        await engine.recovery.recover()
    plan = await only_plan(engine, session)
    assert told(plan.data.receipt) == {"new": "skipped", "old": "skipped"}
    assert set((await outcomes(engine, plan)).values()) == {"unsure"}
    await session.unrevert()
    assert (folder / "old").read_text() == "after\n"
    assert names(folder) == ["new", "old"]


async def test_a_plan_that_another_machine_gave_up_is_not_ruled_out(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That machine cannot look whether it was done; back home, an unrevert finds out."""
    session = await interrupted(engine, folder)
    with monkeypatch.context() as patched:
        patched.setattr(engine.timeline, "machine", "another")
        patched.setattr(recover, "_PATIENCE", 0)
        await engine.recovery.recover()
    plan = await only_plan(engine, session)
    assert told(plan.data.receipt) == {"new": "skipped", "old": "skipped"}
    await session.unrevert()
    assert (folder / "old").read_text() == "after\n"
    assert names(folder) == ["new", "old"]


async def test_a_plan_that_is_gone_by_now(place: EngineFactory, folder: Path) -> None:
    """Another engine has carried it through since it was found; or its session was purged."""
    async with place.open() as engine, place.open() as other:
        session = await interrupted(engine, folder)
        (plan,) = await engine.store.read(unfinished_plans)
        await other.recovery.recover()
        put(folder / "old", "by a person\n")
        log = await stored_log(engine)
        await engine.reverts._unfinished._carry_through(plan)
        assert (folder / "old").read_text() == "by a person\n"
        assert await stored_log(engine) == log
        await session.delete()
        await engine.store.write(partial(purge_session, session.id, 2**62))
        await engine.reverts._unfinished._carry_through(plan)
        assert (folder / "old").read_text() == "by a person\n"


async def test_one_that_fails_in_an_unexpected_way_keeps_no_other_from_its_turn(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the engine from starting; it is tried again."""
    sessions = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        sessions.append(await interrupted(engine, tmp_path / name, "plan-stored"))
    lock = prepare.lock_files

    async def stumble(stack: object, locks: object, root: str, paths: object) -> set[bytes]:
        if root.endswith("one"):
            raise RuntimeError("a bug")
        return await lock(stack, locks, root, paths)  # type: ignore[arg-type]  # passed on

    with monkeypatch.context() as patched:
        patched.setattr(recover, "lock_files", stumble)
        await engine.recovery.recover()
    assert (tmp_path / "two" / "old").read_text() == "before\n"
    (left,) = await engine.store.read(unfinished_plans)
    assert left.session_id == sessions[0].id
    assert await sessions[0].status() == Busy()
    await engine.recovery.recover()
    assert (tmp_path / "one" / "old").read_text() == "before\n"


async def test_a_session_that_is_lost_in_the_middle_of_recovery(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one carries it through; this one does not close what it has not done."""
    session = await interrupted(engine, folder, "plan-stored")

    def lost() -> NoReturn:
        raise LeaseLost(session.id)

    with monkeypatch.context() as patched:
        patched.setattr(engine.runs, "still_held", lambda: lambda fence: lost())
        await engine.recovery.recover()
    assert len(await engine.store.read(unfinished_plans)) == 1
    assert (folder / "old").read_text() == "after\n"
    await engine.recovery.recover()
    assert (folder / "old").read_text() == "before\n"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can be mounted only by root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Leave no byte free."""
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1 << 16)):
            pass


async def test_a_full_disk_while_journals_grow(
    place: EngineFactory, folder: Path, small_disk: Path
) -> None:
    """A revert that cannot keep what it would replace does nothing at all; one that was interrupted
    is carried through all the same, and keeps no engine from starting."""
    put(folder / "old", "before\n")
    async with place.open(data_dir=small_disk) as engine:
        session = await engine.sessions.create()
        prompt = await turn(session, (folder / "old", "after\n"), (folder / "new", "after\n"))
        fill(small_disk)
        put(folder / "old", "after\n" + os.urandom(4 << 20).hex() + "\n")
        with pytest.raises(SnapshotStoreFull):
            await session.revert(prompt)
        assert await session.status() == Idle()
        assert await engine.store.read(unfinished_plans) == []
        (small_disk / "filler").unlink()
        put(folder / "old", "after\n")
        with armed("plan-stored", crash), pytest.raises(Crash):
            await session.revert(prompt)
    fill(small_disk)
    # What it writes is in the store already.
    async with place.open(data_dir=small_disk) as engine:
        session = await engine.sessions.get(session.id)
        receipt = (await only_plan(engine, session)).data.receipt
        assert told(receipt) == {"new": "deleted", "old": "restored"}
        assert (folder / "old").read_text() == "before\n"
