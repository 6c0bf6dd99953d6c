"""A backup that is made while kedge works is whole, and goes on as a database of its own."""

import asyncio
import json
import os
import shutil
import tarfile
from functools import partial
from pathlib import Path

import pytest

import kedge
from kedge.domain.errors import BackupRefused
from kedge.domain.parts import ToolError, ToolPart
from kedge.engine.backup.archive import read_manifest
from kedge.engine.backup.create import create_backup
from kedge.engine.backup.restore import Restored, restore_backup
from kedge.engine.doctor.doctor import examine
from kedge.engine.engine import Engine
from kedge.engine.os_process import machine
from kedge.store.queries.processes import processes_of
from kedge.store.queries.timeline import leftovers
from kedge.testing.replay import both
from tests.engine.doctor.clinic import PLENTY, Clinic, used
from tests.engine.engine_factory import EngineFactory
from tests.engine.engine_processes import Child


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the data is made that every test backs up."""
    return tmp_path_factory.mktemp("whole")


@pytest.fixture
async def clinic(whole: Path, tmp_path: Path) -> Clinic:
    """A copy of used data."""
    made = Clinic(whole)
    if not made.data.exists():
        made = await used(whole)
    return made.copy(tmp_path)


async def restored(source: Path, data: Path) -> Restored:
    """Restore a backup; the doctor accepts it. A revert may have been in its middle."""
    found = await restore_backup(source, data_dir=data)
    report = await examine(data_dir=data, limits=lambda: PLENTY)
    assert {each.code for each in report.findings} <= {"revert-unfinished"}
    return found


@pytest.mark.parametrize("name", ["backup", "backup.tar"])
async def test_under_load(name: str, folder: Path, tmp_path: Path) -> None:
    """Taken while prompts and reverts run, it restores to a state that the doctor accepts and in
    which reverts work."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    async with kedge.open(folder, data_dir=data) as engine:
        agent = kedge.Agent(engine)
        first = await engine.sessions.create("first")
        await agent.prompt(first, "write first.txt 1")
        at_work = True

        async def work(name: str) -> None:
            session = await engine.sessions.create(name)
            n = 0
            while at_work:
                n += 1
                await agent.prompt(session, f"write {name}{n}.txt {n}")
                await session.revert((await session.messages()).messages[0].info.id)
                await session.unrevert()

        working = [asyncio.create_task(work(each)) for each in "xy"]
        await agent.prompt(first, "write second.txt 2")
        await create_backup(tmp_path / name, data_dir=data)
        at_work = False
        await asyncio.gather(*working)
        await agent.close()
        epoch = engine.store.epoch
    await restored(tmp_path / name, copy)
    async with kedge.open(folder, data_dir=copy) as engine:
        assert engine.store.epoch != epoch
        replayed, stored = await both(engine.store)
        assert replayed == stored
        session = await engine.sessions.get(first.id)
        (folder / "first.txt").write_text("1\n")
        receipt = await session.revert((await session.messages()).messages[0].info.id)
        assert "deleted" in {str(entry.outcome) for entry in receipt.files}
        assert not (folder / "first.txt").exists()


async def test_runs_are_not_continued(place: EngineFactory, tmp_path: Path) -> None:
    """A run that goes on while the backup is made is ended in the restored one, whose recovery
    leaves the process and its files alone."""
    async with place.open() as engine:
        session = await engine.sessions.create()
        async with Child(place, "work", session.id) as child:
            part = await child.hear()
            await create_backup(tmp_path / "b", data_dir=engine.data, database=place.database)
            found = await restored(tmp_path / "b", tmp_path / "copy")
            assert found.ended == [session.id]
            async with kedge.open(place.folder, data_dir=tmp_path / "copy") as copied:
                await check_ended(copied, session.id, part)
            assert await engine.statuses() != {}
            await child.say()
            assert await child.hear() == "stored"


async def check_ended(engine: Engine, session_id: str, part_id: str) -> None:
    """The run is over, and nothing of its process is known any more."""
    assert engine.recovery.sessions == []
    assert await engine.statuses() == {}
    messages = (await (await engine.sessions.get(session_id)).messages()).messages
    [part] = [part for each in messages for part in each.parts if part.id == part_id]
    assert isinstance(part, ToolPart)
    assert isinstance(part.state, ToolError)
    assert await engine.store.read(partial(processes_of, session_id)) == []
    assert await engine.store.read(partial(leftovers, machine())) == []


async def test_what_is_not_whole_is_no_backup(clinic: Clinic, tmp_path: Path) -> None:
    """A backup with a file that is changed, missing or too many is refused, and leaves nothing."""
    made = tmp_path / "made"
    manifest = await create_backup(made, data_dir=clinic.data)
    pack = next(each.path for each in manifest.files if each.path.endswith(".pack"))

    def damaged(name: str) -> Path:
        copy = tmp_path / name
        shutil.copytree(made, copy)
        return copy

    changed, missing, more, cut = map(damaged, ("changed", "missing", "more", "cut"))
    content = bytearray((changed / pack).read_bytes())
    content[30] ^= 1
    (changed / pack).write_bytes(content)
    (missing / pack).unlink()
    (more / "snapshots" / "x").write_text("?")
    (cut / "MANIFEST.json").write_text((cut / "MANIFEST.json").read_text()[:50])
    without = damaged("without")
    (without / "MANIFEST.json").unlink()
    foreign = damaged("foreign")
    (foreign / "elsewhere").write_text("?")
    for each in (changed, missing, more, cut, without, foreign, tmp_path / "nowhere"):
        with pytest.raises(BackupRefused):
            await restore_backup(each, data_dir=tmp_path / "new")
        assert not (tmp_path / "new").exists()
    assert not [name for name in os.listdir(tmp_path) if "restoring" in name]


