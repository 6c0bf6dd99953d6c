"""Whose it is what was done around the death of a process: by the time of its last heartbeat."""

import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from kedge.domain.file_states import Absent, Present
from kedge.domain.sessions import Idle
from kedge.engine import heartbeats
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.engine.settings import data_folder
from kedge.engine.timeline import observed
from kedge.engine.timeline.observed import Life, doubted
from kedge.snapshot.worktree.filesystems import Mounts
from kedge.store.queries.changes import NewChange, calls_between
from kedge.store.queries.timeline import calls_of_machine
from tests.engine.engine_factory import EngineFactory
from tests.engine.engine_processes import Child
from tests.engine.timeline.test_calls import calls, changes, put, told
from tests.support.polling import until_beaten

OBSERVED = NewChange(path=b"file", before=Absent(), after=Present("", 0), source="observed")


@dataclass(frozen=True)
class Scene:
    """An engine, and a process that is at work in one of its sessions."""

    engine: Engine
    session: Session
    child: Child
    folder: Path

    async def does(self, line: str) -> None:
        """Have the process do something."""
        await self.child.say(line)
        assert await self.child.hear() == "done"

    async def recovered(self) -> dict[bytes, str]:
        """Find out what the process did; gives the source of each path."""
        await self.engine.recovery.recover()
        assert self.engine.recovery.sessions == [self.session.id]
        assert await self.session.status() == Idle()
        assert await calls(self.engine) == []
        return {path: source for source, path in await told(self.session) if path}


@asynccontextmanager
async def at_work(place: EngineFactory, role: str = "obey") -> AsyncIterator[Scene]:
    """A process in the middle of a shell call, and of one that declared that it writes a file."""
    async with place.open() as engine:
        session = await engine.sessions.create()
        async with Child(place, role, session.id) as child:
            assert await child.hear() == "at work"
            yield Scene(engine, session, child, place.folder)


async def test_what_a_person_does_after_the_kill_is_not_the_agents(
    any_place: EngineFactory, tmp_path: Path
) -> None:
    """However it comes into the worktree: no undo takes it back. What came before the last sign of
    life is the call's."""
    folder = any_place.folder
    for name in ("edited", "gone/file", "renamed", "in/deep/gone", "swapped/file"):
        put(folder / name, "in the beginning")
    for name in ("old/file", "other/file"):
        put(tmp_path / name, "from another day")
    async with at_work(any_place) as scene:
        await scene.does("echo agent > declared; echo agent > shell; echo agent > both")
        await scene.does("mkdir by; echo agent > by/agent; mv edited agents; echo agent > edited")
        await scene.does("mkdir src; echo agent > src/agent")
        await scene.does("beat")
        await scene.child.kill()
        put(folder / "new", "a morning's work")
        put(folder / "declared", "a person's line")
        put(folder / "both", "a person's line")
        shutil.copy2(tmp_path / "old" / "file", folder / "copied")
        (folder / "gone" / "file").unlink()
        (folder / "renamed").rename(folder / "named")
        (folder / "src").rename(folder / "lib")
        (tmp_path / "old").rename(folder / "moved in")
        shutil.rmtree(folder / "in")
        (folder / "swapped").rename(tmp_path / "swapped")
        (tmp_path / "other").rename(folder / "swapped")
        found = await scene.recovered()
    agents = [b"agents", b"by/agent", b"edited", b"shell"]
    persons = [b"both", b"copied", b"declared", b"gone/file", b"in/deep/gone", b"lib/agent"]
    persons += [b"named", b"new", b"renamed"]
    expected = dict.fromkeys(agents, "observed") | dict.fromkeys(persons, "shared")
    # These are older than the call: nobody wrote them since.
    assert found == expected | dict.fromkeys([b"moved in/file", b"swapped/file"], "uncovered")


async def test_a_process_that_is_paused_and_then_killed(place: EngineFactory) -> None:
    """While it is paused it gives no sign of life."""
    async with at_work(place, "obey_alive") as scene:
        await scene.does("echo agent > shell")
        await until_beaten(data_folder(None), place.folder / "shell")
        scene.child.pause()
        put(place.folder / "new", "a person's")
        await scene.child.kill()
        found = await scene.recovered()
    assert found == {b"new": "shared", b"shell": "observed"}


