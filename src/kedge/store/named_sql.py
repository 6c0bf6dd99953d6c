"""Loads the named SQL in `sql/`: shared queries first, those of the doctor, then the dialect's own.

A query starts with a line `-- name: session_get` and uses `:argument` for its arguments in both
dialects.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias

from kedge.domain.errors import InvariantBroken

Dialect: TypeAlias = Literal["sqlite", "postgres"]

_NAME = re.compile(r"^-- name: ([a-z_]+)$")
_ARGUMENT = re.compile(r"(?<![:\w]):([a-z_]+)")


@cache
def load_queries(dialect: Dialect) -> dict[str, str]:
    """Every named query, in the parameter style of the dialect's driver."""
    queries = _parse("queries") | _parse("checkup") | _parse(dialect)
    return {name: _in_style(sql, dialect) for name, sql in queries.items()}


def load_migrations(dialect: Dialect) -> list[str]:
    """The numbered migrations; the n-th takes a database from version n to n + 1.

    What both dialects understand is in `both`, the rest in a folder for each.
    """
    top = files("kedge.store").joinpath("sql", "migrations")
    found = [
        entry
        for folder in ("both", dialect)
        for entry in top.joinpath(folder).iterdir()
        if entry.name.endswith(".sql")
    ]
    found.sort(key=lambda entry: entry.name)
    for number, entry in enumerate(found, start=1):
        if not entry.name.startswith(f"{number:04}_"):
            raise InvariantBroken(f"migration {entry.name} is out of order")
    return [entry.read_text("utf-8") for entry in found]


def too_new(location: str, version: int, known: int, written: tuple[str, ...] | None) -> str:
    """The error message for a database that a later version has migrated."""
    needed = f"kedge {written[0]} or newer" if written else "the newer version"
    return (
        f"{location} was written by a newer kedge (schema {version}, this one knows {known});"
        f" install {needed} again"
    )


def _parse(stem: str) -> dict[str, str]:
    text = files("kedge.store").joinpath("sql", f"{stem}.sql").read_text("utf-8")
    queries: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if match := _NAME.match(line):
            current = queries.setdefault(match[1], [])
        elif current is not None and line.strip() and not line.startswith("--"):
            current.append(line)
    return {name: "\n".join(lines) for name, lines in queries.items()}


def _in_style(sql: str, dialect: Dialect) -> str:
    if dialect == "sqlite":
        return sql
    return _ARGUMENT.sub(r"%(\1)s", sql.replace("%", "%%"))
