"""Ending what is left of commands, and nothing else."""

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kedge.domain.child_processes import Process
from kedge.domain.sessions import Busy
from kedge.engine import os_process, processes
from kedge.engine.engine import Engine
from kedge.engine.os_process import Owner, boot, machine
from kedge.engine.processes import belonging, end_processes
from kedge.store.queries.processes import processes_of, put_process
from tests.engine.engine_factory import EngineFactory, database_time, forge_lease
from tests.support.polling import until, until_gone

CALL, OTHER_CALL, OUTER_CALL = (f"prt_{name}{os.getpid()}" for name in "abc")
"""Of this process of pytest alone: others look for what belongs to calls at the same time."""
DEAD = Owner(machine="gone", boot="gone", namespace="", pid=1, start="1", engine="gone")


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that a test started; they are ended with it, and heard of."""
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for each in made:
        each.kill()
        each.wait()


def start(
    started: list[subprocess.Popen[bytes]],
    line: str = "exec sleep 1000",
    mark: str | None = CALL,
) -> Process:
    """A command as a dead process may have left it."""
    env = {**os.environ, **({} if mark is None else {os_process.MARK: mark})}
    made = subprocess.Popen(["/bin/sh", "-c", line], env=env, start_new_session=True)
    started.append(made)
    seen = os_process.process(made.pid)
    assert seen is not None
    return Process(
        session_id="ses_1",
        part_id=CALL,
        machine=machine(),
        boot=boot(),
        pid=made.pid,
        pgid=seen.group,
        started=seen.started,
    )


async def test_a_command_is_ended(started: list[subprocess.Popen[bytes]]) -> None:
    """Whether it carries its mark or not."""
    for mark in (CALL, f"{OUTER_CALL}:{CALL}", OTHER_CALL, None):
        known = start(started, mark=mark)
        assert known.pid in belonging([known])
        assert await end_processes([known])
        assert started[-1].wait() == -signal.SIGTERM


async def test_what_ignores_the_question_is_killed(started: list[subprocess.Popen[bytes]]) -> None:
    """After it had the time to end by itself."""
    known = start(started, "trap '' TERM; while :; do sleep 1000; done")
    # Until the trap is set.
    await until(lambda: len(belonging([known])) > 1)
    assert await end_processes([known])
    assert started[-1].wait() == -signal.SIGKILL
    assert belonging([known]) == {}


async def test_those_that_a_dead_leader_left(started: list[subprocess.Popen[bytes]]) -> None:
    """They are known by their mark; whoever is in its group with them belongs to it too."""
    known = start(started, "sleep 1000 & env -i sleep 1001 & exec sleep 1002")
    await until(lambda: len(belonging([known])) == 3)
    started[-1].kill()
    started[-1].wait()
    left = belonging([known])
    assert len(left) == 2
    assert await end_processes([known])
    await until_gone(*left)


@pytest.mark.parametrize(
    "forged",
    [
        {"started": 1},
        {"machine": "other"},
        {"boot": "other"},
        {"pid": 2**22 + 1, "pgid": 2**22 + 1},
    ],
    ids=["start", "machine", "boot", "number"],
)
async def test_what_only_has_the_number_is_left_alone(
    started: list[subprocess.Popen[bytes]], forged: dict[str, object]
) -> None:
    """Numbers are used again, and are others' on other machines."""
    known = replace(start(started, mark=None), **forged)  # type: ignore[arg-type]
    assert await end_processes([known])
    assert started[-1].poll() is None


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing tells")
async def test_one_that_lost_its_first_thread_is_ended(
    started: list[subprocess.Popen[bytes]],
) -> None:
    """It looks as if it had ended, and goes on."""
    script = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=[1000]).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    known = start(started, f"exec {shlex.quote(sys.executable)} -c {shlex.quote(script)}")
    stat = Path(f"/proc/{known.pid}/stat")
    await until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
    assert belonging([known])
    assert await end_processes([known])
    assert started[-1].wait() == -signal.SIGTERM


async def test_another_call_is_left_alone(started: list[subprocess.Popen[bytes]]) -> None:
    """Also one that began at the same time in the same program."""
    one, other = start(started), replace(start(started, mark=OTHER_CALL), part_id=OTHER_CALL)
    assert await end_processes([one])
    assert started[0].wait() == -signal.SIGTERM
    assert started[1].poll() is None
    assert other.pid in belonging([other])


