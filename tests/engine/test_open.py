"""Opening an engine: where its files go and who may read them, and what goes wrong."""

import asyncio
import stat
from pathlib import Path

import pytest

import kedge
from kedge.domain.errors import (
    DirectoryNotFound,
    EngineClosed,
    InvalidInput,
    StoreError,
    StoreUnavailable,
)
from tests.engine.engine_factory import EngineFactory


def mode(path: Path) -> int:
    """The permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)


async def test_the_data_are_for_their_owner_alone(folder: Path, tmp_path: Path) -> None:
    """Folders that kedge makes are 0700 and its files 0600, whatever the umask says."""
    data = tmp_path / "new" / "data"
    async with kedge.open(folder, data_dir=data) as engine:
        await engine.sessions.create("s")
        assert mode(data) == 0o700
        files = sorted(data.iterdir())
        assert [file.name for file in files] == ["kedge.db", "kedge.db-shm", "kedge.db-wal"]
        assert [mode(file) for file in files] == [0o600] * 3


async def test_the_environment_chooses_the_database(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`KEDGE_DATA_DIR` and `KEDGE_DATABASE_URL` are used when nothing is given."""
    monkeypatch.setenv("KEDGE_DATA_DIR", str(tmp_path / "data"))
    async with kedge.open(folder) as engine:
        assert engine.store.location == str(tmp_path / "data" / "kedge.db")
    monkeypatch.setenv("KEDGE_DATABASE_URL", str(tmp_path / "other.db"))
    async with kedge.open(folder) as engine:
        assert engine.store.location == str(tmp_path / "other.db")


@pytest.mark.parametrize("address", ["mysql://localhost/x", "sqlite:///x.db", "http://x", "://"])
async def test_an_odd_address_is_refused(folder: Path, address: str) -> None:
    """An address that kedge does not know is a typed error that says which it knows."""
    with pytest.raises(InvalidInput, match="postgresql://"):
        async with kedge.open(folder, database=address):
            pytest.fail("opened")


async def test_a_postgres_that_does_not_answer_is_named_without_its_password(folder: Path) -> None:
    """Nobody at the address is a typed error; the password stays out of it."""
    address = "postgresql://me:secret@127.0.0.1:1/x?connect_timeout=2"
    with pytest.raises(StoreUnavailable) as caught:
        async with kedge.open(folder, database=address):
            pytest.fail("opened")
    assert "127.0.0.1" in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_folder_that_cannot_be_made_is_named(folder: Path, tmp_path: Path) -> None:
    """A file where the data folder should be, or a folder where the file should be, is a typed
    error."""
    (tmp_path / "file").touch()
    for data_dir, database in ((tmp_path / "file" / "x", None), (None, folder)):
        with pytest.raises(StoreError):
            async with kedge.open(folder, data_dir=data_dir, database=database):
                pytest.fail("opened")


async def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    """An engine needs a directory; when there is none, nothing is left open."""
    with pytest.raises(DirectoryNotFound, match="nowhere"):
        async with kedge.open(tmp_path / "nowhere", data_dir=tmp_path / "data"):
            pytest.fail("opened")
    assert not (tmp_path / "data" / "kedge.db-wal").exists(), "the database was let go of"


async def test_a_closed_engine_says_so(any_place: EngineFactory) -> None:
    """Whatever is asked of a closed engine is one typed error."""
    async with any_place.open() as engine:
        session = await engine.sessions.create("s")
    for attempt in (
        engine.sessions.list(),
        engine.sessions.get(session.id),
        session.update(title="x"),
        session.turn("x").__aenter__(),
        engine.events.head(),
    ):
        with pytest.raises(EngineClosed):
            await attempt
    with pytest.raises(EngineClosed):
        engine.events.subscribe()
    await engine.close()


async def test_a_part_that_cannot_be_closed_keeps_nothing_else_open(
    any_place: EngineFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When stopping the runs fails, the database is let go of all the same, and the error is
    raised."""

    async def fail(closer: object) -> None:
        raise StoreUnavailable("gone")

    with pytest.raises(StoreUnavailable):
        async with any_place.open() as engine:
            monkeypatch.setattr(engine.runs, "close", fail)
    with pytest.raises(EngineClosed):
        await engine.sessions.list()


async def test_many_engines_open_one_new_database_together(any_place: EngineFactory) -> None:
    """Engines that meet an empty database at the same time agree on one."""

    async def epoch() -> str:
        async with any_place.open() as engine:
            await engine.sessions.create("s")
            return engine.store.epoch

    epochs = await asyncio.gather(*(epoch() for _ in range(5)))
    assert len(set(epochs)) == 1
    async with any_place.open() as engine:
        assert len((await engine.sessions.list()).sessions) == 5
