"""How SQLite finds rows by named queries where it would choose badly by itself."""

import sqlite3
from pathlib import Path

from kedge.domain.ids import IdMaker
from kedge.store.named_sql import load_queries
from kedge.store.sqlite.store import SqliteStore


async def test_plans_of_a_path_are_found_by_it(tmp_path: Path) -> None:
    """Not by looking at all steps of all plans of the worktree."""
    path = tmp_path / "kedge.db"
    await (await SqliteStore.open(path, IdMaker())).close()
    sql = load_queries("sqlite")["timeline_plans_before"]
    given = {"worktree": "/w", "path": b"a", "number": 9}
    connection = sqlite3.connect(path)
    steps = connection.execute(f"EXPLAIN QUERY PLAN {sql}", given).fetchall()
    connection.close()
    assert steps[0][3] == "SEARCH s USING INDEX plan_step_path (path=?)"
