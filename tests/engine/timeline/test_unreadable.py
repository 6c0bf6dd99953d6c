"""What is known of calls that a crash cut off where their files, or the snapshots of them, cannot
be read any more: that they ran, and why nothing more is known. Nothing of it stops a start."""

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from kedge.domain.errors import RootBusy
from kedge.domain.file_states import Absent, FileStep, Present
from kedge.engine.engine import Engine
from kedge.engine.heartbeats import last_beat
from kedge.engine.session import Session
from kedge.engine.timeline import leftovers as leftovers_module
from kedge.engine.timeline.recovery import closing
from kedge.snapshot.files.steps import FileWork, RootedStep, temporary_name
from kedge.snapshot.objects.formats import blob_id
from kedge.store.queries.changes import calls_between
from kedge.store.queries.timeline import leftovers, open_calls
from tests.engine.engine_factory import EngineFactory
from tests.engine.engine_processes import Child
from tests.engine.revert.test_recovery_failures import held
from tests.engine.timeline.test_calls import changes, put


def remove(folder: Path) -> None:
    """Take a folder away with all that is in it."""
    shutil.rmtree(folder)


def replace_by_a_file(folder: Path) -> None:
    """Leave something else where a folder was."""
    shutil.rmtree(folder)
    folder.write_text("a file")


def replace_by_a_loop(folder: Path) -> None:
    """Leave a link to itself where a folder was."""
    shutil.rmtree(folder)
    folder.symlink_to(folder)


def damage(folder: Path) -> None:
    """Turn every byte of every object around."""
    for path in _files(folder):
        path.chmod(0o600)
        path.write_bytes(bytes(255 - byte for byte in path.read_bytes()))


def empty(folder: Path) -> None:
    """Leave the names of all files, and nothing in them."""
    for path in _files(folder):
        path.chmod(0o600)
        path.write_bytes(b"")


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


@dataclass(frozen=True)
class Cut:
    """A session with two calls that are cut off, seen by an engine that has looked at nothing."""

    engine: Engine
    session: Session
    folder: Path

    @property
    def store(self) -> Path:
        """Where the snapshots of the session's worktree are."""
        return self.engine.data / "snapshots" / self.session.info.projectID

    async def close(self) -> None:
        """Find out how the calls ended, and store it."""
        store = self.engine.store
        calls = await store.read(partial(open_calls, self.session.id))
        assert {call.kind for call in calls} == {"declared", "unknown"}
        async with closing(self.engine, self.session.id, calls) as ends:
            assert ends is not None
            await store.write(ends.record)
        assert all(call.ended for call in await store.read(partial(open_calls, self.session.id)))

    async def reasons(self) -> list[str | None]:
        """Why it is not known what calls of unknown effect did, for each of them."""
        script = partial(calls_between, self.session.id, 0)
        return [call.reason for call in await self.engine.store.scan(script)]

    async def sources(self) -> dict[bytes, str]:
        """What is recorded of each path."""
        return {each.path: each.source for each in await changes(self.session)}


@asynccontextmanager
async def cut(place: EngineFactory, tmp_path: Path) -> AsyncIterator[Cut]:
    """Two calls in the middle of their work, as another engine sees them."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    put(place.folder / "base", "text")
    dead = AsyncExitStack()
    engine = await dead.enter_async_context(place.open())
    session = await engine.sessions.create()
    turn = await dead.enter_async_context(session.turn("Work"))
    step = await dead.enter_async_context(turn.step())
    await dead.enter_async_context(step.tool("bash", {}, effects="unknown"))
    await dead.enter_async_context(step.tool("write", {}, writes=["declared"]))
    for name in ("shell", "declared"):
        put(place.folder / name, "text")
    try:
        async with EngineFactory(elsewhere, place.database).open() as other:
            yield Cut(other, await other.sessions.get(session.id), place.folder)
    finally:
        # It counts as dead: what it makes of the harm is not what this is about.
        with suppress(Exception):
            await dead.aclose()


@pytest.mark.parametrize("harm", [remove, replace_by_a_file, replace_by_a_loop])
async def test_a_folder_that_is_gone(
    place: EngineFactory, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    """Each call is closed, and says what cannot be read."""
    async with cut(place, tmp_path) as found:
        harm(place.folder)
        await found.close()
        assert await found.sources() == {b"declared": "uncovered"}
        (reason,) = await found.reasons()
        assert reason is not None
        assert str(place.folder) in reason


@pytest.mark.parametrize("harm", [remove, replace_by_a_file, damage, empty])
async def test_a_snapshot_store_that_is_gone(
    place: EngineFactory, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    """A new one shows what is there now, and cannot tell what was there before."""
    async with cut(place, tmp_path) as found:
        harm(found.store)
        await found.close()
        assert (await found.sources()).get(b"shell") is None
        (reason,) = await found.reasons()
        assert reason


async def test_a_folder_that_another_process_has(
    place: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It will be free again: nothing is recorded before, so that what was done is not lost."""
    async with cut(place, tmp_path) as found:
        with monkeypatch.context() as patched, held(place.folder) as pid:
            patched.setattr("kedge.snapshot.exclusive.SOON", 0.0)
            with pytest.raises(RootBusy, match=f"process {pid}"):
                await found.close()
        assert await found.reasons() == []
        await found.close()
        assert set(await found.sources()) == {b"declared", b"shell"}
        assert await found.reasons() == [None]


