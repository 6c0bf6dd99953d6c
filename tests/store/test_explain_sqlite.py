"""Every named query of the SQLite dialect finds its rows by an index; how fast that is, is not
measured here."""

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.store.named_sql import load_queries
from kedge.store.sqlite.connection import connect, create_file
from kedge.store.sqlite.migrate import migrate

QUERIES = {
    name: sql for name, sql in load_queries("sqlite").items() if not name.startswith("checkup_")
}
"""All but those of the doctor, which looks at everything."""

SCANS = {
    # Rows that the statement itself made, never a table.
    "fork_messages": {"SCAN (subquery-": "the messages of one session, numbered"},
    "fork_parts": {"SCAN (subquery-": "the parts of one session, numbered"},
    # The index of words is the virtual table itself.
    "search_hits": {
        "SCAN search_text VIRTUAL TABLE": "a look-up of words in the full-text index",
        "SCAN h": "the hits of one page",
    },
    "search_sessions": {
        "SCAN search_text VIRTUAL TABLE": "a look-up of words in the full-text index",
        "SCAN session_title": "all titles, which are short, and nothing else",
        "SCAN m": "the sessions that match",
    },
    "search_text_put": {"SCAN search_text VIRTUAL TABLE": "by rowid"},
    "search_text_drop": {"SCAN search_text VIRTUAL TABLE": "by rowid"},
    # An index of these rows alone.
    "plan_unfinished": {"SCAN plan USING INDEX plan_unfinished": "plans that a crash left"},
    "message_unanswered_sessions": {
        "SCAN m USING INDEX message_unanswered": "prompts that wait or were left"
    },
    "ask_open_all": {"SCAN a USING INDEX ask_open": "what waits for somebody now"},
    "ask_open_of_project": {"SCAN a USING INDEX ask_open": "what waits for somebody now"},
    # What runs now, which is little.
    "background_task_list": {"SCAN background_task": "all of them are looked at"},
    "process_of": {"SCAN process": "the processes of calls that run"},
    # Asked by commands of agents alone, which are then refused.
    "part_anywhere": {"SCAN part USING COVERING INDEX": "a part whose session is not known"},
    # The folders that sessions have worked in, which are few.
    "worktree_paths": {"SCAN worktree": "all of them are looked at"},
    # The files that somebody trusted, which are few.
    "trust_list": {"SCAN trust": "all of them are looked at"},
    # One row.
    "clock": {"SCAN CONSTANT ROW": "no table"},
    "commit_without_sync": {"SCAN CONSTANT ROW": "no table"},
    "event_head": {
        "SCAN CONSTANT ROW": "no table",
    },
    "fork_size": {"SCAN CONSTANT ROW": "two counts by index"},
    "index_lock": {"SCAN CONSTANT ROW": "no table"},
    "project_lock": {"SCAN CONSTANT ROW": "no table"},
}
"""Steps of a plan that read more than an index points at, by query, each with the reason it may."""

SORTS = {
    "search_hits": "the hits of one page, found in their order already",
    "search_sessions": "the sessions that match are ordered as the list is",
    "ask_ended_of_session": "the asks of one session that was cut off, for those who come back",
    "event_sessions": "the sessions of one stretch of the log, each once",
}
"""Queries that may sort, each with the reason."""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """An empty database with the whole schema."""
    create_file(tmp_path / "kedge.db")
    migrate(tmp_path / "kedge.db")
    connection = connect(tmp_path / "kedge.db", wait=1.0)
    yield connection
    connection.close()


def plan_of(database: sqlite3.Connection, sql: str) -> list[str]:
    """The steps SQLite takes for a statement, without the names of what it looks up."""
    arguments: object = dict.fromkeys(re.findall(r":([a-z_]+)", sql), 1)
    if "?" in sql:
        arguments = [1] * sql.count("?")
    return [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", arguments)]  # type: ignore[arg-type]  # either form


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_no_query_walks_through_a_table(database: sqlite3.Connection, name: str) -> None:
    """A query that scans or sorts is listed above with its reason, or it needs an index."""
    plan = plan_of(database, QUERIES[name])
    allowed = tuple(SCANS.get(name, ()))
    scans = [step for step in plan if step.startswith("SCAN") and not step.startswith(allowed)]
    sorts = [step for step in plan if "USE TEMP B-TREE" in step and name not in SORTS]
    indexes_made = [step for step in plan if "AUTOMATIC" in step]
    assert scans + sorts + indexes_made == []


@pytest.mark.parametrize("name", sorted(SCANS.keys() | SORTS.keys()))
def test_every_exception_is_needed(database: sqlite3.Connection, name: str) -> None:
    """An exception that no longer applies is taken off the lists."""
    plan = plan_of(database, QUERIES[name])
    for step in SCANS.get(name, {}):
        assert any(each.startswith(step) for each in plan), step
    if name in SORTS:
        assert any("USE TEMP B-TREE" in step for step in plan)


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_pages_are_found_by_key(name: str) -> None:
    """No query counts rows to skip them."""
    assert not re.search(r"\bOFFSET\b", QUERIES[name], re.IGNORECASE)


def test_a_scan_would_be_seen(database: sqlite3.Connection) -> None:
    """The words this test looks for are the ones SQLite uses."""
    plan = plan_of(database, "SELECT id FROM message WHERE data = :data ORDER BY role")
    assert plan == ["SCAN message", "USE TEMP B-TREE FOR ORDER BY"]
