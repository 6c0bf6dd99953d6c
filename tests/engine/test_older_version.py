"""What an older kedge stored is understood: a database of version 7, as `older_version` made it.

It holds a pending revert, a revert that was killed before it did anything, a call that was killed
while it wrote, a final revert with its tail, and receipts.
"""

import sqlite3
import tarfile
from pathlib import Path

import pytest

import kedge
from kedge.domain.receipts import Receipt
from kedge.engine.engine import Engine
from kedge.engine.os_process import machine
from kedge.engine.session import Session
from kedge.store.named_sql import load_migrations
from tests.engine.crash_world import boundary_of
from tests.engine.older_version import FIRST, make_tree

MADE = Path(__file__).parent / "recorded/version_7.tar.gz"
AT_THE_CRASH = {
    "a.txt": "ONE\ntwo\nthree\n",
    "c.txt": "two\n",
    "d.txt": "two\n",
    "made.txt": "made\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The folder of the sessions, as the killed process left it; the database is beside it."""
    with tarfile.open(MADE) as archive:
        archive.extractall(tmp_path, filter="data")
    tree = tmp_path / "tree"
    make_tree(tree)
    for name, text in AT_THE_CRASH.items():
        (tree / name).write_text(text)
        (tree / name).chmod(0o644)
    moved(tmp_path / "data/kedge.db", str(tree))
    return tree


def moved(database: Path, folder: str) -> None:
    """Have the database tell of this folder and this machine."""
    connection = sqlite3.connect(database)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    assert version == 7 < len(load_migrations("sqlite"))
    places = connection.execute("SELECT worktree, machine FROM call").fetchone()
    tables = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'search%'"
    )
    for (table,) in tables.fetchall():
        for _, column, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
            for old, new in zip(places, (folder, machine()), strict=True):
                connection.execute(
                    f"UPDATE {table} SET {column} = replace({column}, ?, ?)"
                    f" WHERE typeof({column}) = 'text' AND instr({column}, ?)",
                    (old, new, old),
                )
    connection.commit()
    connection.close()


def texts(tree: Path) -> dict[str, str]:
    """The files of a folder."""
    found = (path for path in tree.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(tree)): path.read_text() for path in found}


def outcomes(receipt: Receipt) -> dict[str, str]:
    """What a receipt says of each path."""
    return {each.path: each.outcome for each in receipt.files}


async def titled(engine: Engine, title: str) -> Session:
    """The session of this title."""
    (info,) = [each for each in (await engine.sessions.list()).sessions if each.title == title]
    return await engine.sessions.get(info.id)


async def test_what_an_older_kedge_began_goes_on(tree: Path) -> None:
    """Its unfinished revert is completed, its pending one is taken back, its tail is restored."""
    async with kedge.open(tree, data_dir=tree.parent / "data") as engine:
        assert texts(tree) == {"a.txt": AT_THE_CRASH["a.txt"], "c.txt": "one\n", "d.txt": "two\n"}
        cut = await titled(engine, "Cut revert")
        boundary, receipt = await boundary_of(engine, cut)
        assert boundary is not None
        assert receipt is not None
        assert outcomes(receipt) == {"c.txt": "restored", "made.txt": "deleted"}
        pending = await titled(engine, "Pending")
        boundary, receipt = await boundary_of(engine, pending)
        assert boundary is not None
        assert receipt is not None
        assert outcomes(receipt) == {"a.txt": "restored", "new/b.txt": "deleted"}
        assert len(await pending.diff()) == 1
        await cut.unrevert()
        receipt = await pending.unrevert()
        assert outcomes(receipt) == {"a.txt": "restored", "new/b.txt": "recreated"}
        assert texts(tree) == {
            **AT_THE_CRASH,
            "a.txt": "ONE\ntwo\nTHREE\n",
            "new/b.txt": "b\n",
        }
        messages = (await pending.messages()).messages
        receipt = await pending.revert(messages[0].info.id)
        assert outcomes(receipt) == {"a.txt": "restored", "new/b.txt": "deleted"}
        assert texts(tree)["a.txt"] == FIRST["a.txt"]
        final = await titled(engine, "Final")
        (tail,) = await final.tails()
        restored = await final.restore_tail(tail.id)
        assert len((await restored.messages()).messages) == tail.messages == 3


async def test_lines_and_the_timeline_of_an_older_kedge_are_known(tree: Path) -> None:
    """Its changes were recorded without times; those of their calls are used."""
    async with kedge.open(tree, data_dir=tree.parent / "data") as engine:
        blame = await engine.blame("a.txt")
        assert [blame.origins[line.origin].kind for line in blame.lines] == [
            "session",
            "before",
            "before",
        ]
        origin = blame.origins[0]
        assert (origin.title, origin.tool, origin.time) == ("Pending", "edit", 1795061249777)
        entries = (await engine.timeline.list()).entries
        assert [(each.kind, each.title) for each in entries] == [
            ("shared", "Cut call"),
            ("revert", "Cut revert"),
            *[("session", "Cut revert")] * 2,
            ("revert", "Final"),
            ("session", "Final"),
            ("revert", "Pending"),
            *[("session", "Pending")] * 3,
        ]
        assert all(each.time is not None for each in entries)


async def test_a_call_that_an_older_kedge_left_open_is_closed(tree: Path) -> None:
    """It has failed, and what is in its file stays: it may be a person's by now."""
    async with kedge.open(tree, data_dir=tree.parent / "data") as engine:
        session = await titled(engine, "Cut call")
        messages = (await session.messages()).messages
        (call,) = [part for part in messages[-1].parts if isinstance(part, kedge.ToolPart)]
        assert isinstance(call.state, kedge.ToolError)
        receipt = await session.revert(messages[0].info.id)
        assert outcomes(receipt) == {"d.txt": "shared"}
        assert texts(tree)["d.txt"] == "two\n"