async def test_without_a_sign_of_life_nothing_is_the_agents(place: EngineFactory) -> None:
    """The data folder is another one, or somebody cleaned it up."""
    async with at_work(place) as scene:
        await scene.does("echo agent > declared; echo agent > shell")
        await scene.does("beat")
        await scene.child.kill()
        shutil.rmtree(data_folder(None) / "heartbeats")
        found = await scene.recovered()
    assert found == {b"declared": "shared", b"shell": "shared"}


async def test_what_ran_on_another_machine_is_not_looked_at(any_place: EngineFactory) -> None:
    """Its files are not those of the same name here; the receipt of a revert will say so."""
    async with at_work(any_place) as scene:
        await scene.does("echo agent > declared; echo agent > shell")
        await scene.does("beat")
        await scene.child.kill()
        left_by = scene.engine.timeline.machine
        scene.engine.timeline.machine = "another one"
        await scene.engine.recovery.recover()
        assert scene.engine.recovery.sessions == [scene.session.id]
        found = [(each.source, each.path, each.reason) for each in await changes(scene.session)]
        left = await scene.engine.store.scan(partial(calls_of_machine, left_by))
        ran = await scene.engine.store.scan(partial(calls_between, scene.session.id, 0))
    reason = "it was interrupted on another machine"
    assert found == [("uncovered", b"declared", reason)]
    assert [call.reason for call in ran] == [reason]
    assert left
    assert all(call.ended is not None for call in left)


