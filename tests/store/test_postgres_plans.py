"""Every named query finds its rows by an index in PostgreSQL; how fast is not looked at."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from kedge.domain.ids import IdMaker
from kedge.store.named_sql import load_queries
from kedge.store.postgres.store import PostgresStore

_NUMBERS = {
    "after_mode", "any", "asked", "awaiting", "base", "before", "before_mode", "began", "bucket",
    "buckets", "count", "ended", "expect_mode", "first", "first_pos", "generation", "last",
    "last_created", "limit", "message_pos", "n", "next_pos", "now", "number", "open",
    "parent_pos", "pgid", "pid",
    "pos", "seq", "since", "start", "started", "time", "time_deleted", "time_expires",
    "time_updated", "timeline", "to_n", "to_pos", "until", "version", "want_mode",
}  # fmt: skip
_LISTS = {"types", "entities", "sessions", "projects", "directories", "payloads", "progress"}
# `id` and `after` are numbers in these, and names in all others.
_NUMBERED = {
    "change_later", "plan_of_path",
    "search_text_add", "search_text_put", "search_text_drop", "search_doc_drop",
}  # fmt: skip
_PATHS = {
    "change_add", "change_at_path", "history_of_path", "history_of_plans", "plan_of_path",
    "plan_move_at", "plan_step_add", "plan_writes_at", "seen_drop", "seen_get", "seen_put",
    "timeline_files", "timeline_groups", "timeline_numbers", "timeline_plan_count",
    "timeline_plan_files", "timeline_plan_numbers", "timeline_plans_before",
    "timeline_write_before",
}  # fmt: skip
_ONE_ROW = {"event_head", "timeline"}
# Walked through by a search for a part of a title, which no index finds.
_TITLES = {"session_title"}
_MAIN = (
    "session_get", "session_lock", "place_page", "message_get", "message_page_back", "part_range",
    "part_home", "part_home_fenced", "lease_owned", "lease_renew", "event_after",
    "event_after_in_session", "event_drop_progress", "search_hits", "search_sessions",
)  # fmt: skip

_FILL = """
INSERT INTO session SELECT 'ses_' || n, 'project', '/w', '/w', NULL, NULL, n, NULL, 1, 1, '{}'
FROM generate_series(1, 3000) n;
INSERT INTO session_place SELECT 'all', 0, n, 'ses_' || n FROM generate_series(1, 3000) n;
INSERT INTO session_title SELECT 'ses_' || n, 'title ' || n FROM generate_series(1, 3000) n;
INSERT INTO message SELECT 'ses_' || n, p, 'msg_' || p, 'user', NULL, 0, 0, '{}'
FROM generate_series(1, 3000) n, generate_series(0, 2) p;
INSERT INTO part SELECT 'ses_' || n, p, 'prt_' || p, 'text', repeat('x', 200)
FROM generate_series(1, 3000) n, generate_series(0, 2) p;
INSERT INTO lease SELECT 'ses_' || n, 1, CASE WHEN n < 3 THEN 'me' END, 1, 1, '{}', 1
FROM generate_series(1, 3000) n;
INSERT INTO event SELECT n, 'session.updated', 'session', 'ses_' || n % 3000, 'project', '/w',
    repeat('x', 200), 0 FROM generate_series(1, 20000) n;
INSERT INTO search_doc (session_id, message_id, part_id, kind, body, words)
SELECT 'ses_' || n % 3000, 'msg_' || n, 'prt', 'part', repeat('common words ', 50),
    array_to_tsvector(ARRAY['=part', 'common', 'rare' || n])
FROM generate_series(1, 20000) n;
ANALYZE;
"""


def _arguments(name: str, sql: str) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for argument in re.findall(r"%\((\w+)\)s", sql):
        if argument in _LISTS:
            given[argument] = "{1}"
        elif argument in _NUMBERS or (argument in ("id", "after") and name in _NUMBERED):
            given[argument] = 1
        elif argument in ("path", "low", "high") and name in _PATHS:
            given[argument] = b"7"
        else:
            given[argument] = "ses_7"
    if "tsquery" in given:
        given |= {"tsquery": "rare77:*", "kind": "part", "before": 2**40}
    return given


@contextmanager
def _connected(url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with psycopg.connect(url, autocommit=True) as connection:
        # As the adapter has it: one type for all numbers.
        connection.adapters.register_dumper(int, psycopg.types.numeric.Int8BinaryDumper)
        connection.adapters.register_dumper(str, psycopg.types.string.StrDumper)
        yield connection


def _walked_through(connection: psycopg.Connection[tuple[Any, ...]], name: str) -> set[str]:
    """The tables that a query reads from one end to the other, by its plan."""
    sql = load_queries("postgres")[name]
    found = connection.execute(f"EXPLAIN {sql}".encode(), _arguments(name, sql)).fetchall()
    plan = "\n".join(line for (line,) in found)
    return (
        set(re.findall(r"Seq Scan on (\w+)", plan))
        - _ONE_ROW
        - (_TITLES if name == "search_sessions" else set())
    )


@pytest.fixture
async def filled_url(postgres_url: str) -> str:
    """A database that holds more than a few rows of everything that grows."""
    await (await PostgresStore.open(postgres_url, IdMaker())).close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(_FILL.encode())
    return postgres_url


def test_every_query_can_use_an_index(filled_url: str) -> None:
    """When PostgreSQL avoids reading whole tables, it need not read one for any query."""
    with _connected(filled_url) as connection:
        connection.execute("SET enable_seqscan = off")
        names = [name for name in load_queries("postgres") if not name.startswith("checkup_")]
        walked = {name: _walked_through(connection, name) for name in names}
        assert {name: tables for name, tables in walked.items() if tables} == {}


def test_the_main_queries_do_use_an_index(filled_url: str) -> None:
    """Left to itself on a filled database, PostgreSQL chooses the index."""
    with _connected(filled_url) as connection:
        walked = {name: _walked_through(connection, name) for name in _MAIN}
        assert {name: tables for name, tables in walked.items() if tables} == {}


@pytest.mark.parametrize("name", ["search_hits", "search_sessions"])
def test_words_are_looked_up_whatever_they_are(filled_url: str, name: str) -> None:
    """A prepared search, whose plan does not know the words, uses the index of words."""
    sql = load_queries("postgres")[name]
    given = _arguments(name, sql)
    places = {argument: f"${n}" for n, argument in enumerate(given, start=1)}
    types = ["bigint" if isinstance(value, int) else "text" for value in given.values()]
    with _connected(filled_url) as connection:
        connection.execute("SET plan_cache_mode = force_generic_plan")
        prepare = f"PREPARE words ({', '.join(types)}) AS {sql % places}"
        connection.execute(prepare.encode())
        values = ", ".join(f"'{value}'" for value in given.values())
        plan = connection.execute(f"EXPLAIN EXECUTE words ({values})".encode()).fetchall()
    assert any("$1" in line or "$2" in line for (line,) in plan)
    assert any("search_doc_words" in line for (line,) in plan)
