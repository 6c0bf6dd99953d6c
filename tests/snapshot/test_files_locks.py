"""Locks on single files: who excludes whom, and that nothing is left of them."""

import asyncio
import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.domain.errors import FileBusy, InvariantBroken
from kedge.snapshot.files.locks import FileLocks

HOLD = """
import asyncio, fcntl, os, sys
from pathlib import Path
from kedge.snapshot.files import locks

if sys.argv[1] == "stripes":
    del fcntl.F_OFD_SETLK

async def hold():
    async with locks.FileLocks(Path(sys.argv[2])).locked([os.fsencode(sys.argv[3])], 0):
        print("held", flush=True)
        sys.stdin.read()

asyncio.run(hold())
"""


@pytest.fixture(params=["bytes", "stripes"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How files are locked: as Linux can, and as every system can."""
    if request.param == "stripes":
        monkeypatch.delattr(fcntl, "F_OFD_SETLK")
    return str(request.param)


@pytest.fixture
def locks(tmp_path: Path, way: str) -> FileLocks:
    """The locks of a data folder."""
    locks = FileLocks(tmp_path / "data")
    assert bool(locks.reason) == (way == "stripes")
    return locks


async def test_two_tasks_exclude_each_other(locks: FileLocks) -> None:
    """Only by the same path, and only until the first is done."""
    async with locks.locked([b"/a", b"/b\xff"], 0):
        for path in (b"/a", b"/b\xff"):
            with pytest.raises(FileBusy) as caught:
                async with locks.locked([path], 0):
                    pass
            assert caught.value.path == path.decode(errors="replace")
            assert caught.value.data["path"] == caught.value.path
        async with locks.locked([b"/c"], 0):
            pass
    async with locks.locked([b"/a", b"/b\xff"], 0):
        pass


async def test_a_task_waits_for_its_turn(locks: FileLocks) -> None:
    """Many who write the same files in any order each have them alone, and all get them."""
    inside: list[int] = []
    done: list[int] = []

    async def write(number: int) -> None:
        paths = [b"/a", b"/b", b"/c"]
        async with locks.locked(paths[number % 3 :] + paths[: number % 3], 600):
            assert not inside
            inside.append(number)
            await asyncio.sleep(0)
            inside.remove(number)
            done.append(number)

    await asyncio.gather(*(write(number) for number in range(12)))
    assert sorted(done) == list(range(12))


def test_two_processes_exclude_each_other(locks: FileLocks, tmp_path: Path, way: str) -> None:
    """Also those that know nothing of each other; a dead one holds nothing."""
    words = [sys.executable, "-c", HOLD, way, str(tmp_path / "data"), "/a"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(FileBusy):
            asyncio.run(lock(locks, b"/a"))
        asyncio.run(lock(locks, b"/b"))
        process.kill()
        process.wait()
    asyncio.run(lock(locks, b"/a"))


async def lock(locks: FileLocks, path: bytes) -> None:
    """Take a lock and give it back, without waiting."""
    async with locks.locked([path], 0):
        pass


async def test_a_cancelled_waiter_holds_nothing(locks: FileLocks) -> None:
    """Neither what it waited for nor what it had already."""
    order = sorted([b"/a", b"/b"], key=locks._locker.number)
    waiting = asyncio.Event()

    async def wait() -> None:
        waiting.set()
        async with locks.locked([b"/a", b"/b"], 600):
            pass

    async with locks.locked([order[1]], 0):
        task = asyncio.create_task(wait())
        await waiting.wait()
        await asyncio.sleep(0)
        with pytest.raises(FileBusy):
            async with locks.locked([order[0]], 0):
                pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with locks.locked([order[0]], 0):
            pass
    async with locks.locked([b"/a", b"/b"], 0):
        pass


async def test_an_error_gives_the_locks_back(locks: FileLocks) -> None:
    """Whatever ends the block."""
    with pytest.raises(ZeroDivisionError):
        async with locks.locked([b"/a"], 0):
            raise ZeroDivisionError
    async with locks.locked([b"/a"], 0):
        pass


async def test_many_files_at_once(locks: FileLocks) -> None:
    """More than a process may have files open; twice the same one is no circle."""
    paths = [b"/%d" % number for number in range(3000)]
    async with locks.locked([*paths, *paths], 0):
        with pytest.raises(FileBusy):
            async with locks.locked([paths[-1]], 0):
                pass
    async with locks.locked(paths, 0):
        pass
    async with locks.locked([], 0):
        pass


async def test_nothing_is_left_for_a_path(tmp_path: Path) -> None:
    """However many files were locked, the data folder has one more, and it is empty."""
    locks = FileLocks(tmp_path / "data")
    for number in range(10):
        async with locks.locked([b"/%d" % number], 0):
            pass
    (left,) = (tmp_path / "data").iterdir()
    assert left.stat().st_size == 0
    assert left.stat().st_mode & 0o777 == 0o600


async def test_only_whole_paths_are_taken(locks: FileLocks) -> None:
    """A relative path would mean different files to different processes."""
    with pytest.raises(InvariantBroken):
        async with locks.locked([b"a"], 0):
            pass
