"""Who an owner is and whether it still lives, with real processes."""

import os
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from kedge.domain import wire
from kedge.engine.os_process import Owner, owner_lives, process_start, this_process

HERE = this_process("here")


def changed(**changes: object) -> str:
    """This process as an owner, but for some fields."""
    return wire.encode(msgspec.structs.replace(HERE, **changes))


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits until its input ends."""
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        yield process
        process.kill()


def test_a_process_has_one_start(other: subprocess.Popen[bytes]) -> None:
    """The start of a process is the same whenever it is asked for, and another's is another."""
    assert process_start(os.getpid()) == process_start(os.getpid()) == HERE.start
    assert process_start(other.pid) not in (None, HERE.start)


def test_a_process_that_ended_has_no_start(other: subprocess.Popen[bytes]) -> None:
    """A killed process is gone before its parent has noticed."""
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert process_start(other.pid) is None
    other.wait()
    assert process_start(other.pid) is None


@pytest.mark.parametrize("expired", [False, True])
def test_a_near_owner_is_judged_by_its_process(
    other: subprocess.Popen[bytes], expired: bool
) -> None:
    """Where a process can be looked up, the age of its lease says nothing."""
    start = process_start(other.pid)
    assert owner_lives(changed(pid=other.pid, start=start), expired, HERE)
    assert not owner_lives(changed(pid=other.pid, start="1"), expired, HERE), "the pid was reused"
    other.kill()
    other.wait()
    assert not owner_lives(changed(pid=other.pid, start=start), expired, HERE)


@pytest.mark.parametrize("field", ["machine", "boot", "namespace"])
def test_a_far_owner_is_judged_by_its_lease(field: str) -> None:
    """Where a process cannot be looked up, its pid says nothing, even if it is one of ours."""
    far = changed(**{field: "another"})
    assert owner_lives(far, False, HERE)
    assert not owner_lives(far, True, HERE)


def test_an_owner_of_a_newer_kedge_can_be_read() -> None:
    """Fields that this version does not know are no reason to fail."""
    text = wire.encode(HERE)[:-1] + ',"color":"red"}'
    assert owner_lives(text, False, HERE)
    assert wire.decode(text, Owner).pid == os.getpid()
