"""git, asked in bounded time and memory by work that can be stopped."""

import asyncio
import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from kedge.domain.child_processes import ChildLimits
from kedge.snapshot.repository import git_cli
from kedge.snapshot.repository.git_cli import LIMITS, Stopped, aside, ask_git


def fake_git(folder: Path, script: str) -> dict[str, str]:
    """An environment in which git is a script."""
    program = folder / "git"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def is_gone(pid: int) -> bool:
    """Whether a process has ended."""
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only there another process can be limited")
def test_git_has_limits(tmp_path: Path) -> None:
    """Of memory and processor time; and what runs out of them leaves no file behind."""
    # It is limited while it runs already, so it waits until it is.
    is_limited = "grep -q 'Max core file size  *0  *0 ' /proc/$$/limits"
    script = f"until {is_limited}; do :; done; cat /proc/$$/limits"
    said = ask_git(b"/", environment=fake_git(tmp_path, script), patience=60)
    assert said is not None
    limits = {line[:24].strip(): line[26:].split()[:2] for line in said.decode().splitlines()}
    assert limits["Max data size"] == [str(LIMITS.memory)] * 2
    assert limits["Max cpu time"] == [str(LIMITS.cpu)] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="only there another process can be limited")
def test_git_that_takes_too_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers nothing, and takes no more than it may."""
    monkeypatch.setattr(git_cli, "LIMITS", ChildLimits(memory=64 << 20, cpu=60))
    environment = fake_git(tmp_path, f"exec {sys.executable} -c 'print(len(bytearray(1 << 30)))'")
    assert ask_git(b"/", environment=environment, patience=60) is None


async def test_git_is_killed_when_the_caller_goes(tmp_path: Path) -> None:
    """At once, and the work has ended when the caller hears of it; a later question of the same
    work is not answered either."""
    started = tmp_path / "started"
    os.mkfifo(started)
    environment = fake_git(tmp_path, f"echo $$ > {started}; exec sleep 1000")
    stopped = 0

    def work() -> None:
        nonlocal stopped
        for _ in range(2):
            with suppress(Stopped):
                ask_git(b"/", environment=environment, patience=1000)
                return
            stopped += 1

    asked = asyncio.create_task(aside(work))
    pid = int(await asyncio.to_thread(started.read_text))
    asked.cancel()
    # The second one may be killed before or after it opens the pipe.
    reader = os.open(started, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(asyncio.CancelledError):
            await asked
    finally:
        os.close(reader)
    assert stopped == 2
    assert is_gone(pid)


async def test_work_that_has_not_begun_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """When its caller goes while all threads are busy."""
    hold = asyncio.Event()
    loop = asyncio.get_running_loop()

    def busy() -> None:
        asyncio.run_coroutine_threadsafe(hold.wait(), loop).result()

    holders = [asyncio.create_task(aside(busy)) for _ in range(git_cli.THREADS)]
    done: list[int] = []
    late = asyncio.create_task(aside(partial(done.append, 1)))
    await asyncio.sleep(0)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    hold.set()
    await asyncio.gather(*holders)
    assert await aside(lambda: list(done)) == []
