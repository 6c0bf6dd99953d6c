"""A database file that is taken away, moved or replaced while it is open."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import kedge
from kedge.domain.errors import StoreGone
from kedge.store.queries.event_log import log_head
from kedge.store.sqlite import file


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every read looks for the file, as it does when the last look was a while ago."""
    monkeypatch.setattr(file, "LOOK_EVERY", 0.0)


def _delete(data: Path) -> None:
    shutil.rmtree(data)


def _delete_file(data: Path) -> None:
    (data / "kedge.db").unlink()


def _delete_log(data: Path) -> None:
    (data / "kedge.db-wal").unlink()


def _move(data: Path) -> None:
    data.rename(data.with_name("moved"))


def _replace(data: Path) -> None:
    data.rename(data.with_name("moved"))
    shutil.copytree(data.with_name("moved"), data)


TAKEN = [_delete, _delete_file, _delete_log, _move, _replace]


@pytest.mark.parametrize("take", TAKEN)
async def test_a_database_that_is_gone_is_noticed(
    take: Callable[[Path], None], tmp_path: Path
) -> None:
    """Nothing is acknowledged that no file will have, nothing is read from what is no more, and no
    new database is made in its place."""
    data = tmp_path / "data"
    async with kedge.open(tmp_path, data_dir=data) as engine:
        session = await engine.sessions.create("s")
        take(data)
        before = sorted(data.parent.rglob("*"))
        store = engine.store
        for use in (store.read, store.scan, store.write, store.write_bulk, store.write_durable):
            with pytest.raises(StoreGone, match="start kedge again"):
                await use(log_head)
        with pytest.raises(StoreGone):
            store.run_blocking(log_head)
        with pytest.raises(StoreGone):
            store.check()
        with pytest.raises(StoreGone):
            await session.update(title="lost")
        assert sorted(data.parent.rglob("*")) == before


async def test_a_write_never_waits_for_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short ago the file was seen."""
    monkeypatch.setattr(file, "LOOK_EVERY", 1e6)
    data = tmp_path / "data"
    async with kedge.open(tmp_path, data_dir=data) as engine:
        session = await engine.sessions.create("s")
        _delete(data)
        with pytest.raises(StoreGone):
            await session.update(title="lost")


async def test_a_database_that_comes_back_is_used_again(tmp_path: Path) -> None:
    """As a disk that is mounted again; what was refused meanwhile is not there."""
    data = tmp_path / "data"
    async with kedge.open(tmp_path, data_dir=data) as engine:
        session = await engine.sessions.create("before")
        _move(data)
        with pytest.raises(StoreGone):
            await session.update(title="lost")
        data.with_name("moved").rename(data)
        assert (await engine.sessions.get(session.id)).title == "before"
        await session.update(title="after")
    async with kedge.open(tmp_path, data_dir=data) as engine:
        assert (await engine.sessions.get(session.id)).title == "after"


async def test_the_one_in_its_place_is_left_alone(tmp_path: Path) -> None:
    """Whoever closes a database removes its log, by its name; not that of another one that has
    taken its place."""
    data = tmp_path / "data"
    async with kedge.open(tmp_path, data_dir=data) as old:
        await old.sessions.create("old")
        _move(data)
        async with kedge.open(tmp_path, data_dir=data) as new:
            session = await new.sessions.create("new")
            await old.close()
            await session.update(title="newer")
            other = sqlite3.connect(data / "kedge.db")
            found = other.execute("SELECT json_extract(data, '$.title') FROM session").fetchall()
            other.close()
            assert found == [("newer",)]