async def test_a_tar_file_that_is_cut_off_is_refused(clinic: Clinic, tmp_path: Path) -> None:
    """However much of it is there."""
    made = tmp_path / "b.tar"
    await create_backup(made, data_dir=clinic.data)
    content = made.read_bytes()
    end = content.rindex(b"MANIFEST.json")
    for size in (0, 100, len(content) // 2, end, end + 600):
        cut = tmp_path / "cut.tar"
        cut.write_bytes(content[:size])
        with pytest.raises(BackupRefused):
            await restore_backup(cut, data_dir=tmp_path / "new")
    with tarfile.open(made) as tar:
        assert tar.getnames()[-1] == "MANIFEST.json"


async def test_only_into_an_empty_folder(clinic: Clinic, tmp_path: Path) -> None:
    """A folder with anything in it is left as it is; so is a file in the place of a backup."""
    made = tmp_path / "b"
    await create_backup(made, data_dir=clinic.data)
    with pytest.raises(BackupRefused, match="not empty"):
        await restore_backup(made, data_dir=clinic.data)
    with pytest.raises(BackupRefused, match="exists already"):
        await create_backup(made, data_dir=clinic.data)
    (tmp_path / "empty").mkdir()
    await restored(made, tmp_path / "empty")
    with pytest.raises(BackupRefused, match="nothing to back up"):
        await create_backup(tmp_path / "c", data_dir=tmp_path / "unused")


async def test_the_manifest_names_every_file(clinic: Clinic, tmp_path: Path) -> None:
    """It is JSON that other programs can check."""
    await create_backup(tmp_path / "b", data_dir=clinic.data)
    manifest = json.loads((tmp_path / "b" / "MANIFEST.json").read_text())
    there = {str(path.relative_to(tmp_path / "b")) for path in (tmp_path / "b").rglob("*.*")}
    assert {each["path"] for each in manifest["files"]} >= {
        name for name in there if name.endswith((".pack", ".idx", ".db"))
    }
    assert read_manifest(tmp_path / "b").size == sum(each["size"] for each in manifest["files"])


@pytest.mark.postgres
async def test_snapshots_of_a_server(folder: Path, tmp_path: Path, postgres_url: str) -> None:
    """Rows of a server are for its own programs: the backup says so, and holds the snapshots."""
    data = tmp_path / "data"
    async with kedge.open(folder, data_dir=data, database=postgres_url) as engine:
        agent = kedge.Agent(engine)
        session = await engine.sessions.create()
        await agent.prompt(session, "write a.txt one")
        await agent.close()
        epoch = engine.store.epoch
    with pytest.raises(BackupRefused, match="pg_dump"):
        await create_backup(tmp_path / "b", data_dir=data, database=postgres_url)
    made = await create_backup(
        tmp_path / "b", data_dir=data, database=postgres_url, without_rows=True
    )
    assert not made.has_rows
    with pytest.raises(BackupRefused, match="pg_restore"):
        await restore_backup(tmp_path / "b", data_dir=tmp_path / "copy")
    await restore_backup(tmp_path / "b", data_dir=tmp_path / "copy", database=postgres_url)
    report = await examine(data_dir=tmp_path / "copy", database=postgres_url, limits=lambda: PLENTY)
    assert report.findings == []
    async with kedge.open(folder, data_dir=tmp_path / "copy", database=postgres_url) as engine:
        assert engine.store.epoch != epoch
        other = await engine.sessions.get(session.id)
        await other.revert((await other.messages()).messages[0].info.id)
        assert not (folder / "a.txt").exists()


@pytest.mark.parametrize("kind", ["folder", "tar", "restore"])
async def test_what_is_cancelled_leaves_nothing(clinic: Clinic, tmp_path: Path, kind: str) -> None:
    """A backup, or what is restored of one, is removed before the cancellation is heard."""
    folder = tmp_path / "targets"
    folder.mkdir()
    loop = asyncio.get_running_loop()

    async def cancel() -> None:
        working.cancel()
        # Once more around the loop, so that it is on its way.
        await asyncio.sleep(0)

    def interrupt(what: str, done: int, total: int) -> None:
        asyncio.run_coroutine_threadsafe(cancel(), loop).result()

    working: asyncio.Task[object]
    if kind == "restore":
        await create_backup(tmp_path / "b", data_dir=clinic.data)
        restoring = restore_backup(tmp_path / "b", data_dir=folder / "data", progress=interrupt)
        working = asyncio.create_task(restoring)
    else:
        target = folder / ("b.tar" if kind == "tar" else "b")
        creating = create_backup(target, data_dir=clinic.data, progress=interrupt)
        working = asyncio.create_task(creating)
    with pytest.raises(asyncio.CancelledError):
        await working
    assert list(folder.iterdir()) == []