async def test_nobody_ends_itself(started: list[subprocess.Popen[bytes]]) -> None:
    """An engine that a command started does not end itself, nor those that it runs in, nor those
    that it runs."""
    script = (
        "import asyncio, os, subprocess, sys\n"
        "from kedge.engine.processes import end_processes, belonging\n"
        "from kedge.engine.os_process import process\n"
        "from kedge.engine.os_process import boot, machine\n"
        "from kedge.domain.child_processes import Process\n"
        "mine = subprocess.Popen(['sleep', '1000'])\n"
        "beside = subprocess.Popen(['sleep', '1001'], start_new_session=True)\n"
        "shell = process(os.getppid())\n"
        f"known = Process(session_id='', part_id='{CALL}', machine=machine(), boot=boot(),\n"
        "    pid=shell.pid, pgid=shell.group, started=shell.started)\n"
        "assert asyncio.run(end_processes([known]))\n"
        "assert mine.poll() is None and beside.poll() is None\n"
        "mine.kill(); beside.kill(); mine.wait(); beside.wait()\n"
    )
    start(started, f"{shlex.quote(sys.executable)} -c {shlex.quote(script)}; exit $?")
    assert await asyncio.to_thread(started[-1].wait) == 0


async def test_what_cannot_be_ended_is_not_waited_for(
    started: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is said, and whoever waits goes on."""
    monkeypatch.setattr(processes, "_GRACE", 0.0)
    monkeypatch.setattr(processes, "_PATIENCE", 0.0)
    monkeypatch.setattr(processes, "_send_one", lambda target, number: None)
    known = start(started)
    assert not await end_processes([known])
    assert f"cannot end the processes {known.pid}" in caplog.text


def test_processes_are_seen_without_proc(
    started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no /proc, `ps` tells the same, except for sessions."""
    if shutil.which("ps") is None:
        pytest.skip("there is no ps here")
    known = start(started)
    told = os_process.process(known.pid)
    assert told is not None
    monkeypatch.setattr(os_process, "_has_proc", lambda: False)
    seen = os_process.process(known.pid)
    assert seen is not None
    assert (seen.parent, seen.group, seen.session) == (told.parent, told.group, 0)
    assert os_process.processes()[known.pid] == seen
    assert known.pid in belonging([replace(known, started=seen.started)])
    started[-1].kill()
    started[-1].wait()
    assert os_process.process(known.pid) is None


async def test_a_dead_run_is_taken_over_after_its_processes_ended(
    any_engine: Engine, started: list[subprocess.Popen[bytes]]
) -> None:
    """Also where it had no call open that anybody looks at."""
    session = await any_engine.sessions.create()
    known = replace(start(started), session_id=session.id)
    await any_engine.store.write(lambda: put_process(known))
    await _leave_dead(any_engine, session.id)
    await any_engine.recovery.recover()
    assert any_engine.recovery.sessions == [session.id]
    assert started[-1].wait() == -signal.SIGTERM
    assert await any_engine.store.read(lambda: processes_of(session.id)) == []


async def test_the_processes_of_a_run_that_lives_are_left_alone(
    place: EngineFactory, engine: Engine, started: list[subprocess.Popen[bytes]]
) -> None:
    """Whoever took the session over first has processes of its own there."""
    async with place.open() as other:
        session = await engine.sessions.create()
        known = replace(start(started), session_id=session.id)
        async with (await other.sessions.get(session.id)).turn("Go on") as turn:
            await other.store.write(lambda: put_process(known, turn.fence))
            # As if the owner that was found dead had been another.
            dead = engine.runs.alive_in(session.id)
            assert not await engine.runs._end_left(session.id, dead)
            await engine.recovery.recover()
            assert engine.recovery.sessions == []
        assert started[-1].poll() is None


async def _leave_dead(engine: Engine, session_id: str) -> None:
    from kedge.domain import wire

    expires = await database_time(engine) - 1
    await forge_lease(engine, session_id, wire.encode(DEAD), expires=expires, status=Busy())