async def test_two_sessions_of_a_folder_that_is_gone_are_both_recovered(
    any_place: EngineFactory, tmp_path: Path
) -> None:
    """By an engine anywhere: it starts, and no session is left open."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    put(any_place.folder / "base", "text")
    async with any_place.open() as engine:
        ids = [(await engine.sessions.create()).id for _ in range(2)]
    async with (
        Child(any_place, "touch_files", ids[0], "one") as one,
        Child(any_place, "touch_files", ids[1], "two") as two,
    ):
        for child in (one, two):
            assert await child.hear() == "touched"
        for child in (one, two):
            await child.kill()
    remove(any_place.folder)
    async with EngineFactory(elsewhere, any_place.database).open() as engine:
        assert sorted(engine.recovery.sessions) == sorted(ids)
        for id in ids:
            (ran,) = await engine.store.scan(partial(calls_between, id, 0))
            assert ran.reason
            session = await engine.sessions.get(id)
            receipt = await session.revert((await session.messages()).messages[0].info.id)
            (note,) = [
                each for each in receipt.notes if "what it did to files is not known" in each
            ]
            assert ran.reason in note


async def stepping(engine: Engine, folder: Path, stack: AsyncExitStack) -> tuple[Session, Path]:
    """A session in the middle of a call that writes a file in steps; gives also the temporary file
    that the call has left beside it."""
    content = b"text"
    want = Present(blob_id(content).hex(), 0o100644)
    step = FileStep(number=0, path=b"stepped", expect=Absent(), want=want)
    work = FileWork(steps=(RootedStep(bytes(folder), step),), contents={want.blob: content})
    session = await engine.sessions.create(directory=folder)
    turn = await stack.enter_async_context(session.turn("Work"))
    call = await stack.enter_async_context(
        (await stack.enter_async_context(turn.step())).tool("write", {})
    )
    await call.declare(writes=[folder / "stepped"], work=work)
    left = folder / os.fsdecode(temporary_name(call.part.id, 0))
    left.write_bytes(content)
    # As if its process had died: nobody is at the file any more.
    await call._effects._working.aclose()  # type: ignore[attr-defined]
    return session, left


async def test_locks_that_cannot_be_had(place: EngineFactory, tmp_path: Path) -> None:
    """The calls are closed, and what they left is put in order when the locks can be had; what
    fails at one call keeps no other from it."""
    folders, data = [tmp_path / name for name in ("one", "two")], tmp_path / "data"
    async with AsyncExitStack() as dead, place.open(data_dir=data) as other:
        engine = await dead.enter_async_context(place.open(data_dir=data))
        left = []
        for folder in folders:
            folder.mkdir()
            stack = AsyncExitStack()
            dead.push_async_callback(quietly, stack)
            session, file = await stepping(engine, folder, stack)
            left.append(file)
            locks = engine.data / "file-locks"
            locks.unlink()
            locks.mkdir()
            calls = await other.store.read(partial(open_calls, session.id))
            async with closing(other, session.id, calls) as ends:
                assert ends is not None
                await other.store.write(ends.record)
            locks.rmdir()
            locks.touch()
        machine = other.timeline.machine
        assert len(await other.store.read(partial(leftovers, machine))) == 2
        assert [file.exists() for file in left] == [True, True]
        stored_in = leftovers_module.stored_in

        async def stumble(engine: Engine, worktree: str) -> leftovers_module.IsStored:
            if worktree == str(folders[0]):
                raise RuntimeError("a bug")
            return await stored_in(engine, worktree)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(leftovers_module, "stored_in", stumble)
            await other.recovery.recover()
        assert [file.exists() for file in left] == [True, False]
        await other.recovery.recover()
        assert [file.exists() for file in left] == [False, False]
        assert await other.store.read(partial(leftovers, machine)) == []


@pytest.mark.parametrize("harm", [remove, replace_by_a_file])
async def test_what_was_left_in_a_folder_that_is_gone(
    place: EngineFactory, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    """There is nothing left to be put in order, and nothing is looked for again and again."""
    folder = tmp_path / "one"
    folder.mkdir()
    async with place.open() as engine, place.open() as other:
        stack = AsyncExitStack()
        session, _ = await stepping(engine, folder, stack)
        harm(folder)
        calls = await other.store.read(partial(open_calls, session.id))
        async with closing(other, session.id, calls) as ends:
            assert ends is not None
            await other.store.write(ends.record)
            assert "No file was changed" in ends.notes[calls[0].part_id]
        assert await other.store.read(partial(leftovers, other.timeline.machine)) == []
        await quietly(stack)


async def quietly(stack: AsyncExitStack) -> None:
    """Leave what counts as dead: what it makes of its end is not what this is about."""
    with suppress(Exception):
        await stack.aclose()


@pytest.mark.parametrize("what", ["file", "folder"])
async def test_heartbeats_that_cannot_be_read(
    place: EngineFactory, tmp_path: Path, what: str
) -> None:
    """An engine starts; it only knows less of the dead."""
    data = tmp_path / "data"
    if what == "file":
        put(data / "heartbeats", "not a folder")
    else:
        (data / "heartbeats" / "engine").mkdir(parents=True)
    async with place.open(data_dir=data) as engine:
        assert last_beat(engine.data, "engine") is None
