"""Damaged files: whatever is wrong with them, callers get typed errors and the file is kept."""

import os
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import kedge
from kedge.domain.errors import KedgeError, StoreCorrupt, StoreUnavailable

FLIPS = 1200 if os.environ.get("KEDGE_TORTURE") else 50


async def fill(folder: Path) -> Path:
    """A database with sessions, messages and parts; closed."""
    async with kedge.open(folder, data_dir=folder / "data") as engine:
        for n in range(8):
            session = await engine.sessions.create(f"title {n}")
            for _ in range(4):
                async with session.turn("prompt " * 50) as turn, turn.step() as step:
                    await step.text("text " * 100)
        await engine.upkeep.index()
    return folder / "data" / "kedge.db"


async def use(folder: Path) -> None:
    """Read everything in many ways, and write."""
    async with kedge.open(folder, data_dir=folder / "data") as engine:
        page = await engine.sessions.list(everywhere=True)
        await engine.sessions.search("title")
        for session in page.sessions:
            await session.messages()
            await session.todo_history()
            await session.fork()
            await session.update(title="again")
        await engine.sessions.create("new")


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: random.Random(1).randbytes(20_000),
        lambda whole: b"not a database",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:100],
        lambda whole: b"\xff" * 4096 + whole[4096:],
        lambda whole: whole[:100] + bytes(4096 - 100) + whole[4096:],
        lambda whole: whole.replace(b"tablesession", b"table\xbdession").replace(
            b"CREATE TABLE session (", b"CREATE TABLE session )"
        ),
    ],
    ids=["garbage", "text", "half", "header-only", "first-page-lost", "schema-lost", "schema-torn"],
)
async def test_a_file_that_is_no_database_any_more(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """A file that cannot be read as a database is refused as damaged, and kept as it is."""
    path = await fill(tmp_path)
    broken = damage(path.read_bytes())
    path.write_bytes(broken)
    with pytest.raises(StoreCorrupt, match=r"kedge\.db"):
        await use(tmp_path)


async def test_flipped_bytes_give_typed_errors(tmp_path: Path) -> None:
    """Wherever a page was damaged, what reaches the caller is an error of kedge, or nothing."""
    path = await fill(tmp_path)
    await use(tmp_path)
    whole = path.read_bytes()
    chance = random.Random(7)
    wrong = []
    for _ in range(FLIPS):
        broken = bytearray(whole)
        place = chance.randrange(4096, len(whole) - 64)
        broken[place : place + 64] = chance.randbytes(64)
        for leftover in path.parent.glob(f"{path.name}*"):
            leftover.unlink()
        path.write_bytes(broken)
        try:
            await use(tmp_path)
        except KedgeError:
            continue
        except Exception as error:  # noqa: BLE001 - that there is none is tested
            wrong.append(f"at {place}: {error!r:.200}")
    assert wrong == []


@pytest.mark.parametrize("column", ["message.id", "part.id", "part.data", "session.data"])
async def test_lost_values_give_typed_errors(column: str, tmp_path: Path) -> None:
    """Damage that SQLite itself does not notice, since every page is well-formed."""
    path = await fill(tmp_path)
    table, name = column.split(".")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA writable_schema = ON")
    [(schema,)] = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", [table])
    change = "UPDATE sqlite_schema SET sql = ? WHERE name = ?"
    connection.execute(change, [schema.replace(" NOT NULL", ""), table])
    connection.commit()
    connection.close()
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE {table} SET {name} = NULL WHERE rowid = 3")
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(change, [schema, table])
    connection.commit()
    connection.close()
    with pytest.raises(StoreCorrupt, match=rf"NULL value in {table}\.{name}"):
        await use(tmp_path)


async def test_a_lost_row_of_kedge_itself(tmp_path: Path) -> None:
    """A database without its epoch is damaged."""
    path = await fill(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM meta")
    connection.commit()
    connection.close()
    with pytest.raises(StoreCorrupt):
        await use(tmp_path)


async def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    """A directory where the database should be is refused."""
    (tmp_path / "data" / "kedge.db").mkdir(parents=True)
    with pytest.raises(StoreUnavailable, match="is a directory"):
        await use(tmp_path)


async def test_a_file_in_place_of_the_data_folder(tmp_path: Path) -> None:
    """A file where the data folder should be is refused."""
    (tmp_path / "data").write_text("a file")
    with pytest.raises(StoreUnavailable, match="data folder"):
        await use(tmp_path)


async def test_a_missing_data_folder_is_made(tmp_path: Path) -> None:
    """A data folder that does not exist is made, for its owner alone."""
    deep = tmp_path / "a" / "b" / "data"
    async with kedge.open(tmp_path, data_dir=deep) as engine:
        await engine.sessions.create("kept")
    assert deep.stat().st_mode & 0o777 == 0o700
