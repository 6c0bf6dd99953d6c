"""The named SQL is complete in both dialects and used; what it does is tested elsewhere."""

import ast
import re
from pathlib import Path

import pytest

import kedge.store
from kedge.store.named_sql import Dialect, load_migrations, load_queries

STORE = Path(kedge.store.__file__).parent
DIALECTS: tuple[Dialect, ...] = ("sqlite", "postgres")
FOR_ONE = {
    "event_append": "the adapters store events themselves, each in its own way",
}
"""Queries whose arguments differ between the dialects, with the reason."""


def strings_in_code() -> set[str]:
    """Every string in the package: a query is named by one."""
    package = STORE.parent
    found: set[str] = set()
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def test_both_dialects_have_the_same_queries() -> None:
    """A verb runs on either database."""
    sqlite, postgres = (load_queries(dialect) for dialect in DIALECTS)
    assert sqlite.keys() == postgres.keys()


def test_every_query_is_used() -> None:
    """A query that no code names is dead."""
    unused = load_queries("sqlite").keys() - strings_in_code()
    assert unused == set()


@pytest.mark.parametrize("stem", ["queries", "sqlite", "postgres"])
def test_no_name_is_given_twice(stem: str) -> None:
    """The second query of a name would silently be joined to the first."""
    text = (STORE / "sql" / f"{stem}.sql").read_text("utf-8")
    names = re.findall(r"^-- name: (.*)$", text, re.MULTILINE)
    assert names
    assert len(names) == len(set(names))
    assert all(re.fullmatch("[a-z_]+", name) for name in names)


@pytest.mark.parametrize("name", sorted(load_queries("sqlite").keys() - FOR_ONE.keys()))
def test_arguments_have_the_style_of_the_driver(name: str) -> None:
    """SQLite gets `:name`; PostgreSQL gets `%(name)s`, and its casts stay casts."""
    assert "%(" not in load_queries("sqlite")[name]
    postgres = load_queries("postgres")[name]
    assert not re.search(r"(?<!:):[a-z_]+\b", postgres.replace("::", " cast_"))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_migrations_are_numbered(dialect: Dialect) -> None:
    """There is at least the first, and both dialects have as many."""
    assert len(load_migrations(dialect)) == len(load_migrations("sqlite")) >= 1