async def test_the_heart_beats_while_the_event_loop_is_busy(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a thread of its own; while no call runs, that sleeps."""
    monkeypatch.setattr(heartbeats, "EVERY", 0.001)
    with engine.heartbeat.beating() as first:
        assert first is not None
        # Nothing of the loop runs meanwhile.
        while beat_of(engine) <= first:
            pass
    while not engine.heartbeat._sleeps:
        pass
    last = beat_of(engine)
    with engine.heartbeat.beating() as again:
        assert again is not None
        assert again >= last
        while beat_of(engine) <= again:
            pass


async def test_a_call_begins_and_ends_with_a_beat(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it is known since when it runs, and what it did when it was over is its own."""
    monkeypatch.setattr(heartbeats, "EVERY", 1e6)
    session = await engine.sessions.create()
    async with session.turn("Go on") as turn, turn.step() as step:
        async with step.tool("bash", {}, effects="unknown"):
            began = beat_of(engine)
            put(folder / "file", "x")
        assert began <= (folder / "file").stat().st_ctime_ns <= beat_of(engine)
        async with step.tool("write", {}, writes=["declared"]):
            put(folder / "declared", "x")
        assert (folder / "declared").stat().st_ctime_ns <= beat_of(engine)
    assert engine.heartbeat._running == 0


def beat_of(engine: Engine) -> int:
    """When an engine has beaten last."""
    return (engine.data / "heartbeats" / engine.runs.engine_id).stat().st_ctime_ns


async def test_files_of_heartbeats_go_with_their_engines(place: EngineFactory) -> None:
    """At once with one that is closed; with one that was killed, when its sessions are recovered;
    never with one that runs."""
    beats = data_folder(None) / "heartbeats"
    async with at_work(place) as scene:
        (running,) = beats.iterdir()
        async with place.open() as other:
            with other.heartbeat.beating():
                assert len(list(beats.iterdir())) == 2
        assert list(beats.iterdir()) == [running]
        await scene.child.kill()
        await scene.engine.recovery._forget_beats()
        assert list(beats.iterdir()) == [running]
        await scene.recovered()
        await scene.engine.recovery._forget_beats()
        assert list(beats.iterdir()) == []


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """What was saved since may be older than the last beat by its time stamp; the beat counts as
    that much older."""
    heart = heartbeats.Heartbeat(tmp_path, "one")
    with heart.beating() as beat:
        assert beat is not None
        path = tmp_path / "heartbeats" / "one"
        now = int.from_bytes(path.read_bytes(), signed=True)
        hour = 3600 * 10**9
        path.write_bytes((now + hour).to_bytes(8, signed=True))
        found = heartbeats.last_beat(tmp_path, "one")
        assert found is not None
        # How far two clocks are from each other cannot be read to the nanosecond.
        assert abs(path.stat().st_ctime_ns - hour - found) < 10**9
        path.write_bytes((now - hour).to_bytes(8, signed=True))
        assert heartbeats.last_beat(tmp_path, "one") == path.stat().st_ctime_ns
        path.write_bytes(b"half")
        assert heartbeats.last_beat(tmp_path, "one") is None
    heart.close()
    assert heartbeats.last_beat(tmp_path, "one") is None


def test_a_heartbeat_that_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The call goes on, without a beat; that is said once."""
    (tmp_path / "heartbeats").write_text("in the way")
    heart = heartbeats.Heartbeat(tmp_path, "one")
    with heart.beating() as first:
        assert first is None
        assert heart.beat() is None
    heart.close()
    assert [record.message for record in caplog.records if "heartbeat" in record.message] != []
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("since", "until", "source"),
    [
        pytest.param(0, 1, "observed", id="changed before the last beat"),
        pytest.param(0, 0, "shared", id="changed at the last beat"),
        pytest.param(0, -1, "shared", id="changed after the last beat"),
        pytest.param(None, 1, "shared", id="nobody knows since when"),
        pytest.param(0, None, "shared", id="nobody knows until when"),
    ],
)
def test_what_is_doubted(tmp_path: Path, since: int | None, until: int | None, source: str) -> None:
    """All that is not known to have been done before the last beat; times are relative to when the
    file changed."""
    put(tmp_path / "file", "x")
    at = (tmp_path / "file").stat().st_ctime_ns
    life = Life(None if since is None else at + since, None if until is None else at + until)
    assert [each.source for each in doubted([OBSERVED], str(tmp_path), life)] == [source]


def test_only_what_was_observed_is_doubted(tmp_path: Path) -> None:
    """What is known otherwise stays as it is."""
    change = NewChange(path=b"file", before=Absent(), after=Present("", 0), source="declared")
    assert doubted([change], str(tmp_path), Life(None, None)) == [change]


def test_a_symlink_on_the_way_says_nothing(tmp_path: Path) -> None:
    """What is gone behind it may be gone since any time."""
    put(tmp_path / "elsewhere" / "other", "x")
    (tmp_path / "folder").symlink_to("elsewhere")
    gone = NewChange(path=b"folder/file", before=Present("", 0), after=Absent(), source="observed")
    late = Life(0, os.lstat(tmp_path / "folder").st_ctime_ns + 10**12)
    assert doubted([gone], str(tmp_path), late)[0].source == "shared"


@pytest.mark.parametrize(("path", "source"), [("lib/in/f", "shared"), ("new", "observed")])
def test_a_folder_that_was_renamed_after_the_last_beat(
    tmp_path: Path, path: str, source: str
) -> None:
    """What is in it has the time stamp of before, and a name that a person gave it; a file that
    lies in no folder has none to be renamed."""
    put(tmp_path / "src" / "in" / "f", "x")
    put(tmp_path / "new", "x")
    at = max((tmp_path / name).stat().st_ctime_ns for name in ("src/in/f", "new"))
    (tmp_path / "src").rename(tmp_path / "lib")
    while (tmp_path / "lib").stat().st_ctime_ns <= at:
        # The clock of files ticks every few milliseconds.
        (tmp_path / "lib").chmod(0o755)
    change = replace(OBSERVED, path=path.encode())
    assert doubted([change], str(tmp_path), Life(0, at + 1))[0].source == source


def test_time_stamps_that_are_rounded_down() -> None:
    """A file system with whole seconds, or two of them, may have stamped a later change with it."""
    assert observed._latest(7 * 10**9) == 9 * 10**9
    assert observed._latest(7 * 10**9 + 1) == 7 * 10**9 + 1


@pytest.mark.parametrize(("kind", "source"), [("ext4", "observed"), ("nfs4", "shared")])
def test_a_file_system_with_the_clock_of_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, source: str
) -> None:
    """Its time stamps cannot be compared with those of the heartbeat."""
    table = tmp_path / "mountinfo"
    table.write_text(f"1 0 0:1 / / rw - {kind} none rw\n")
    made: Callable[[], Mounts] = partial(Mounts, table)
    monkeypatch.setattr(observed, "Mounts", made)
    put(tmp_path / "file", "x")
    life = Life(0, (tmp_path / "file").stat().st_ctime_ns + 1)
    assert doubted([OBSERVED], str(tmp_path), life)[0].source == source
